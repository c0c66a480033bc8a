"""The metrics table and who serves it, liveness, and the log setup with redaction."""
