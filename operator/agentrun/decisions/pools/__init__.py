"""Which pools of workers a namespace needs, how many workers each has, and what keeps them from starting."""
