"""Both ledgers behind one set of helpers, on a clock that the test moves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

from agentrun.contract.orders import AttemptOutcome, Order, OrderKind, Report
from agentrun.ledger.memory_ledger import MemoryLedger
from agentrun.ledger.port import Claim, ClaimAnswer, ClaimVerdict, Delivery, Ledger, SlotLimit, WorkerIdentity
from agentrun.ledger.redis_connection import Durability, LedgerSettings
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.ledger.redis_worker_side import RedisWorkerSide
from agentrun.ledger.worker_users import worker_user_name
from support.orders import NAMESPACE, build_registration, build_worker

START_MS = 1_767_225_600_000
_CLOCK = """
local clock = {}
function clock.now_us() return tonumber(redis.call('GET', 'test:now')) * 1000 end
function clock.now_ms() return math.floor(clock.now_us() / 1000) end
function clock.up_ms() return 3600000 end
"""


class LedgerBench:
    """One ledger, its clock, and the steps that most tests begin with."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.now_ms = START_MS
        self._tokens = (f"token-{number}" for number in itertools.count(1))

    async def pass_time(self, milliseconds: int) -> None:
        """Move the ledger's clock."""
        self.now_ms += milliseconds

    async def close(self) -> None:
        """End the ledger."""
        await self.ledger.close()

    async def begin(self, uid: str = "run-1", **more: Any) -> None:
        """Open the ledger, take epoch 1 and admit a run."""
        await self.ledger.open([NAMESPACE])
        await self.ledger.admit_run(build_registration(uid, **more))

    async def take(self, worker: WorkerIdentity | None = None, count: int = 10) -> list[Delivery]:
        """Take what stands in the pool's streams."""
        found: list[Delivery] = []
        for _ in range(8):
            got = await self.ledger.take_orders(worker or build_worker(), count - len(found), 0)
            found.extend(got)
            if len(found) >= count:
                break
        return found

    async def send(self, order: Order, limits: Sequence[SlotLimit] = ()) -> Delivery:
        """Dispatch an order and take it."""
        answer = await self.ledger.dispatch(order, limits, None)
        assert answer.refusal is None, answer
        return next(one for one in await self.take() if one.order.node_uid == order.node_uid)

    async def gate(self, delivery: Delivery, worker: WorkerIdentity | None = None) -> tuple[ClaimAnswer, Claim]:
        """Ask the gate with a fresh token."""
        token = next(self._tokens)
        answer = await self.ledger.claim(worker or build_worker(), delivery, token)
        return answer, Claim(delivery.order, token, delivery.stream, delivery.entry_id)

    async def claim(self, order: Order, worker: WorkerIdentity | None = None) -> Claim:
        """Send an order and pass the gate with it."""
        answer, claim = await self.gate(await self.send(order), worker)
        assert answer.verdict in (ClaimVerdict.EXECUTE, ClaimVerdict.RECOVER), answer
        return claim

    async def execute(self, order: Order, outcome: AttemptOutcome) -> Claim:
        """Send, claim and commit."""
        claim = await self.claim(order)
        await self.ledger.commit(claim, outcome)
        return claim

    async def reports(self) -> list[Report]:
        """Read and acknowledge all reports."""
        found: list[Report] = []
        while True:
            got = await self.ledger.read_reports([NAMESPACE], "reader", 100, 1)
            if not got:
                return found
            found.extend(report for _, report in got)
            await self.ledger.acknowledge_reports(NAMESPACE, [entry for entry, _ in got])

    async def kinds(self) -> list[str]:
        """Return what has been reported since."""
        return [str(report.kind) for report in await self.reports()]

    async def find_waiters(self, key: str) -> list[str]:
        """Return the nodes in a record's line, in order."""
        assert isinstance(self.ledger, MemoryLedger)
        return list(self.ledger.space(NAMESPACE).waiters.get(key, ()))


def as_recovery(order: Order, seq: int) -> Order:
    """Return the recovery of an order."""
    return order.model_copy(update={"kind": OrderKind.RECOVER, "seq": seq, "request_id": f"recover-{seq}"})


class RedisBench(LedgerBench):
    """On a real server, whose scripts read the test's clock."""

    async def pass_time(self, milliseconds: int) -> None:
        """Move the clock that the scripts read."""
        await super().pass_time(milliseconds)
        ledger = self.ledger
        assert isinstance(ledger, RedisLedger | TwoUsersLedger)
        await ledger.connection.client.set("test:now", self.now_ms)

    async def find_waiters(self, key: str) -> list[str]:
        """Read the line."""
        ledger = self.ledger
        assert isinstance(ledger, RedisLedger | TwoUsersLedger)
        connection = ledger.connection
        found = await connection.client.lrange(connection.keys(NAMESPACE).waiters(key), 0, -1)
        return [uid.decode() if isinstance(uid, bytes) else uid for uid in found]


async def build_memory_bench() -> LedgerBench:
    """Return the ledger in memory."""
    times = {"now": START_MS - 3_600_000}
    ledger = MemoryLedger(lambda: times["now"])

    class MemoryBench(LedgerBench):
        async def pass_time(self, milliseconds: int) -> None:
            await super().pass_time(milliseconds)
            times["now"] = self.now_ms

    bench = MemoryBench(ledger)
    await bench.pass_time(0)
    return bench


class TwoUsersLedger:
    """A scheduler with the server's own user, and workers with that of their namespace."""

    def __init__(self, scheduler: RedisLedger, worker: RedisLedger) -> None:
        self.connection = scheduler.connection
        self._scheduler = scheduler
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker if hasattr(RedisWorkerSide, name) else self._scheduler, name)

    async def close(self) -> None:
        """Give both connections back."""
        await self._worker.close()
        await self._scheduler.close()


async def build_two_users_bench(url: str) -> LedgerBench:
    """Return the ledger on a server, where workers have the rights of workers alone."""
    settings = LedgerSettings(libraries={"clock": _CLOCK}, durability=Durability.REQUIRE)
    scheduler = RedisLedger.connect(url, settings)
    await scheduler.worker_users().ensure(NAMESPACE, ["secret"])
    user = worker_user_name(settings.install, NAMESPACE)
    # The test's clock stands beside what is the product's.
    await scheduler.connection.client.execute_command("ACL", "SETUSER", user, "%R~test:now")  # type: ignore[no-untyped-call]
    worker = RedisLedger.connect(url.replace("redis://", f"redis://{user}:secret@"), settings)
    bench = RedisBench(cast(Ledger, TwoUsersLedger(scheduler, worker)))
    await bench.pass_time(0)
    # Whether claims are on disk is what an operator finds out when it takes the lead.
    durable = int(await scheduler.connection.is_durable() or 0)
    await scheduler.connection.client.hset(scheduler.connection.keys("").meta, "durable", durable)
    return bench


async def build_redis_bench(url: str) -> LedgerBench:
    """Return the ledger on a server."""
    settings = LedgerSettings(libraries={"clock": _CLOCK}, durability=Durability.REQUIRE)
    bench = RedisBench(RedisLedger.connect(url, settings))
    await bench.pass_time(0)
    return bench
