"""Rounds of chaos: real processes are struck down while runs are at work, and everything must end right all the same."""
