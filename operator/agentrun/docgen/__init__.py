"""Generated pages of the documentation that come from the rules: states, reasons, defaults, metrics."""
