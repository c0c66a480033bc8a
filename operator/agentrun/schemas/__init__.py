"""JSON Schema of params and results: compiled once per definition, bounded, without remote references."""
