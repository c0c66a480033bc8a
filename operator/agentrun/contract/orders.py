"""Work orders and reports: everything that passes between the decision plane and the execution plane."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from agentrun.contract.failures import Effect, Failure
from agentrun.contract.model_base import ContractModel, Digest, FreeObject, FreeValue, LongText, MediumText, ShortText
from agentrun.contract.run import Priority
from agentrun.contract.tool import IdempotencyScope, OnDuplicate, SideEffect

CONTRACT_VERSION = 1
"""Version of orders, reports and heartbeats; a worker hands an order of a newer version back unclaimed."""


class OrderKind(StrEnum):
    """What a worker is to do with an order."""

    EXECUTE = "Execute"
    RECOVER = "Recover"


class Amount(ContractModel):
    """What is held or was used: micro-units of money, tokens, model calls."""

    micros: int = 0
    tokens: int = 0
    model_calls: int = 0


class RecordRef(ContractModel):
    """The idempotency record of a call."""

    key: MediumText
    """Unique inside the install and namespace: scope, scope's name and the call's own key, hashed."""
    scope: IdempotencyScope
    window_ms: int
    """How long a result is kept after the end (Run scope: until the run's end is swept)."""
    on_duplicate: OnDuplicate = OnDuplicate.REPLAY
    own_key: bool = False
    """The key was approved for an intended repetition: it is nobody's duplicate."""


class LookupOrder(ContractModel):
    """The lookup a recovery makes; params are resolved already."""

    tool: ShortText
    tool_digest: Digest
    params: FreeObject = Field(default_factory=dict)
    poll_ms: int = 2000


class Order(ContractModel):
    """One piece of work for one worker, identified by (node, attempt, seq, epoch).

    Durations are relative: the ledger turns them into its own clock when the order is dispatched or claimed.
    """

    contract_version: int = CONTRACT_VERSION
    kind: OrderKind = OrderKind.EXECUTE
    namespace: ShortText
    run_uid: ShortText
    run_name: MediumText
    node_uid: ShortText
    node_path: MediumText
    session: MediumText = ""
    attempt: int
    seq: int
    epoch: int
    request_id: ShortText
    tool: ShortText
    tool_digest: Digest
    pool: ShortText
    priority: Priority
    side_effect: SideEffect
    params: FreeObject
    params_digest: Digest
    record: RecordRef
    hold: Amount = Amount()
    cost: Amount = Amount()
    """What one call costs when the tool itself reports nothing."""
    timeout_ms: int
    """Longest time from claim to report."""
    claim_within_ms: int
    """Longest time from dispatch to claim."""
    run_remaining_ms: int
    """Until the run's deadline, counted at dispatch; no attempt starts after it."""
    rate_per_second: int | None = None
    lookup: LookupOrder | None = None
    """With kind Recover, if the tool has one."""


class AttemptOutcome(ContractModel):
    """How an attempt (or a recovery) ended, as its worker saw it."""

    effect: Effect
    failure: Failure | None = None
    """None: succeeded, and ``result`` is valid."""
    result: FreeValue = None
    raw_output: LongText = ""
    usage: Amount = Amount()
    usage_estimated: bool = False
    duration_ms: int = 0

    @property
    def succeeded(self) -> bool:
        """Whether the attempt ended well."""
        return self.failure is None


class ReportKind(StrEnum):
    """What a report says about an order."""

    CLAIMED = "Claimed"
    """A worker holds the attempt."""
    COMMITTED = "Committed"
    """The attempt ended under its current claim; carries the outcome."""
    REPLAYED = "Replayed"
    """The record already held a result; carries it as outcome, and whose it is."""
    BUSY = "Busy"
    """Another node's claim, recovery or inbox holds the record; carries the holder."""
    RECOVER = "Recover"
    """The record's outcome is open or done-but-useless, and the tool is Once."""
    CONFLICT = "Conflict"
    """The record belongs to a call with other params."""
    DUPLICATE = "Duplicate"
    """The record holds a result and the tool's policy is Reject or Ask; carries whose it is."""
    DEADLINE_PASSED = "DeadlinePassed"
    """Claimed too late: nothing was executed."""
    HANDED_BACK = "HandedBack"
    """The worker did not start it (drain, rate, version, slot)."""
    POISON = "Poison"
    """Delivered too often without a claim."""
    LOST = "Lost"
    """The claim stopped heartbeating."""
    ADOPTED = "Adopted"
    """The recovery's lookup found the call still running: the recovery holds the claim and polls on."""
    RECORD_FREED = "RecordFreed"
    """Somebody waited for this record and may try again; carries the waiter's node."""
    COST_KNOWN = "CostKnown"
    """What a lost attempt cost became known late; carries that outcome, none: it never began."""


class Report(ContractModel):
    """What the execution plane tells the decision plane about one order."""

    contract_version: int = CONTRACT_VERSION
    kind: ReportKind
    namespace: ShortText
    run_uid: ShortText
    node_uid: ShortText
    attempt: int
    seq: int
    epoch: int = 0
    recovering: bool = False
    """The order was a recovery."""
    worker: MediumText = ""
    at_ms: int = 0
    """The ledger server's clock, Unix milliseconds."""
    holder: MediumText = ""
    """``<namespace>/<run>/<node>`` that owns the record."""
    reason: ShortText = ""
    record_version: int = 0
    deadline_ms: int = 0
    """With Claimed: how long the attempt may take from here."""
    outcome: AttemptOutcome | None = None
