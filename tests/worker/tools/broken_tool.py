"""A tool whose file cannot even be imported."""

raise RuntimeError("broken on purpose")
