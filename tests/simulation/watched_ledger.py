"""The ledger of a history, with somebody beside it who writes down what it grants and judges each of its steps.

Made by ``simulation.one_history``. Judges by the ledger's state before and after a step, never by what the step itself
says of it. It changes nothing, but lets some orders arrive a second time, late, as a client's repetition after a lost
answer does.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence

from agentrun.contract.node import AgentNode
from agentrun.contract.orders import Amount, AttemptOutcome, Order, OrderKind
from agentrun.ledger.memory_ledger import MemoryLedger
from agentrun.ledger.port import (
    Claim,
    ClaimAnswer,
    ClaimVerdict,
    CommitVerdict,
    Delivery,
    DispatchAnswer,
    HeartbeatAnswer,
    RestoredNode,
    SlotLimit,
    WorkerIdentity,
)
from simulation import invariants
from simulation.shelf import CONCURRENCY

_ECHOES = 0.1
"""How many of the orders arrive a second time."""
_ECHO_AFTER = (0.05, 1.0, 5.0, 20.0)
"""Virtual seconds."""


class WatchedLedger(MemoryLedger):
    """The ledger in memory, watched."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        check: Callable[..., None],
        find_node: Callable[[str, str], AgentNode | None],
        chance: random.Random,
    ) -> None:
        """``check`` takes an invariant and what it judges; ``find_node`` gives (run uid, node uid) as stored."""
        super().__init__(now_ms)
        self._chance = chance
        self._check = check
        self._find_stored = find_node
        self._newest_epoch = 0
        self._claims: Counter[str] = Counter()
        """By node: how often it was claimed for a call."""
        self._tokens: set[str] = set()
        self._prices: dict[str, int] = {}
        self._emptied = False

    def lose_everything(self) -> None:
        """Forget all data; what was granted was granted all the same."""
        super().lose_everything()
        # Only what the resources tell of is known to the next leader.
        self._newest_epoch = 0
        self._emptied = True

    # --- epochs and orders

    async def take_epoch(self, seen: int) -> int:
        """Return a new epoch."""
        taken = await super().take_epoch(seen)
        self._check(invariants.epochs_only_rise, max(self._newest_epoch, seen), taken)
        self._newest_epoch = max(self._newest_epoch, taken)
        return taken

    async def dispatch(
        self, order: Order, limits: Sequence[SlotLimit], node_budget: Amount | None, sending: int = 0
    ) -> DispatchAnswer:
        """Send an order."""
        if self._chance.random() < _ECHOES:
            loop, after = asyncio.get_running_loop(), self._chance.choice(_ECHO_AFTER)
            loop.call_later(after, self._dispatch, order, tuple(limits), node_budget, sending)
        return await super().dispatch(order, limits, node_budget, sending)

    def _dispatch(
        self, order: Order, limits: tuple[SlotLimit, ...], budget: Amount | None, sending: int
    ) -> DispatchAnswer:
        node = self.space(order.namespace).node(order.node_uid)
        before, newest = node.seq, self._newest_epoch
        answer = super()._dispatch(order, limits, budget, sending)
        if answer.refusal is None:
            self._check(invariants.orders_go_out_under_the_newest_epoch, order.request_id, order.epoch, newest)
            self._check(invariants.orders_of_a_node_only_count_up, order.request_id, before, node.seq)
            stored = self._find_stored(order.run_uid, order.node_uid)
            if stored is not None:
                # Of an object that somebody deleted nothing can be on record.
                self._check(invariants.a_once_order_is_on_record_before_it_goes_out, order, stored.status)
        return answer

    async def restore_node(self, node: RestoredNode) -> None:
        """Put back what the resources prove."""
        await super().restore_node(node)
        self._judge_bill(node.namespace, node.node_uid)

    # --- claims

    async def claim(self, worker: WorkerIdentity, delivery: Delivery, token: str) -> ClaimAnswer:
        """Pass the gate."""
        answer = await super().claim(worker, delivery, token)
        if answer.verdict is ClaimVerdict.EXECUTE and token not in self._tokens:
            order = delivery.order
            self._tokens.add(token)
            self._claims[order.node_uid] += 1
            self._prices[order.node_uid] = max(self._prices.get(order.node_uid, 0), order.cost.micros)
            most = CONCURRENCY.get(order.tool)
            if most is not None:
                at_work = self._count_calls(order.namespace, order.tool)
                self._check(invariants.slots_are_never_exceeded, f"calls of {order.tool}", at_work, most)
        return answer

    async def heartbeat(self, worker: WorkerIdentity, claim: Claim) -> HeartbeatAnswer:
        """Extend a claim."""
        stood = self._stands(claim)
        answer = await super().heartbeat(worker, claim)
        if not answer.fenced:
            self._check(invariants.only_the_standing_claim_is_kept_alive, claim.order.request_id, stood)
        return answer

    async def commit(self, claim: Claim, outcome: AttemptOutcome) -> CommitVerdict:
        """End an attempt."""
        order = claim.order
        space = self.space(order.namespace)
        record = space.record(order.record.key)
        again = space.node(order.node_uid).done.get(order.seq) == claim.token
        stood, its = self._stands(claim), record is None or record.token == claim.token
        verdict = await super().commit(claim, outcome)
        if verdict is CommitVerdict.COMMITTED and not again:
            self._check(invariants.only_the_standing_claim_commits, order.request_id, stood, its)
        self._judge_bill(order.namespace, order.node_uid)
        return verdict

    def _count_calls(self, namespace: str, tool: str) -> int:
        # Counted anew each time, by who is at work and not by who holds a slot.
        space = self.space(namespace)
        return sum(
            node.state == "claimed"
            and node.kind is OrderKind.EXECUTE
            and node.order is not None
            and node.order.tool == tool
            and space.lease_lives(node.lease)
            for node in space.nodes.values()
        )

    def _stands(self, claim: Claim) -> bool:
        node = self.space(claim.order.namespace).node(claim.order.node_uid)
        return node.state == "claimed" and node.seq == claim.order.seq and node.token == claim.token

    def _judge_bill(self, namespace: str, node_uid: str) -> None:
        if self._emptied:
            # Estimates of what was under way then stay beside what came late: nobody knows that they are the same.
            return
        settled = self.space(namespace).node(node_uid).settled["micros"]
        claims, price = self._claims[node_uid], self._prices.get(node_uid, 0)
        self._check(invariants.nothing_is_billed_twice, node_uid, settled, claims, price)
