"""``python -m agentrun_worker``: the command line."""

from agentrun_worker.main import main

main()
