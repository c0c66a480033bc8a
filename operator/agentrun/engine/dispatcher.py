"""The dispatcher: one queue over all runs and namespaces, and the slots that decide who may go next.

It holds the candidates and the leader's own book of slots in use, and grants a candidate its turn when every limit has
room; the run's turn then sends the order, where the ledger has the last word. Late binding: what is granted is no more
than the pool can take soon, so priority decides until the last moment. Everything here is in memory, synchronous and
rebuilt from the nodes' phases.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from agentrun.contract.run import Priority
from agentrun.decisions.pools.pool_step import PoolDemand
from agentrun.decisions.pools.pool_wishes import PoolKey
from agentrun.decisions.priorities import effective_priority, next_rise
from agentrun.decisions.queue_order import NamespaceUse, QueuedNode, QueueKey, queue_key
from agentrun.decisions.run_waits import job_limit
from agentrun.engine.job_desk import is_job_line
from agentrun.engine.observer import QueueSurvey
from agentrun.engine.run_key import RunKey
from agentrun.engine.settings import SchedulerSettings
from agentrun.ledger.port import SlotLimit

_PARK = timedelta(milliseconds=500)
"""After the ledger refused a slot that the book thought free, the limit is left alone for this long."""
_GLOBAL = "global"
_NAMESPACE = "namespace"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that is ready to be sent."""

    run: RunKey
    path: str
    node: QueuedNode
    tool: str
    pool: str
    concurrency: int | None
    """The tool's own limit."""
    starts: bool = False
    """It has a Job, which is started when it is granted; its pool's workers have nothing to do with it."""


_Group = tuple[str, str, str]
"""(namespace, tool, pool): candidates of one group fit exactly when its first does."""


_ANY_USE = NamespaceUse()
"""Within a line all have the same namespace, whose use orders lines alone."""


_SPARE_ENTRIES = 64


class _Line:
    """The candidates of one group, in order. Joining, leaving and rising cost the logarithm of its length."""

    def __init__(self) -> None:
        self.members: dict[str, Candidate] = {}
        self._keys: dict[str, QueueKey] = {}
        self._heap: list[tuple[QueueKey, str]] = []
        """An entry that holds another key than the member has now is left over."""
        self._rises: list[tuple[datetime, str]] = []
        """When waiting raises a member next."""

    def join(self, candidate: Candidate, now: datetime) -> None:
        """Take a candidate in."""
        self.members[candidate.node.uid] = candidate
        self._place(candidate.node, now)

    def leave(self, uid: str) -> None:
        """Let a candidate go."""
        del self.members[uid], self._keys[uid]
        if len(self._heap) > 2 * len(self.members) + _SPARE_ENTRIES:
            self._heap = [(key, uid) for uid, key in self._keys.items()]
            heapq.heapify(self._heap)

    def first(self, now: datetime) -> Candidate:
        """Return who goes first; the line must not be empty."""
        while self._rises and self._rises[0][0] < now:
            _, uid = heapq.heappop(self._rises)
            if uid in self.members:
                self._place(self.members[uid].node, now)
        while self._keys.get(self._heap[0][1]) is not self._heap[0][0]:
            heapq.heappop(self._heap)
        return self.members[self._heap[0][1]]

    def sort_anew(self, now: datetime) -> None:
        """Put all in order as of now, whatever they waited before."""
        self._heap, self._rises = [], []
        for candidate in self.members.values():
            self._place(candidate.node, now)

    def _place(self, node: QueuedNode, now: datetime) -> None:
        key = self._keys[node.uid] = queue_key(node, _ANY_USE, now)
        heapq.heappush(self._heap, (key, node.uid))
        rise = next_rise(node.priority, max(now - node.queued_since, timedelta(0)))
        if rise is not None:
            heapq.heappush(self._rises, (node.queued_since + rise, node.uid))


@dataclass(slots=True)
class _SlotBook:
    """Who holds slots, by limit."""

    holders: dict[str, Candidate] = field(default_factory=dict)
    total: int = 0
    by_namespace: Counter[str] = field(default_factory=Counter)
    by_tool: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_pool: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_priority: Counter[Priority] = field(default_factory=Counter)
    by_pool_priority: Counter[tuple[str, str, Priority]] = field(default_factory=Counter)

    def change(self, candidate: Candidate, by: int) -> None:
        namespace = candidate.run[0]
        priority = candidate.node.priority
        self.total += by
        self.by_namespace[namespace] += by
        self.by_tool[namespace, candidate.tool] += by
        self.by_pool[namespace, candidate.pool] += by
        self.by_priority[priority] += by
        self.by_pool_priority[namespace, candidate.pool, priority] += by


class Dispatcher:
    """Grants candidates their turn in order of priority, share, deadline and age, as far as limits allow."""

    def __init__(self, settings: SchedulerSettings, grant: Callable[[RunKey, str], None]) -> None:
        self._settings = settings
        self._grant = grant
        self._groups: dict[_Group, _Line] = {}
        self._waiting: dict[str, Candidate] = {}
        self._book = _SlotBook()
        self._starting: dict[str, tuple[str, str]] = {}
        """By node: (namespace, tool) of those that hold slots while their Job starts."""
        self._pool_slots: dict[tuple[str, str], int] = {}
        self.pool_notes: Mapping[PoolKey, str] = {}
        """What is known about pools that the operator itself keeps, and why their workers do not start."""
        self._parked: dict[tuple[str, str], datetime] = {}
        self._looked_at = datetime.min.replace(tzinfo=UTC)
        self._retries: Counter[tuple[str, str]] = Counter()

    # --- candidates

    def offer(self, candidate: Candidate, now: datetime) -> None:
        """Take a candidate in (again). Costs the logarithm of the line's length."""
        uid = candidate.node.uid
        if uid in self._waiting or uid in self._book.holders:
            return
        group = _group_of(candidate)
        line = self._groups.get(group)
        if line is None:
            line = self._groups[group] = _Line()
        self._waiting[uid] = candidate
        line.join(candidate, now)

    def drop(self, uid: str) -> None:
        """Forget a candidate that does not want to be sent any more; its slots are freed as well."""
        candidate = self._waiting.pop(uid, None)
        if candidate is not None:
            self._leave_line(_group_of(candidate), uid)
        self.free(uid)

    def hold(self, candidate: Candidate) -> None:
        """Note that a node holds slots already (found at work after a restart)."""
        if candidate.node.uid not in self._book.holders:
            self._book.holders[candidate.node.uid] = candidate
            self._book.change(candidate, 1)

    def free(self, uid: str) -> None:
        """Give back what a node held."""
        self._starting.pop(uid, None)
        candidate = self._book.holders.pop(uid, None)
        if candidate is not None:
            self._book.change(candidate, -1)

    def note_sent(self, uid: str) -> None:
        """Note that the order of a node is out: its Job has started."""
        self._starting.pop(uid, None)

    def refuse(self, uid: str, limit: str, now: datetime) -> None:
        """The ledger refused a slot of this limit: put the candidate back and leave the limit alone for a moment."""
        candidate = self._book.holders.get(uid)
        if candidate is None:
            return
        self.free(uid)
        self._parked[candidate.run[0], limit] = now + _PARK
        self.offer(candidate, now)

    # --- limits

    def set_pool_slots(self, namespace: str, pool: str, slots: int) -> bool:
        """Note what the live workers of a pool announce together; return whether that is news."""
        changed = self._pool_slots.get((namespace, pool)) != slots
        self._pool_slots[namespace, pool] = slots
        return changed

    def announced(self, namespace: str, pool: str) -> int | None:
        """Return the slots of a pool's live workers, as last looked at; None: nobody has looked yet."""
        return self._pool_slots.get((namespace, pool))

    def has_waiting(self) -> bool:
        """Tell whether a candidate waits at all."""
        return bool(self._waiting)

    def is_short_of_slots(self, unreleased: int) -> bool:
        """Tell whether the ledger may find no global slot while so many free ones are still taken there."""
        return self._book.total + len(self._waiting) + unreleased > self._settings.global_limit

    def has_unknown_pool(self) -> bool:
        """Tell whether a candidate waits for a pool whose slots have never been looked at."""
        return any(
            (namespace, pool) not in self._pool_slots for namespace, _, pool in self._groups if not is_job_line(pool)
        )

    def pools(self) -> set[tuple[str, str]]:
        """Return the (namespace, pool) pairs that candidates wait for or hold slots of."""
        waiting = {(namespace, pool) for namespace, _, pool in self._groups}
        found = waiting | {key for key, count in self._book.by_pool.items() if count}
        return {(namespace, pool) for namespace, pool in found if not is_job_line(pool)}

    def backlog(self, namespace: str, tool: str) -> int:
        """Return how many nodes wait for the tool: in line, or for their next attempt."""
        in_line = sum(
            len(line.members) for (space, name, _), line in self._groups.items() if (space, name) == (namespace, tool)
        )
        return in_line + self._retries[namespace, tool]

    def count_retry(self, namespace: str, tool: str, by: int) -> None:
        """Note that a node began (1) or ended (-1) to wait for its next attempt."""
        self._retries[namespace, tool] += by

    def limits_of(self, candidate: Candidate) -> tuple[SlotLimit, ...]:
        """Return the limits the ledger is to enforce for this order."""
        limits = [SlotLimit(_GLOBAL, self._settings.global_limit)]
        if self._settings.namespace_limit is not None:
            limits.append(SlotLimit(_NAMESPACE, self._settings.namespace_limit))
        if candidate.concurrency is not None:
            limits.append(SlotLimit(f"tool:{candidate.tool}", candidate.concurrency))
        return tuple(limits)

    def waiting_for(self, uid: str, now: datetime) -> str:
        """Return which limit keeps a candidate waiting, and as what if waiting has raised it; or an empty text."""
        candidate = self._waiting.get(uid)
        if candidate is None:
            return ""
        blocked_by = self._blocked_by(candidate, now)
        risen = effective_priority(candidate.node.priority, max(now - candidate.node.queued_since, timedelta(0)))
        return f"{blocked_by} as {risen}" if blocked_by and risen is not candidate.node.priority else blocked_by

    def find_holder(self, uid: str) -> Candidate | None:
        """Return the candidate that holds slots for this node."""
        return self._book.holders.get(uid)

    def survey(self, now: datetime) -> QueueSurvey:
        """Return how long the queue is, how old, and which slots are taken."""
        oldest: dict[tuple[str, str], timedelta] = {}
        for candidate in self._waiting.values():
            pool = (candidate.run[0], candidate.pool)
            waited = max(now - candidate.node.queued_since, timedelta(0))
            oldest[pool] = max(oldest.get(pool, waited), waited)
        places = (
            (waiting.run[0], waiting.pool, waiting.tool, waiting.node.priority) for waiting in self._waiting.values()
        )
        in_use = {pool: count for pool, count in self._book.by_pool.items() if count}
        return QueueSurvey(Counter(places), oldest, in_use, dict(self._pool_slots))

    def demand(self) -> dict[PoolKey, PoolDemand]:
        """Return which calls want each pool's workers. Costs a little for each tool, however long the lines."""
        waiting: dict[PoolKey, Counter[str]] = {}
        for (namespace, tool, pool), line in self._groups.items():
            if not is_job_line(pool):
                waiting.setdefault(PoolKey(namespace, pool), Counter())[tool] += len(line.members)
        in_use = {
            PoolKey(*key): count for key, count in self._book.by_pool.items() if count and not is_job_line(key[1])
        }
        return {key: PoolDemand(waiting.get(key, {}), in_use.get(key, 0)) for key in waiting.keys() | in_use.keys()}

    # --- the one loop

    def pump(self, now: datetime) -> datetime | None:
        """Grant as many candidates as fit, best first; return when to look again although nothing happened."""
        self._keep_up(now)
        heads = [(*self._head(line, now), group) for group, line in self._groups.items()]
        heapq.heapify(heads)
        while heads:
            _, uid, group = heapq.heappop(heads)
            candidate = self._waiting[uid]
            # The first of a group speaks for all of it: they share every limit but reserved slots, which order them.
            if self._blocked_by(candidate, now):
                continue
            self._take(group, candidate)
            self._grant(candidate.run, candidate.path)
            if group in self._groups:
                heapq.heappush(heads, (*self._head(self._groups[group], now), group))
        return min(self._parked.values(), default=None)

    def _take(self, group: _Group, candidate: Candidate) -> None:
        uid = candidate.node.uid
        del self._waiting[uid]
        self._leave_line(group, uid)
        self._book.holders[uid] = candidate
        self._book.change(candidate, 1)
        if candidate.starts:
            self._starting[uid] = candidate.run[0], candidate.tool

    def _leave_line(self, group: _Group, uid: str) -> None:
        line = self._groups[group]
        line.leave(uid)
        if not line.members:
            del self._groups[group]

    def _head(self, line: _Line, now: datetime) -> tuple[QueueKey, str]:
        """Return the first of a line, and its place among all lines as it is now."""
        candidate = line.first(now)
        return self._key(candidate, now), candidate.node.uid

    def _key(self, candidate: Candidate, now: datetime) -> QueueKey:
        namespace = candidate.run[0]
        use = NamespaceUse(self._book.by_namespace[namespace], self._settings.policies.find(namespace).share)
        return queue_key(candidate.node, use, now)

    def _keep_up(self, now: datetime) -> None:
        if now < self._looked_at:
            # The clock was set back: nobody has waited as long as it seemed.
            for line in self._groups.values():
                line.sort_anew(now)
        self._looked_at = now
        self._parked = {limit: until for limit, until in self._parked.items() if until > now}

    def _blocked_by(self, candidate: Candidate, now: datetime) -> str:
        return next(self._blocks(candidate, now), "")

    def _blocks(self, candidate: Candidate, now: datetime) -> Iterator[str]:
        namespace, book, settings = candidate.run[0], self._book, self._settings
        priority = candidate.node.priority
        for limit in (_GLOBAL, _NAMESPACE, f"tool:{candidate.tool}"):
            # Also one whose moment has just passed: nothing was granted yet since the ledger refused it.
            if (namespace, limit) in self._parked:
                yield f"Slots({limit})"
        reserved = self._reserved_above(priority, book.by_priority)
        if book.total >= settings.global_limit - reserved:
            yield "Slots(global)"
        if settings.namespace_limit is not None and book.by_namespace[namespace] >= settings.namespace_limit:
            yield "Slots(namespace)"
        if candidate.concurrency is not None and book.by_tool[namespace, candidate.tool] >= candidate.concurrency:
            yield f"Slots(tool:{candidate.tool})"
        if candidate.starts:
            # Pods that do not start hold no more slots than these, whatever keeps them from it.
            starting = sum(place == (namespace, candidate.tool) for place in self._starting.values())
            if starting >= settings.jobs_starting:
                yield job_limit(candidate.tool)
            return
        announced = self._pool_slots.get((namespace, candidate.pool), 0)
        room = announced * (1 + settings.pool_prefetch)
        if settings.reserved_slots:
            in_pool = Counter({level: book.by_pool_priority[namespace, candidate.pool, level] for level in Priority})
            room -= min(self._reserved_above(priority, in_pool), announced)
        if book.by_pool[namespace, candidate.pool] >= room:
            yield f"Pool({candidate.pool})"

    def _reserved_above(self, priority: Priority, in_use: Counter[Priority]) -> int:
        return sum(
            max(0, slots - in_use[level])
            for level, slots in self._settings.reserved_slots.items()
            if str(level) < str(priority)
        )


def _group_of(candidate: Candidate) -> _Group:
    return candidate.run[0], candidate.tool, candidate.pool
