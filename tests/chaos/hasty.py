"""Runs the product's own command lines with its slow clocks sped up: ``python -m chaos.hasty operator|worker ARGS…``.

A silence that counts as death takes 30 s in the field, and a slot that leaked is free after a minute: a round would last
minutes. The numbers are replaced before anything else of the product is loaded; nothing else is changed.
"""

from __future__ import annotations

import sys
from datetime import timedelta

HEARTBEAT_SILENCE = timedelta(seconds=4)
SLOT_LEASE = timedelta(seconds=8)
FASTER = {
    "HEARTBEAT_INTERVAL": timedelta(seconds=1),
    "HEARTBEAT_SILENCE": HEARTBEAT_SILENCE,
    "SLOT_LEASE": SLOT_LEASE,
    "CLAIM_WITHIN": timedelta(seconds=8),
    "BUSY_RECHECK": timedelta(seconds=4),
    "RECOVERY_WAIT": timedelta(seconds=30),
    "LOOKUP_POLL": timedelta(milliseconds=300),
}


def main() -> None:
    """Speed up, then be the operator's or the worker's command line."""
    from agentrun.contract import defaults

    for name, value in FASTER.items():
        if not hasattr(defaults, name):
            raise SystemExit(f"there is no default {name} any more: bring chaos/hasty.py up to date")
        setattr(defaults, name, value)
    program = sys.argv.pop(1)
    if program == "worker":
        from agentrun_worker.main import main as run_program
    else:
        from agentrun.cli.main import main as run_program
    run_program()


if __name__ == "__main__":
    main()
