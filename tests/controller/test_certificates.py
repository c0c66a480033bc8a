"""The webhook's certificates: what is done with them when, and that nothing is ever served that nobody trusts."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from agentrun.controller.webhook.certificate_keeper import CertificateKeeper, CertificateTerms
from agentrun.controller.webhook.certificate_plan import (
    CertificateSight,
    CertificateStep,
    Life,
    NoSight,
    decide_certificates,
)
from agentrun.controller.webhook.certificates import (
    KeyPair,
    UnusableCertificatesError,
    from_secret,
    make_certificates,
    to_secret,
)
from agentrun.controller.webhook.stored_secrets import StoredSecret
from agentrun.engine.cluster_port import ConflictError

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = frozenset({"hook.ns.svc", "127.0.0.1"})
SETTLE = timedelta(days=1)


def day(number: float) -> datetime:
    return BEGIN + timedelta(days=number)


def seen(
    begins: float = 0,
    ends: float = 90,
    *,
    served_until: float | None = None,
    names: frozenset[str] = NAMES,
    following: float | None = None,
    shown: float | None = None,
    former: float | None = None,
) -> CertificateSight:
    return CertificateSight(
        Life(day(begins), day(ends)),
        Life(day(begins), day(ends if served_until is None else served_until)),
        names,
        None if following is None else Life(day(following), day(following + 90)),
        None if shown is None else day(shown),
        None if former is None else Life(day(former - 90), day(former)),
    )


@pytest.mark.parametrize(
    "sight, now, leads, shown, want",
    [
        pytest.param(NoSight.ABSENT, 0, False, False, "Make", id="nothing yet, whoever comes"),
        pytest.param(NoSight.UNUSABLE, 0, False, False, "Replace", id="rubbish"),
        pytest.param(seen(), 89.9, False, False, "Keep", id="others renew"),
        pytest.param(seen(), 90, False, False, "Replace", id="expired at its very end"),
        pytest.param(seen(served_until=30), 31, True, True, "Replace", id="serving certificate expired alone"),
        pytest.param(seen(), 59.9, True, True, "Keep", id="before two thirds"),
        pytest.param(seen(), 60, True, True, "Prepare", id="at two thirds"),
        pytest.param(seen(names=frozenset({"127.0.0.1"})), 1, True, True, "Reissue", id="a new name"),
        pytest.param(seen(names=NAMES | {"old"}), 1, True, True, "Keep", id="a name too many"),
        pytest.param(seen(following=60), 60, True, False, "Keep", id="next one not shown yet"),
        pytest.param(seen(following=60), 60, True, True, "NoteShown", id="next one shown just now"),
        pytest.param(seen(following=60, shown=60), 60.9, True, True, "Keep", id="not everybody has seen it"),
        pytest.param(seen(following=60, shown=60), 61, True, True, "Switch", id="everybody has seen it"),
        pytest.param(seen(following=60, shown=60), 80, True, False, "Keep", id="shown no more"),
        pytest.param(seen(following=60, shown=60), 80, False, True, "Keep", id="a standby does not switch"),
        pytest.param(seen(60, 150, former=90), 89.9, True, True, "Keep", id="former one still trusted"),
        pytest.param(seen(60, 150, former=90), 90, True, True, "Forget", id="former one expired"),
        pytest.param(seen(60, 150, former=90), 91, False, True, "Keep", id="a standby forgets nothing"),
    ],
)
def test_what_is_done_with_certificates(
    sight: CertificateSight | NoSight, now: float, leads: bool, shown: bool, want: str
) -> None:
    got = decide_certificates(sight, NAMES, day(now), SETTLE, leads=leads, bundle_shown=shown)
    assert got == CertificateStep(want)


class _Store:
    """One Secret that several replicas share."""

    def __init__(self) -> None:
        self.secret: StoredSecret | None = None
        self.writes = 0

    async def find(self, name: str) -> StoredSecret | None:
        await asyncio.sleep(0)
        return self.secret

    async def create_if_absent(self, name: str, data: Mapping[str, bytes]) -> StoredSecret:
        await asyncio.sleep(0)
        return self.secret or self._put(data)

    async def replace(self, name: str, data: Mapping[str, bytes], read: StoredSecret) -> StoredSecret:
        await asyncio.sleep(0)
        if self.secret is None or read.resource_version != self.secret.resource_version:
            raise ConflictError(name)
        return self._put(data)

    def _put(self, data: Mapping[str, bytes]) -> StoredSecret:
        self.writes += 1
        self.secret = StoredSecret(dict(data), str(self.writes))
        return self.secret


class _Shown:
    """What API servers trust."""

    def __init__(self) -> None:
        self.bundle = b""

    async def show(self, bundle: bytes) -> None:
        self.bundle = bundle


class _Clock:
    def __init__(self) -> None:
        self.moment = BEGIN

    def now(self) -> datetime:
        return self.moment


class _Replica:
    def __init__(self, store: _Store, shown: _Shown, clock: _Clock, *, leads: bool) -> None:
        self.served: list[KeyPair] = []
        terms = CertificateTerms("s", NAMES, timedelta(days=90), SETTLE)
        self.keeper = CertificateKeeper(store, shown, clock, terms, self.served.append)  # type: ignore[arg-type]
        self.keeper.leads = leads


def is_trusted(serving: KeyPair, bundle: bytes, now: datetime) -> bool:
    leaf = x509.load_pem_x509_certificate(serving.certificate)
    if not leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc:
        return False
    for authority in x509.load_pem_x509_certificates(bundle):
        if authority.subject == leaf.issuer and authority.not_valid_before_utc <= now < authority.not_valid_after_utc:
            leaf.verify_directly_issued_by(authority)
            return True
    return False


async def test_replicas_that_start_at_once_serve_under_one_authority() -> None:
    store, shown, clock = _Store(), _Shown(), _Clock()
    replicas = [_Replica(store, shown, clock, leads=False) for _ in range(3)]
    await asyncio.gather(*(replica.keeper.look() for replica in replicas))
    assert store.writes == 1
    assert all(replica.keeper.serves for replica in replicas)
    assert len({replica.served[-1].certificate for replica in replicas}) == 1


async def test_no_renewal_ever_serves_what_api_servers_do_not_trust_yet() -> None:
    store, shown, clock = _Store(), _Shown(), _Clock()
    leader, standby = (_Replica(store, shown, clock, leads=leads) for leads in (True, False))
    believed = b""
    for hour in range(400 * 24):
        clock.moment = BEGIN + timedelta(hours=hour)
        await leader.keeper.look()
        # A standby looks less often, and an API server hears of a bundle twelve hours late.
        if hour % 7 == 0:
            await standby.keeper.look()
        if hour % 12 == 0:
            believed = shown.bundle
        for replica in (leader, standby):
            assert is_trusted(replica.served[-1], believed, clock.now()), hour
    assert len(leader.served) == len(standby.served) > 5
    assert len(x509.load_pem_x509_certificates(shown.bundle)) <= 2


async def test_what_expired_while_nobody_ran_is_replaced_and_never_served() -> None:
    store, shown, clock = _Store(), _Shown(), _Clock()
    await _Replica(store, shown, clock, leads=False).keeper.look()
    clock.moment = day(400)
    late = _Replica(store, shown, clock, leads=True)
    await late.keeper.look()
    assert len(late.served) == 1
    assert is_trusted(late.served[0], shown.bundle, clock.now())


def test_a_secret_is_read_as_it_was_written() -> None:
    made = make_certificates(NAMES, BEGIN, timedelta(days=90)).prepare(day(60), timedelta(days=90)).note_shown(day(60))
    assert from_secret(to_secret(made)) == made
    assert from_secret(to_secret(made)).look().names == NAMES
    switched = made.switch(NAMES, day(61))
    assert from_secret(to_secret(switched)) == switched
    assert switched.former_authority == made.authority.certificate
    assert made.authority.key not in b"".join(to_secret(switched).values())


def test_a_secret_that_holds_no_certificates_is_called_so() -> None:
    fields = to_secret(make_certificates(NAMES, BEGIN, timedelta(days=90)))
    other = to_secret(make_certificates(NAMES, BEGIN, timedelta(days=90)))
    wrong = ({}, {**fields, "tls.crt": b"x"}, {**fields, "ca.key": b""}, {**fields, "tls.key": other["tls.key"]})
    for content in wrong:
        with pytest.raises(UnusableCertificatesError):
            from_secret(content)
