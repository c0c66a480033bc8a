"""The desk where humans are asked and answer: AgentApproval objects, and what their decisions lead to.

One approval for each node that enters a human inbox, under a deterministic name, so that asking twice asks once. A
decision is judged against the question it was given to; a refused one is answered with the reason and a fresh question.
"""

from __future__ import annotations

from typing import assert_never

import structlog

from agentrun.contract.approval import AgentApproval, AgentApprovalStatus, ApprovalRequest, Verdict
from agentrun.contract.exact_json import canonical_json
from agentrun.contract.model_base import cut_text
from agentrun.contract.names import RUN_UID_LABEL, approval_object_name, retry_run_name
from agentrun.contract.node import Inbox, InboxKind
from agentrun.contract.object_meta import API_VERSION, ObjectMeta, OwnerReference
from agentrun.contract.run import AgentRun
from agentrun.decisions.approval_rules import Accepted, find_allowed_verdicts, judge_decision
from agentrun.decisions.decision_authority import Authority, find_authority
from agentrun.decisions.facts import NodeFacts
from agentrun.decisions.human_step import HumanStep, read_decision
from agentrun.engine.cluster_port import AlreadyExistsError, ConflictError, GoneError
from agentrun.engine.node_effects import NodeEffects
from agentrun.engine.observer import QuestionAsked
from agentrun.engine.propagate import give_up_repair, may_be_repaired
from agentrun.engine.run_inputs import ApprovalSeen
from agentrun.engine.run_memory import NodeMemory, RunMemory
from agentrun.engine.services import EngineServices
from agentrun.ledger.port import AnswerVerdict

_PREVIEW = 2000
_log = structlog.get_logger("agentrun.engine")


class InboxDesk:
    """Opens questions, closes them, and applies answers."""

    def __init__(self, services: EngineServices, effects: NodeEffects) -> None:
        self._services = services
        self._effects = effects

    async def before_write(self, run: RunMemory, node: NodeMemory) -> None:
        """Complete a question about a call's outcome with the record's version, before the status is stored."""
        inbox = node.status.inbox
        if inbox is None or not inbox.record_key or inbox.record_version:
            return
        view = await self._services.ledger.find_record(run.namespace, inbox.record_key)
        if view is None or view.owner_node_uid != node.uid:
            return
        await self._services.ledger.mark_inbox(run.namespace, inbox.record_key, node.uid, True)
        # Marking is a change of the record as well: the answer is about what stands after it.
        view = await self._services.ledger.find_record(run.namespace, inbox.record_key)
        if view is not None:
            noted = inbox.model_copy(update={"record_version": view.version})
            run.set_status(node, node.status.model_copy(update={"inbox": noted}))

    async def ask(self, run: RunMemory, node: NodeMemory) -> None:
        """Create the approval of the node's open question, unless it is there already."""
        inbox = node.status.inbox
        if inbox is None or node.asked == inbox.id or run.deleted:
            return
        request = self._request(run, node, inbox)
        asked = AgentApproval(
            metadata=ObjectMeta(
                name=approval_object_name(node.name, inbox.id),
                namespace=run.namespace,
                labels={RUN_UID_LABEL: run.uid},
                owner_references=(
                    OwnerReference(api_version=API_VERSION, kind="AgentRun", name=run.name, uid=run.uid),
                ),
            )
        )
        try:
            created = await self._services.cluster.create_approval(asked)
        except AlreadyExistsError as error:
            if not isinstance(error.existing, AgentApproval):
                raise
            created = error.existing
            if not _was_asked_here(run, created, request):
                # Somebody knew the name and was there first, perhaps with an answer to what was not asked yet.
                _log.warning("foreign_approval_deleted", name=created.metadata.name, namespace=run.namespace)
                await self._services.cluster.delete(created)
                created = await self._create_anew(asked)
        created = await self._state_question(created, request)
        run.approvals[created.metadata.name] = created
        if created.status is not None and created.status.state == "Refused":
            # The answer was refused, and who refused it died before asking anew.
            self._ask_anew(run, node, inbox)
            self._services.timers.set(run.key, node.path, self._services.now())
            return
        if created.spec.decision is not None:
            # Answered before a former leader could hear it, and known now: the watch tells nothing new of it any more.
            run.inputs.append(ApprovalSeen(created))
            self._services.timers.set(run.key, node.path, self._services.now())
        node.asked = inbox.id
        asks = QuestionAsked(run.run, node.path, inbox.kind, created.metadata.name, node.status.message)
        self._services.observer.note(asks)

    async def _create_anew(self, asked: AgentApproval) -> AgentApproval:
        try:
            return await self._services.cluster.create_approval(asked)
        except AlreadyExistsError as error:
            raise ConflictError(f"{error}: it is deleted, and its finalizers keep it") from error

    async def _state_question(self, approval: AgentApproval, asked: ApprovalRequest) -> AgentApproval:
        """Have the question stand in the approval, with the verdicts that count now."""
        status = approval.status or AgentApprovalStatus()
        stands = status.request
        if stands is not None:
            # Who may say what is a setting, and may have been another one when the question was asked.
            if status.state != "Open" or approval.spec.decision is not None or stands.allowed == asked.allowed:
                return approval
            asked = stands.model_copy(update={"allowed": asked.allowed, "question": asked.question})
        status = status.model_copy(update={"request": asked})
        try:
            stored = await self._services.cluster.replace_status(approval.model_copy(update={"status": status}))
        except (GoneError, ConflictError):
            if stands is None:
                raise
            # Answered or deleted meanwhile: the watch brings that here.
            return approval
        return stored if isinstance(stored, AgentApproval) else approval

    async def close(self, run: RunMemory, node: NodeMemory) -> None:
        """Note on the approval of a question that is over how it ended, if nobody's decision was applied to it."""
        inbox_id, node.closed_inbox = node.closed_inbox, ""
        key = node.closed_record_key
        node.closed_record_key = ""
        if key:
            await self._services.ledger.mark_inbox(run.namespace, key, node.uid, False)
        approval = run.approvals.get(approval_object_name(node.name, inbox_id))
        if approval is None or (approval.status and approval.status.state != "Open"):
            return
        state = "Expired" if node.status.reason == "Expired" else "Withdrawn"
        await self._note(run, approval, state, node.status.message)

    async def answer(self, run: RunMemory, node: NodeMemory, facts: NodeFacts, approval: AgentApproval) -> None:
        """Apply a decision, or refuse it with the reason."""
        decision = approval.spec.decision
        request = approval.status.request if approval.status else None
        if request is None or approval.status is None or approval.status.state != "Open":
            return
        if approval.metadata.name != approval_object_name(node.name, request.inbox_id):
            # Another question's object: somebody has written this question into it.
            _log.warning("misplaced_question_ignored", name=approval.metadata.name, namespace=run.namespace)
            return
        inbox = node.status.inbox
        if decision is not None:
            approval = await self._note_verified(approval, inbox.params_digest if inbox else request.params_digest)
        if request.inbox_id in node.status.decided:
            # Applied before; noting it did not come through. What stands in the spec may have been written since then.
            verdict = run.applied_verdicts.get(approval.metadata.name)
            await self._note(run, approval, "Applied", node.status.message, verdict)
            return
        if decision is None:
            if inbox is None or inbox.id != request.inbox_id:
                await self._note(run, approval, "Withdrawn", "the question is not open any more")
            return
        authority = self._authority(verified=bool(approval.status and approval.status.verified))
        judged = judge_decision(decision, request.inbox_id, inbox, facts.run.now, authority)
        problem = self._misfit(facts, approval) if isinstance(judged, Accepted) else judged.message
        if problem or inbox is None:
            await self._note(run, approval, "Refused", problem, decision.verdict)
            if inbox is not None and inbox.id == request.inbox_id:
                self._ask_anew(run, node, inbox)
            return
        step = read_decision(facts, inbox, decision)
        await self._apply(run, node, inbox, step, approval)

    async def _apply(
        self, run: RunMemory, node: NodeMemory, inbox: Inbox, step: HumanStep, approval: AgentApproval
    ) -> None:
        decision = approval.spec.decision
        move = step.move
        if step.answer is not None and decision is not None:
            verdict = await self._services.ledger.answer_record(
                run.namespace,
                step.answer.key,
                step.answer.version,
                step.answer.effect,
                decision.result,
                decision.verdict is Verdict.RESOLVE,
            )
            if verdict is AnswerVerdict.MOVED and step.if_record_moved is not None:
                move = step.if_record_moved
        if step.retry_run:
            await self._retry_run(run, node, approval)
        if move is not None:
            self._effects.move(run, node, move)
            node.closed_inbox = ""
        elif inbox.kind is InboxKind.DEAD:
            held_open = may_be_repaired(run, node) and not step.retry_run
            decided = (*node.status.decided, inbox.id)[-32:]
            run.set_status(node, node.status.model_copy(update={"inbox": None, "decided": decided}))
            if held_open:
                run.aborting = run.aborting or node.path
                give_up_repair(run, node)
        if inbox.record_key:
            await self._services.ledger.mark_inbox(run.namespace, inbox.record_key, node.uid, False)
        node.closed_record_key = ""
        run.applied_approvals.append((approval, move.message if move else ""))
        if decision is not None:
            run.applied_verdicts[approval.metadata.name] = decision.verdict

    async def note_applied(self, run: RunMemory) -> None:
        """After the nodes are stored: note on the approvals that their decisions were applied."""
        applied, run.applied_approvals = run.applied_approvals, []
        for approval, message in applied:
            await self._note(run, approval, "Applied", message, run.applied_verdicts.get(approval.metadata.name))

    async def _note(
        self, run: RunMemory, approval: AgentApproval, state: str, message: str, verdict: Verdict | None = None
    ) -> None:
        if run.deleted:
            return
        said = {"state": state, "message": cut_text(message, 1024), "applied_at": self._services.now()}
        status = (approval.status or AgentApprovalStatus()).model_copy(update={**said, "verdict": verdict})
        try:
            stored = await self._services.cluster.replace_status(approval.model_copy(update={"status": status}))
        except (GoneError, ConflictError):
            # Gone: nobody asks any more. Changed: the watch brings it back here.
            return
        if isinstance(stored, AgentApproval):
            run.approvals[stored.metadata.name] = stored

    def _ask_anew(self, run: RunMemory, node: NodeMemory, inbox: Inbox) -> None:
        number = node.status.questions + 1
        again = inbox.model_copy(update={"id": f"{inbox.kind.lower()}-{number}"})
        run.set_status(node, node.status.model_copy(update={"inbox": again, "questions": number}))

    async def _note_verified(self, approval: AgentApproval, params_digest: str) -> AgentApproval:
        verified = await self._services.verifier.is_verified(approval, params_digest)
        status = approval.status or AgentApprovalStatus()
        return approval.model_copy(update={"status": status.model_copy(update={"verified": verified})})

    def _authority(self, *, verified: bool) -> Authority:
        return find_authority(self._services.settings.unverified_decisions, verified=verified)

    def _misfit(self, facts: NodeFacts, approval: AgentApproval) -> str:
        decision = approval.spec.decision
        if decision is None or decision.verdict is not Verdict.RESOLVE:
            return ""
        if facts.tool is None or facts.tool.result is None:
            return ""
        problems = facts.judge(facts.tool.result.schema_, decision.result)
        return "; ".join(f"result{'.' if p.path else ''}{p.path}: {p.message}" for p in problems)

    def _request(self, run: RunMemory, node: NodeMemory, inbox: Inbox) -> ApprovalRequest:
        call = node.status.call
        # Whoever reads the question sees what the best proven answer to it may say.
        authority = self._authority(verified=self._services.verifier.can_verify())
        return ApprovalRequest(
            run=node.spec.run,
            node=node.path,
            node_uid=node.uid,
            inbox_id=inbox.id,
            kind=inbox.kind,
            intent=run.run.spec.intent,
            question=_question(node, inbox, authority),
            tool=call.tool.name if call else node.spec.node.tool or "",
            params_digest=inbox.params_digest,
            params_preview=cut_text(canonical_json(call.params), _PREVIEW) if call else "",
            context=f"agentnode/{node.name}",
            unknown_outcome=inbox.unknown_outcome,
            allowed=find_allowed_verdicts(inbox, authority),
            asked_at=inbox.asked_at,
            expires_at=inbox.expires_at,
        )

    async def _retry_run(self, run: RunMemory, node: NodeMemory, approval: AgentApproval) -> None:
        spec = run.run.spec
        again = AgentRun(
            metadata=ObjectMeta(
                name=retry_run_name(run.name, run.uid, node.path, node.status.questions), namespace=run.namespace
            ),
            spec=spec.model_copy(
                update={
                    "retry_of": run.name,
                    "cancel": None,
                    "suspend": None,
                    "rerun_token": f"{approval.metadata.uid}"[:64],
                }
            ),
        )
        try:
            await self._services.cluster.create_run(again)
        except AlreadyExistsError:
            # This very decision was applied before a crash: no other one has this name.
            return


def _was_asked_here(run: RunMemory, found: AgentApproval, request: ApprovalRequest) -> bool:
    """Tell whether a former try created this object for this very question, and nobody has answered it too early."""
    owners = {owner.uid for owner in found.metadata.owner_references}
    if run.uid not in owners or found.metadata.labels.get(RUN_UID_LABEL) != run.uid:
        return False
    stands = found.status.request if found.status else None
    if stands is None:
        return found.spec.decision is None
    asked = (request.run.uid, request.node, request.inbox_id, request.params_digest)
    return (stands.run.uid, stands.node, stands.inbox_id, stands.params_digest) == asked


def _question(node: NodeMemory, inbox: Inbox, authority: Authority) -> str:
    status = node.status
    match inbox.kind:
        case InboxKind.CALL:
            asked = status.message if node.spec.node.approval else f"may this call be made? {status.message}"
        case InboxKind.DUPLICATE:
            asked = f"{status.message}: is it to be made again?"
        case InboxKind.GRANT:
            asked = f"all retries are spent ({status.message}): one more attempt?"
        case InboxKind.QUARANTINE | InboxKind.DEAD:
            asked = f"{status.reason}: {status.message}"
        case _:
            assert_never(inbox.kind)
    says_more = authority is Authority.EVERYTHING
    if inbox.unknown_outcome and says_more:
        asked += " (nobody knows whether the call was executed: find out, and say effect: NotExecuted or Executed)"
    elif inbox.unknown_outcome:
        asked += " (nobody knows whether the call was executed)"
    if inbox.executed:
        asked += " (the call was executed, its result is no use)"
    if not says_more and inbox.kind in (InboxKind.QUARANTINE, InboxKind.DEAD):
        asked += " (without the admission webhook it can only be given up, and nothing be said about what happened)"
    if status.raw_output:
        asked += f"\n{status.raw_output}"
    return cut_text(asked, 4000)
