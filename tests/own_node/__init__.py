"""A real Kubernetes node of the tests' own: the control plane, and everything that pods need to run on this machine."""
