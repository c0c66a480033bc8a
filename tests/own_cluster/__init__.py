"""A cluster of one's own to try things on: see ``make dev-cluster``."""
