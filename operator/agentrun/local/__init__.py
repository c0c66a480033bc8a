"""Local mode: an in-memory cluster, an embedded Valkey and an in-process worker."""
