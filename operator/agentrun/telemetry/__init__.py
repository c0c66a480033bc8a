"""The metrics table, tracing, and the log setup with redaction."""
