"""The pure core: facts in, decisions out; no clock, randomness, environment, IO or logging."""
