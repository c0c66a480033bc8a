"""Keeps a claim alive while its call is at work, and ends the call when it may not go on.

Called by the order's handler, as a task of its own beside the call. It never touches the call itself: it sets the
window's events, which every executor obeys.
"""

from __future__ import annotations

import asyncio
import math

import structlog

from agentrun.contract.failures import Reason
from agentrun.contract.orders import OrderKind
from agentrun.ledger.port import Claim, LedgerUnavailableError, WorkerIdentity, WorkerLedger
from agentrun_worker.attempt import CallWindow
from agentrun_worker.observer import LedgerAnswered, LedgerUnavailable, WorkerObserver
from agentrun_worker.worker_settings import WorkerSettings

_USABLE_PART = 0.9
"""A tenth of every lease is kept for the way from the last check to the effect, and for a call to be stopped."""
_log = structlog.get_logger("agentrun.worker")


def usable_seconds(lease_ms: int) -> float:
    """Return how long a lease may be worked under, counted from before it was asked for."""
    return lease_ms / 1000 * _USABLE_PART


class ClaimKeeper:
    """Sends heartbeats for claims."""

    def __init__(
        self, ledger: WorkerLedger, identity: WorkerIdentity, settings: WorkerSettings, observer: WorkerObserver
    ) -> None:
        self._observer = observer
        self._ledger = ledger
        self._identity = identity
        self._settings = settings

    async def keep(self, claim: Claim, window: CallWindow) -> None:
        """Extend the claim until cancelled, or until it is lost.

        Lost is a claim that the ledger says is another's, and one whose lease has run out by this worker's own clock:
        the ledger may have given it away by then, whether or not it could say so.
        """
        loop = asyncio.get_running_loop()
        pause = self._settings.heartbeat.total_seconds()
        lease_ends = window.send_before
        beat_at = loop.time() + pause
        interrupt_at = math.inf
        while True:
            await asyncio.sleep(max(0.0, min(beat_at, lease_ends, interrupt_at) - loop.time()))
            now = loop.time()
            if now >= lease_ends:
                _log.warning("claim_ran_out", request=claim.order.request_id)
                window.interrupt(Reason.HEARTBEAT_LOST, "the claim could not be renewed in time")
                return
            if now >= interrupt_at:
                window.interrupt(Reason.CANCELLED, "the run was cancelled and the grace period has passed")
                # It goes on beating: what the call did is still to be committed.
                interrupt_at = math.inf
            if now < beat_at:
                continue
            beat_at = now + pause
            try:
                async with asyncio.timeout(lease_ends - now):
                    answer = await self._ledger.heartbeat(self._identity, claim)
            except (LedgerUnavailableError, TimeoutError) as error:
                self._observer.note(LedgerUnavailable())
                _log.warning("heartbeat_failed", request=claim.order.request_id, cause=str(error))
                continue
            self._observer.note(LedgerAnswered())
            if answer.fenced:
                _log.warning("claim_fenced", request=claim.order.request_id)
                window.interrupt(Reason.HEARTBEAT_LOST, "the claim was given up by the scheduler")
                return
            lease_ends = now + usable_seconds(answer.lease_ms)
            # A recovery tells the truth about a cancelled run as well.
            if answer.cancelled and claim.order.kind is OrderKind.EXECUTE and not window.stop_requested.is_set():
                _log.info("cancel_requested", request=claim.order.request_id)
                window.stop_requested.set()
                interrupt_at = loop.time() + self._settings.cancel_grace.total_seconds()
