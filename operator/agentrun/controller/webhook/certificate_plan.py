"""What to do with the webhook's certificates now; pure.

A serving certificate and the authority that signed it live and are renewed together. No API server may ever meet a
certificate that it does not trust, so a renewal has stages: the next authority is made and shown beside the present
one; when every API server has had the time to see it, the next one takes over and the former one stays trusted until
it expires.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Life:
    """When a certificate is valid."""

    begins: datetime
    ends: datetime

    def has_ended(self, now: datetime) -> bool:
        """Tell whether it is over; at its very end it is."""
        return now >= self.ends

    def is_due(self, now: datetime) -> bool:
        """Tell whether two thirds of it are over."""
        return now >= self.begins + (self.ends - self.begins) * 2 / 3


@dataclass(frozen=True, slots=True)
class CertificateSight:
    """The certificates as they are stored."""

    authority: Life
    serving: Life
    names: frozenset[str]
    """Hosts and addresses that the serving certificate is for."""
    next_authority: Life | None = None
    next_shown_at: datetime | None = None
    """Since when the API servers are told to trust it."""
    former_authority: Life | None = None


class NoSight(StrEnum):
    """There are no certificates to look at."""

    ABSENT = "Absent"
    UNUSABLE = "Unusable"
    """Something is stored, and it is none."""


class CertificateStep(StrEnum):
    """What is done next."""

    KEEP = "Keep"
    MAKE = "Make"
    """Make an authority and a serving certificate, unless somebody else is faster."""
    REPLACE = "Replace"
    """Make both anew in place of what is stored: nothing can be kept."""
    REISSUE = "Reissue"
    """Have the present authority sign another serving certificate."""
    PREPARE = "Prepare"
    """Make the next authority, to be shown beside the present one."""
    NOTE_SHOWN = "NoteShown"
    """Note that the next authority is shown from now on."""
    SWITCH = "Switch"
    """Serve under the next authority; the present one becomes the former one."""
    FORGET = "Forget"
    """Show the former authority no longer."""


def decide_certificates(
    sight: CertificateSight | NoSight,
    names: frozenset[str],
    now: datetime,
    settle: timedelta,
    *,
    leads: bool,
    bundle_shown: bool,
) -> CertificateStep:
    """Return the next step. ``settle``: how long a bundle is shown before something is served that needs it.

    ``bundle_shown``: the webhook configurations hold the whole stored bundle.
    """
    # Whoever comes first makes them: nobody can serve before, and nobody leads yet perhaps.
    if sight is NoSight.ABSENT:
        return CertificateStep.MAKE
    # Nothing is served, or nothing that is believed: there is nothing left to be careful with.
    if isinstance(sight, NoSight) or sight.authority.has_ended(now) or sight.serving.has_ended(now):
        return CertificateStep.REPLACE
    # Of several replicas one changes what works.
    if not leads:
        return CertificateStep.KEEP
    # A new name needs no new trust.
    if not names <= sight.names:
        return CertificateStep.REISSUE
    if sight.next_authority is not None:
        return _advance(sight, now, settle, bundle_shown=bundle_shown)
    if sight.authority.is_due(now):
        return CertificateStep.PREPARE
    # Nothing that it signed is valid any more.
    if sight.former_authority is not None and sight.former_authority.has_ended(now):
        return CertificateStep.FORGET
    return CertificateStep.KEEP


def _advance(sight: CertificateSight, now: datetime, settle: timedelta, *, bundle_shown: bool) -> CertificateStep:
    if not bundle_shown:
        return CertificateStep.KEEP
    if sight.next_shown_at is None:
        return CertificateStep.NOTE_SHOWN
    # API servers hear of a configuration by a watch, each in its own time.
    if now >= sight.next_shown_at + settle:
        return CertificateStep.SWITCH
    return CertificateStep.KEEP
