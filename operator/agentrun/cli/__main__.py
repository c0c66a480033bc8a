"""``python -m agentrun.cli``: the command line."""

from agentrun.cli.main import main

main()
