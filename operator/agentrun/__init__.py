"""AgentRun Operator: decides what an agent run does next, and never executes it."""
