"""AgentApproval: one decision asked of a human."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from agentrun.contract.failures import Effect
from agentrun.contract.model_base import (
    ContractModel,
    Digest,
    FreeObject,
    FreeValue,
    LongText,
    MediumText,
    NodePath,
    ShortText,
    Timestamp,
)
from agentrun.contract.node import InboxKind, RunRef
from agentrun.contract.object_meta import API_VERSION, ObjectMeta


class Verdict(StrEnum):
    """What a human decided."""

    APPROVE = "Approve"
    """Let the call be made."""
    REJECT = "Reject"
    """Do not."""
    RELEASE = "Release"
    """Let a quarantined node go on."""
    RESOLVE = "Resolve"
    """Give its result."""
    DISCARD = "Discard"
    """Give it up."""
    REDRIVE = "Redrive"
    """Send a dead node on its way again."""


ALLOWED_VERDICTS: dict[InboxKind, tuple[Verdict, ...]] = {
    InboxKind.CALL: (Verdict.APPROVE, Verdict.REJECT),
    InboxKind.DUPLICATE: (Verdict.APPROVE, Verdict.REJECT),
    InboxKind.GRANT: (Verdict.APPROVE, Verdict.REJECT),
    InboxKind.QUARANTINE: (Verdict.RELEASE, Verdict.RESOLVE, Verdict.DISCARD),
    InboxKind.DEAD: (Verdict.REDRIVE, Verdict.DISCARD),
}
"""Which verdicts answer which question."""


class Decision(ContractModel):
    """A human's answer; set once."""

    verdict: Verdict
    """The answer; which are allowed stands in ``status.request.allowed``."""
    reason: MediumText = ""
    """Why, for the record."""
    params: FreeObject | None = None
    """Edited params, with Approve, Release or Redrive; they pass the gate again."""
    result: FreeValue = None
    """The result to go on with, with Resolve."""
    effect: Effect | None = None
    """What really happened outside, where the outcome was unknown: NotExecuted or Executed."""
    params_digest: Digest | None = None
    """The digest of the params that were looked at; a decision on others is refused."""
    decided_by: MediumText = ""
    """Who decided."""
    decided_at: Timestamp | None = None
    """When."""
    seal: ShortText = ""
    """The admission webhook's proof of who decided what; it replaces whatever stands here."""

    @model_validator(mode="after")
    def _fields_fit_verdict(self) -> Decision:
        if self.params is not None and self.verdict not in (Verdict.APPROVE, Verdict.RELEASE, Verdict.REDRIVE):
            raise ValueError(f"params do not go with verdict {self.verdict}")
        if "result" in self.model_fields_set and self.verdict is not Verdict.RESOLVE:
            raise ValueError(f"result does not go with verdict {self.verdict}")
        if self.effect is Effect.UNKNOWN:
            raise ValueError("effect must say what happened: NotExecuted or Executed")
        return self


class AgentApprovalSpec(ContractModel):
    """Holds the decision and nothing else, so that the right to decide is the right to write this."""

    decision: Decision | None = None
    """The answer; once it is set it stays."""


class ApprovalRequest(ContractModel):
    """The question."""

    run: RunRef
    """The run in question."""
    node: NodePath
    """Full name of the node in question."""
    node_uid: ShortText = ""
    """Its uid."""
    inbox_id: ShortText
    """Names the question."""
    kind: InboxKind
    """What is asked."""
    intent: MediumText = ""
    """The run's intent."""
    question: LongText = ""
    """The question."""
    tool: ShortText = ""
    """The tool that would be called."""
    params_digest: Digest = ""
    """Digest of the params."""
    params_preview: LongText = ""
    """The params as JSON text, cut; the digest is over all of them."""
    context: MediumText = ""
    """Where more is to be read."""
    unknown_outcome: bool = False
    """Nobody knows whether the call was executed: the answer says so in ``effect``, unless Discard alone is allowed."""
    allowed: tuple[Verdict, ...] = Field(default=(), max_length=8)
    """Verdicts that answer this question here: without the admission webhook Approve, Reject and Discard alone."""
    asked_at: Timestamp
    """When it was asked."""
    expires_at: Timestamp | None = None
    """When it expires."""


class AgentApprovalStatus(ContractModel):
    """The question, and what became of the answer."""

    request: ApprovalRequest | None = None
    """The question."""
    state: Literal["Open", "Applied", "Refused", "Expired", "Withdrawn"] = "Open"
    """What became of it."""
    message: LongText = ""
    """Why an answer was refused."""
    verdict: Verdict | None = None
    """The verdict that was carried out or refused. Whatever is written into the spec afterwards does not count."""
    verified: bool | None = None
    """Whether the admission webhook vouches for who gave the answer."""
    applied_at: Timestamp | None = None
    """When the answer was carried out."""


class AgentApproval(ContractModel):
    """One decision asked of a human about one node."""

    api_version: Literal["agentrun.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    kind: Literal["AgentApproval"] = "AgentApproval"
    metadata: ObjectMeta
    spec: AgentApprovalSpec = AgentApprovalSpec()
    status: AgentApprovalStatus | None = None
