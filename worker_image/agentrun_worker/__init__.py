"""The execution plane: claims orders at the gate, executes them, and never decides."""
