"""The Kubernetes shell of the engine: kopf as event source, guarded writes, leadership. It holds no rule of its own."""
