"""Hostile histories of the whole system on virtual time, from seeds: ``make simulate``."""
