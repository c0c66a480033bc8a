"""The end of a local run for people and for scripts, and the exit code it means."""

from __future__ import annotations

import sys
from datetime import datetime

from agentrun.cli.exit_codes import ExitCode, exit_code_of
from agentrun.cli.terminal import output
from agentrun.cli.tree_printer import print_summary
from agentrun.contract.exact_json import JsonObject, canonical_json
from agentrun.contract.run import RunPhase
from agentrun.local.local_run import LocalOutcome


def report_outcome(outcome: LocalOutcome, now: datetime, *, as_json: bool, more: JsonObject | None = None) -> ExitCode:
    """Print every node with its end (or everything as one JSON object), and return the exit code."""
    if as_json:
        _print_json(outcome, more or {})
    else:
        for found in outcome.runs:
            nodes = [node for node in outcome.nodes if node.spec.run.uid == found.metadata.uid]
            print_summary(output(), found, nodes, now)
    return exit_code_of([found.status.phase if found.status else RunPhase.PENDING for found in outcome.runs])


def _print_json(outcome: LocalOutcome, more: JsonObject) -> None:
    found: JsonObject = {
        "runs": [run.to_wire() for run in outcome.runs],
        "nodes": [node.to_wire() for node in outcome.nodes],
        "approvals": [approval.to_wire() for approval in outcome.approvals],
        **more,
    }
    # The exact writer: numbers of the user's own stay what they are.
    sys.stdout.write(canonical_json(found) + "\n")
