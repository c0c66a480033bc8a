"""The page of defaults: every number that is assumed when nobody says otherwise."""

from __future__ import annotations

from datetime import timedelta

from agentrun.contract import defaults
from agentrun.contract.durations import format_duration
from agentrun.contract.run import MAX_FANOUT_ITEMS, MAX_NODES_IN_SPEC

_HEAD = """# Defaults and limits

Generated from `agentrun/contract/defaults.py` by `make generate`. A node's own word wins over its tool's, the tool's
over the priority's.

"""


def build_default_table() -> str:
    """Return the page as Markdown."""
    priorities = "".join(
        f"| {priority} | {_text(row.timeout)} | {row.retries} | {row.after_last} | "
        f"{_text(row.ages_after) if row.ages_after else 'never'} |\n"
        for priority, row in defaults.PRIORITIES.items()
    )
    rows = "".join(f"| {what} | {value} | {where} |\n" for what, value, where in _ROWS)
    return (
        f"{_HEAD}## Priorities\n\n| priority | active time | retries | after the last one | rises after waiting |\n"
        f"|---|---|---|---|---|\n{priorities}\nThe default is {defaults.DEFAULT_PRIORITY}. Active time is what a node "
        "spends in Running, TimedOut and RetryWait together, never its waiting in line.\n\n"
        f"## Times and sizes\n\n| what | default | set by |\n|---|---|---|\n{rows}"
    )


def _text(duration: timedelta) -> str:
    return format_duration(duration)


_ROWS = (
    *(
        (f"one attempt of a tool with reach {reach}", _text(value), "`timeout` of node or tool")
        for reach, value in defaults.ATTEMPT_TIMEOUT.items()
    ),
    ("a whole run", _text(defaults.RUN_TIMEOUT), "`spec.timeout`"),
    ("waiting for upstream nodes", _text(defaults.DEPENDENCY_WAIT), "`spec.waits.dependencies`"),
    ("waiting in line (Ready and Queued)", _text(defaults.QUEUE_WAIT), "`spec.waits.queue`"),
    ("finding out what happened (TimedOut)", _text(defaults.RECOVERY_WAIT), "`spec.waits.recovery`"),
    ("waiting for a human", _text(defaults.INBOX_WAIT), "`spec.waits.inbox`, `expiresAfter`"),
    ("standing still (Suspended)", _text(defaults.MAX_SUSPENDED), "`spec.waits.suspended`"),
    ("a result answers for its repetitions", _text(defaults.IDEMPOTENCY_WINDOW), "`idempotency.window`"),
    ("asking again whether a call still runs", _text(defaults.LOOKUP_POLL), "`recovery.pollInterval`"),
    ("first backoff, factor, longest", f"{_text(defaults.BACKOFF_INITIAL)}, {defaults.BACKOFF_FACTOR}, "
     f"{_text(defaults.BACKOFF_MAX)}", "`retry.backoff`"),
    ("heartbeat of a worker", _text(defaults.HEARTBEAT_INTERVAL), "worker"),
    ("silence after which a claim counts as lost", _text(defaults.HEARTBEAT_SILENCE), "ledger"),
    ("an order nobody claims is taken back after", _text(defaults.CLAIM_WITHIN), "fixed"),
    ("a slot that nobody renews is free after", _text(defaults.SLOT_LEASE), "fixed"),
    ("a node that waits for an equal call looks again every", _text(defaults.BUSY_RECHECK), "fixed"),
    ("deliveries without a claim before an order is poison", str(defaults.MAX_DELIVERIES), "ledger"),
    ("params of one call", f"{defaults.PARAMS_MAX_BYTES} bytes", "fixed"),
    ("result of one call", f"{defaults.RESULT_MAX_BYTES} bytes", "fixed"),
    ("what is kept of an answer that is no use", f"{defaults.RAW_OUTPUT_MAX_CHARS} characters", "fixed"),
    ("one node's object", f"{defaults.NODE_MAX_BYTES} bytes", "fixed"),
    ("spec of a run", f"{defaults.RUN_SPEC_MAX_BYTES} bytes", "fixed"),
    ("nodes in a run's spec", str(MAX_NODES_IN_SPEC), "fixed; use a FanOut for more"),
    ("instances of a fan-out", str(MAX_FANOUT_ITEMS), "`fanOut.maxItems` lowers it"),
)  # fmt: skip
