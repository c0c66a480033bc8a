"""Measures the operator on a control plane of its own: ``make bench-cluster``."""
