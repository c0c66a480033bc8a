"""Which Jobs there should be for attempts that are not made by workers of a pool, and what is done about each."""
