"""Measures the core without Kubernetes: ledger, engine and worker on one machine: ``make bench``."""
