"""The named instants at which a worker dies: where each one is, and what the ledger and the provider have seen by then.

Pure data, read by the cases. An instant is a point of the worker's diary, a command on its wire to the ledger, or a
moment of the provider's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from kills.bookings import Moment
from kills.diary import Fate
from kills.wire import At, Snag


class Reached(StrEnum):
    """How far the ledger has seen the order come."""

    UNCLAIMED = "Unclaimed"
    """No claim stands: nobody can have executed it."""
    CLAIMED = "Claimed"
    """A claim stands, and no outcome."""
    COMMITTED = "Committed"
    """The outcome is on record."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One instant of a worker's death."""

    step: str
    """Claim, execution, commit, acknowledge; heartbeat."""
    name: str
    reached: Reached
    booked: bool = False
    """The provider has booked, or does so without the worker."""
    fate: Fate = field(default_factory=Fate)
    snag: Snag | None = None
    moment: Moment | None = None
    books_late: bool = False
    """The provider books when the stopped worker goes on: whatever it was about to send is sent."""


_NOTHING, _OPEN, _ENDED = Reached.UNCLAIMED, Reached.CLAIMED, Reached.COMMITTED
_ORDER = b'"requestId"'
"""Stands in an answer that brings an order."""

CLAIM = (
    Instant("claim", "order on its way", _NOTHING, snag=Snag("take_orders", At.CARRIED_OUT, answer_holds=_ORDER)),
    Instant("claim", "order taken", _NOTHING, fate=Fate("take: answered")),
    Instant("claim", "definition not asked for", _NOTHING, fate=Fate("definition: called")),
    Instant("claim", "definition known", _NOTHING, fate=Fate("definition: answered")),
    Instant("claim", "claim not sent", _NOTHING, fate=Fate("claim: called")),
    Instant("claim", "claim sent, not arrived", _NOTHING, snag=Snag("claim", At.ARRIVES)),
    Instant("claim", "claimed, no reply", _OPEN, snag=Snag("claim", At.CARRIED_OUT)),
    Instant("claim", "claimed, half a reply", _OPEN, snag=Snag("claim", At.HALF_ANSWERED)),
    Instant("claim", "claimed, reply not acted on", _OPEN, fate=Fate("claim: answered")),
    Instant("claim", "claimed, reply lost, asked again", _OPEN, snag=Snag("claim", At.CARRIED_OUT, loses_first=True)),
)
EXECUTION = (
    Instant("execution", "request not built", _OPEN, fate=Fate("execute: called")),
    Instant("execution", "not connected", _OPEN, fate=Fate("connect: called")),
    Instant("execution", "connected, before the send check", _OPEN, fate=Fate("connect: answered")),
    Instant("execution", "after the send check, before the first byte", _OPEN, fate=Fate("first byte: due")),
    Instant("execution", "after the first byte", _OPEN, fate=Fate("first byte: sent")),
    Instant("execution", "after the request's head", _OPEN, fate=Fate("head: sent")),
    Instant("execution", "after the whole request", _OPEN, booked=True, fate=Fate("request: sent")),
    Instant("execution", "provider has the request", _OPEN, booked=True, moment=Moment.RECEIVED),
    Instant("execution", "provider has booked", _OPEN, booked=True, moment=Moment.BOOKED),
    Instant("execution", "half of the answer", _OPEN, booked=True, moment=Moment.HALF_ANSWERED),
)
HEARTBEAT = (
    Instant(
        "heartbeat",
        "heartbeat not sent",
        _OPEN,
        True,
        Fate("heartbeat: called", armed="request: sent"),
        moment=Moment.LINGERS,
    ),
    Instant(
        "heartbeat", "heartbeat not arrived", _OPEN, True, snag=Snag("heartbeat", At.ARRIVES), moment=Moment.LINGERS
    ),
    Instant(
        "heartbeat", "heartbeat, no reply", _OPEN, True, snag=Snag("heartbeat", At.CARRIED_OUT), moment=Moment.LINGERS
    ),
    Instant(
        "heartbeat",
        "heartbeat answered",
        _OPEN,
        True,
        Fate("heartbeat: answered", armed="request: sent"),
        moment=Moment.LINGERS,
    ),
)
COMMIT = (
    Instant("commit", "answer arrived", _OPEN, True, Fate("answer: arrived")),
    Instant("commit", "answer read", _OPEN, True, Fate("execute: answered")),
    Instant("commit", "result checked", _OPEN, True, Fate("outcome: known")),
    Instant("commit", "heartbeats ended", _OPEN, True, Fate("call: let go")),
    Instant("commit", "commit not sent", _OPEN, True, Fate("commit: called")),
    Instant("commit", "commit not arrived", _OPEN, True, snag=Snag("commit", At.ARRIVES)),
    Instant("commit", "committed, no reply", _ENDED, True, snag=Snag("commit", At.CARRIED_OUT)),
    Instant("commit", "committed, half a reply", _ENDED, True, snag=Snag("commit", At.HALF_ANSWERED)),
    Instant(
        "commit",
        "committed, reply lost, not sent again",
        _ENDED,
        True,
        Fate("commit: called", armed="commit: called"),
        # It never strikes: it only loses the first reply.
        Snag("commit", At.CARRIED_OUT, occurrence=9, loses_first=True),
    ),
    Instant("commit", "committed twice, no reply", _ENDED, True, snag=Snag("commit", At.CARRIED_OUT, loses_first=True)),
)
_HANDS_BACK, _ABANDONS, _RETIRES = "take: answered", "claim: called", "commit: noted"
"""Where SIGTERM comes: before the gate, at the gate, after the commit."""
ACKNOWLEDGE = (
    Instant("acknowledge", "commit answered", _ENDED, True, Fate("commit: answered")),
    Instant("acknowledge", "commit noted", _ENDED, True, Fate("commit: noted")),
    Instant("acknowledge", "next order not asked for", _ENDED, True, Fate("take: called", armed="commit: noted")),
    Instant("acknowledge", "hand-back not sent", _NOTHING, fate=Fate("hand back: called", drains=_HANDS_BACK)),
    Instant(
        "acknowledge",
        "hand-back not arrived",
        _NOTHING,
        fate=Fate(drains=_HANDS_BACK),
        snag=Snag("hand_back", At.ARRIVES),
    ),
    Instant(
        "acknowledge",
        "handed back, no reply",
        _NOTHING,
        fate=Fate(drains=_HANDS_BACK),
        snag=Snag("hand_back", At.CARRIED_OUT),
    ),
    Instant("acknowledge", "abandonment not sent", _OPEN, fate=Fate("abandon: called", drains=_ABANDONS)),
    Instant(
        "acknowledge",
        "abandoned, no reply",
        _NOTHING,
        fate=Fate(drains=_ABANDONS),
        snag=Snag("abandon_claim", At.CARRIED_OUT),
    ),
    Instant("acknowledge", "retirement not sent", _ENDED, True, Fate("retire: called", drains=_RETIRES)),
    Instant(
        "acknowledge",
        "retired, no reply",
        _ENDED,
        True,
        Fate(drains=_RETIRES),
        Snag("retire_worker", At.CARRIED_OUT),
    ),
)
EVERY_INSTANT = (*CLAIM, *EXECUTION, *HEARTBEAT, *COMMIT, *ACKNOWLEDGE)

RECOVERY = (
    Instant("recovery", "recovery taken", _NOTHING, fate=Fate("take: answered")),
    Instant("recovery", "recovery not arrived", _NOTHING, snag=Snag("claim", At.ARRIVES)),
    Instant("recovery", "recovery claimed, no reply", _OPEN, snag=Snag("claim", At.CARRIED_OUT)),
    Instant("recovery", "recovery claimed", _OPEN, fate=Fate("recovery claim: answered")),
    Instant("recovery", "lookup not sent", _OPEN, fate=Fate("lookup first byte: due")),
    Instant("recovery", "lookup sent", _OPEN, fate=Fate("lookup request: sent")),
    Instant("recovery", "lookup answered", _OPEN, fate=Fate("lookup execute: answered")),
    Instant("recovery", "recovery's commit not sent", _OPEN, fate=Fate("recovery commit: called")),
    Instant("recovery", "recovery's commit not arrived", _OPEN, snag=Snag("commit", At.ARRIVES)),
    Instant("recovery", "recovery committed, no reply", _ENDED, snag=Snag("commit", At.CARRIED_OUT)),
)
"""Of the worker that asks what became of a call whose worker died before it."""

_KNOWN = {instant.name: instant for instant in EVERY_INSTANT}


def _known(*names: str) -> tuple[Instant, ...]:
    return tuple(_KNOWN[name] for name in names)


STOPPED = (
    *_known("order taken", "claim not sent"),
    Instant("claim", "claim on its way", _OPEN, snag=Snag("claim", At.ARRIVES)),
    Instant("claim", "claimed, reply on its way", _OPEN, snag=Snag("claim", At.CARRIED_OUT)),
    *_known("claimed, half a reply", "claimed, reply not acted on", "request not built", "not connected"),
    *_known("connected, before the send check"),
    # Whatever it was about to send is sent when it goes on.
    *(
        replace(instant, books_late=True)
        for instant in _known(
            "after the send check, before the first byte", "after the first byte", "after the request's head"
        )
    ),
    *_known("after the whole request", "provider has booked", "half of the answer"),
    *_known("heartbeat not sent", "heartbeat answered"),
    *_known("answer arrived", "answer read", "heartbeats ended", "commit not sent"),
    Instant("commit", "commit on its way", _ENDED, True, snag=Snag("commit", At.ARRIVES)),
    Instant("commit", "committed, reply on its way", _ENDED, True, snag=Snag("commit", At.CARRIED_OUT)),
    Instant("commit", "commit answered", _ENDED, True, Fate("commit: answered")),
)
"""Where a worker is stopped (SIGSTOP): what was on its way goes on without it, and it goes on when it is woken."""

LEDGER = (
    Instant("claim", "order on its way", _NOTHING, snag=Snag("take_orders", At.CARRIED_OUT, answer_holds=_ORDER)),
    Instant("claim", "claim sent, not arrived", _NOTHING, snag=Snag("claim", At.ARRIVES)),
    Instant("claim", "claimed, no reply", _OPEN, snag=Snag("claim", At.CARRIED_OUT)),
    Instant("execution", "provider has the request", _OPEN, True, moment=Moment.RECEIVED),
    Instant("execution", "provider has booked", _OPEN, True, moment=Moment.BOOKED),
    Instant(
        "heartbeat", "heartbeat not arrived", _OPEN, True, snag=Snag("heartbeat", At.ARRIVES), moment=Moment.LINGERS
    ),
    Instant(
        "heartbeat", "heartbeat, no reply", _OPEN, True, snag=Snag("heartbeat", At.CARRIED_OUT), moment=Moment.LINGERS
    ),
    Instant("commit", "commit not arrived", _OPEN, True, snag=Snag("commit", At.ARRIVES)),
    Instant("commit", "committed, no reply", _ENDED, True, snag=Snag("commit", At.CARRIED_OUT)),
    Instant("commit", "committed twice, no reply", _ENDED, True, snag=Snag("commit", At.CARRIED_OUT, loses_first=True)),
)
"""At which the ledger's server is killed."""
