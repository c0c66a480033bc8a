"""The keyed queues of all runs: inputs in, one turn at a time for each run, backoff after a failure.

Filled by the scheduler's loops; turns are taken by :class:`~agentrun.engine.run_turn.RunTurn`. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta

import structlog

from agentrun.engine.clock import Entropy
from agentrun.engine.cluster_port import ClusterUnavailableError, ConflictError, GoneError
from agentrun.engine.observer import Observer, TurnEnded, TurnEnding, Unobserved
from agentrun.engine.run_inputs import RunInput
from agentrun.engine.run_key import RunKey
from agentrun.engine.run_memory import RunMemory
from agentrun.engine.services import EpochLostError
from agentrun.ledger.port import LedgerUnavailableError

_FIRST_PAUSE = timedelta(milliseconds=100)
_LONGEST_PAUSE = timedelta(seconds=10)
_PASSING = (LedgerUnavailableError, ClusterUnavailableError, ConflictError, GoneError)
"""What goes away by itself: the turn is taken again."""

_log = structlog.get_logger("agentrun.engine")


class RunQueues:
    """Holds the memory of every live run and has turns taken while inputs stand."""

    def __init__(
        self,
        take: Callable[[RunMemory], Awaitable[None]],
        after: Callable[[RunMemory], None],
        entropy: Entropy,
        width: int,
        observer: Observer | None = None,
        on_ledger_silence: Callable[[LedgerUnavailableError], None] = lambda error: None,
    ) -> None:
        """``take`` takes one turn; ``after`` is told of each turn that went well; ``width`` turns run at once.

        ``on_ledger_silence`` is told whenever a turn failed because the ledger did not answer.
        """
        self._on_ledger_silence = on_ledger_silence
        self._observer = observer or Unobserved()
        self._take = take
        self._after = after
        self._entropy = entropy
        self._room = asyncio.Semaphore(width)
        self._runs: dict[RunKey, RunMemory] = {}
        self._turns: dict[RunKey, asyncio.Task[None]] = {}
        self._closing = False
        self.lost: EpochLostError | None = None
        """Set when a turn found that another scheduler leads."""
        self.failed_turns_total = 0
        """Turns that failed for a cause that does not pass by itself: bugs."""
        self.stopped = asyncio.Event()
        """Set when no further turn will be taken."""

    def __iter__(self) -> Iterator[RunMemory]:
        """Give every live run."""
        return iter(self._runs.values())

    def find(self, key: RunKey) -> RunMemory | None:
        """Return the memory of a live run."""
        return self._runs.get(key)

    def add(self, run: RunMemory) -> None:
        """Take a run in."""
        self._runs[run.key] = run

    def drop(self, key: RunKey) -> None:
        """Forget a run, unless something has happened to it meanwhile."""
        run = self._runs.get(key)
        if run is not None and not run.inputs:
            del self._runs[key]

    def post(self, key: RunKey, happened: RunInput) -> None:
        """Put an input into the run's queue; without such a run it is dropped."""
        run = self._runs.get(key)
        if run is None:
            return
        run.inputs.append(happened)
        if key not in self._turns and not self._closing:
            self._turns[key] = asyncio.get_running_loop().create_task(self._serve(run), name=f"turns of {key[1]}")

    async def close(self, within: timedelta) -> int:
        """Let turns under way end, for at most this long, and return how many were cut off; no further ones begin."""
        self._closing = True
        self.stopped.set()
        turns = list(self._turns.values())
        if not turns:
            return 0
        _, cut_off = await asyncio.wait(turns, timeout=within.total_seconds())
        for turn in turns:
            turn.cancel()
        await asyncio.gather(*turns, return_exceptions=True)
        return len(cut_off)

    async def _serve(self, run: RunMemory) -> None:
        failures = 0
        now = asyncio.get_running_loop().time
        try:
            while run.inputs or failures:
                began = now()
                try:
                    async with self._room:
                        began = now()
                        await self._take(run)
                except EpochLostError as error:
                    self.lost = error
                    self.stopped.set()
                    return
                except _PASSING as error:
                    failures += 1
                    if isinstance(error, LedgerUnavailableError):
                        self._on_ledger_silence(error)
                    self._observer.note(TurnEnded(TurnEnding.POSTPONED, now() - began))
                    self._tell_postponed(run, error, failures)
                except Exception:  # noqa: BLE001 - the loop's edge: counted, logged with its trace, tried again later
                    failures += 1
                    self.failed_turns_total += 1
                    self._observer.note(TurnEnded(TurnEnding.FAILED, now() - began))
                    _log.exception("turn_failed", run=run.name, namespace=run.namespace)
                else:
                    failures = 0
                    self._observer.note(TurnEnded(TurnEnding.DONE, now() - began))
                    self._after(run)
                if self._closing:
                    return
                if failures:
                    await self._pause(failures)
        finally:
            # No await stands between the last look at the inputs and this: whatever comes now starts new turns.
            self._turns.pop(run.key, None)

    @staticmethod
    def _tell_postponed(run: RunMemory, error: Exception, failures: int) -> None:
        said = {"run": run.name, "namespace": run.namespace, "cause": str(error), "failures": failures}
        if failures & (failures - 1) or isinstance(error, LedgerUnavailableError):
            # At growing distances; and that the ledger is away is told once, not for each run.
            _log.debug("turn_postponed", **said)
        else:
            _log.warning("turn_postponed", **said)

    async def _pause(self, failures: int) -> None:
        longest = min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), _LONGEST_PAUSE)
        pause = longest / 2 + longest / 2 * self._entropy.fraction()
        try:
            async with asyncio.timeout(pause.total_seconds()):
                await self.stopped.wait()
        except TimeoutError:
            return
