"""The command line, `agentrun` and `kubectl agentrun`: one file per verb, printers apart."""
