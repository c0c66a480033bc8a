"""Leader election by a Lease: one operator decides, the others stand by. The ledger's epoch fences what a Lease cannot.

The Lease knows the epoch before anything is done under it: a ledger that loses its data does not give it out again.
Expiry is judged by our own monotonic clock, from the moment at which a holder's last renewal was first seen: clocks of
different machines are never compared.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import structlog

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.model_base import format_time
from agentrun.controller.api_errors import NameTakenError
from agentrun.controller.api_objects import LEASE_API, lease_collection
from agentrun.engine.clock import Clock
from agentrun.engine.cluster_port import ClusterUnavailableError, ConflictError, GoneError

EPOCH_ANNOTATION = "agentrun.dev/epoch"
_log = structlog.get_logger("agentrun.controller")


class LeadershipLostError(Exception):
    """Another operator leads, or nobody knows who does: this one must stop deciding."""


class LeaseRequests(Protocol):
    """Reaches the API server."""

    async def request(self, verb: str, path: str, body: JsonObject | None = None) -> JsonObject:
        """Send one request and return the answer's object; raises what the API client raises."""
        ...


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """How long a lead lasts without renewal, when its holder gives up, and how often it tries."""

    duration: timedelta = timedelta(seconds=15)
    renew_within: timedelta = timedelta(seconds=10)
    """The holder stops deciding when it could not renew for this long: before others may take over."""
    every: timedelta = timedelta(seconds=2)


@dataclass(slots=True)
class _Seen:
    holder: str
    renewal: JsonValue
    at: float
    """When this renewal was first seen, by the loop's clock, in seconds."""


class Leadership:
    """One candidate for one Lease."""

    def __init__(
        self, client: LeaseRequests, namespace: str, name: str, identity: str, clock: Clock, timing: LeaseTiming
    ) -> None:
        self._client = client
        self._collection = lease_collection(namespace)
        self._namespace, self._name = namespace, name
        self.identity = identity
        """Who this candidate is in the Lease."""
        self._clock = clock
        self._timing = timing
        self._seen: _Seen | None = None
        self._lease: JsonObject | None = None
        self.epoch = 0
        """The highest epoch that is known."""
        self._renewing = asyncio.Lock()

    async def acquire(self) -> None:
        """Return once this candidate holds the Lease; wait for as long as another one renews it."""
        said = ""
        while True:
            try:
                if await self._try_to_take():
                    _log.info("leading", lease=self._name, identity=self.identity)
                    return
                if self._seen is not None and self._seen.holder != said:
                    said = self._seen.holder
                    _log.info("standing_by", lease=self._name, holder=said)
            except (ClusterUnavailableError, ConflictError, GoneError, NameTakenError) as error:
                _log.debug("lease_not_taken", cause=str(error))
            await asyncio.sleep(self._timing.every.total_seconds())

    async def confirm(self) -> None:
        """Return once the Lease was renewed: nobody else leads at this moment.

        Raises :class:`LeadershipLostError` when it is another's, and :class:`ClusterUnavailableError` when that cannot
        be told.
        """
        try:
            await self._renew()
        except (ConflictError, GoneError, NameTakenError) as error:
            raise ClusterUnavailableError(f"the Lease {self._name} is changing: {error}") from error

    async def record_epoch(self, epoch: int) -> None:
        """Return once the Lease tells of the epoch. Raises as :meth:`confirm`: nothing may be done under it then."""
        self.epoch = max(self.epoch, epoch)
        await self.confirm()

    async def hold(self) -> None:
        """Renew until cancelled. Raises :class:`LeadershipLostError` when others may take over soon, or have."""
        now = asyncio.get_running_loop().time
        renewed = now()
        while True:
            await asyncio.sleep(self._timing.every.total_seconds())
            left = renewed + self._timing.renew_within.total_seconds() - now()
            if left <= 0:
                raise LeadershipLostError(f"the Lease {self._name} could not be renewed in time")
            try:
                began = now()
                async with asyncio.timeout(left):
                    await self._renew()
                renewed = began
            except (ClusterUnavailableError, ConflictError, GoneError, NameTakenError, TimeoutError) as error:
                _log.warning("lease_not_renewed", lease=self._name, cause=str(error))

    async def release(self) -> None:
        """Give the Lease back, so that a standby need not wait for its end."""
        try:
            found = await self._client.request("GET", f"{self._collection}/{self._name}")
            if _spec(found).get("holderIdentity") != self.identity:
                return
            await self._store(found, holder="")
        except (ClusterUnavailableError, ConflictError, GoneError) as error:
            _log.info("lease_not_released", lease=self._name, cause=str(error))

    async def _try_to_take(self) -> bool:
        try:
            found = await self._client.request("GET", f"{self._collection}/{self._name}")
        except GoneError:
            await self._create()
            return True
        spec = _spec(found)
        holder = str(spec.get("holderIdentity") or "")
        self.epoch = max(self.epoch, _epoch(found))
        loop_now = asyncio.get_running_loop().time()
        if self._seen is None or (self._seen.holder, self._seen.renewal) != (holder, spec.get("renewTime")):
            self._seen = _Seen(holder, spec.get("renewTime"), loop_now)
        silent = loop_now - self._seen.at
        if holder not in ("", self.identity) and silent < _seconds(spec, self._timing):
            return False
        self._lease = await self._store(found, holder=self.identity, taken=True)
        return True

    async def _renew(self) -> None:
        async with self._renewing:
            try:
                await self._renew_known()
            except GoneError:
                # Deleted: whoever creates it first leads on; the epoch lives in the ledger and does not go backward.
                await self._create()

    async def _renew_known(self) -> None:
        if self._lease is None:
            raise GoneError(self._name)
        try:
            self._lease = await self._store(self._lease, holder=self.identity)
        except ConflictError:
            # Changed, or deleted: older servers call that a conflict as well, the uid being another one.
            found = await self._client.request("GET", f"{self._collection}/{self._name}")
            holder = _spec(found).get("holderIdentity")
            if holder != self.identity:
                raise LeadershipLostError(f"{holder or 'nobody'} holds the Lease {self._name}") from None
            # Somebody else's hand (a label, an annotation): it is still ours.
            self._lease = await self._store(found, holder=self.identity)

    async def _create(self) -> None:
        body: JsonObject = {
            "apiVersion": LEASE_API,
            "kind": "Lease",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "annotations": {EPOCH_ANNOTATION: str(self.epoch)},
            },
            "spec": self._new_spec(self.identity, transitions=0),
        }
        self._lease = await self._client.request("POST", self._collection, body)

    async def _store(self, found: JsonObject, *, holder: str, taken: bool = False) -> JsonObject:
        before = _spec(found)
        transitions = before.get("leaseTransitions")
        count = transitions if isinstance(transitions, int) else 0
        changed_hands = taken and before.get("holderIdentity") != self.identity
        spec = self._new_spec(holder, transitions=count + changed_hands)
        if not taken and before.get("acquireTime"):
            spec["acquireTime"] = before["acquireTime"]
        meta = found.get("metadata")
        metadata = dict(meta) if isinstance(meta, dict) else {}
        notes = metadata.get("annotations")
        metadata["annotations"] = {**(notes if isinstance(notes, dict) else {}), EPOCH_ANNOTATION: str(self.epoch)}
        metadata.pop("managedFields", None)
        return await self._client.request(
            "PUT", f"{self._collection}/{self._name}", {**found, "metadata": metadata, "spec": spec}
        )

    def _new_spec(self, holder: str, *, transitions: int) -> JsonObject:
        now = format_time(self._clock.now())
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": round(self._timing.duration.total_seconds()),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }


def _spec(lease: JsonObject) -> JsonObject:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}


def _epoch(lease: JsonObject) -> int:
    meta = lease.get("metadata")
    notes = meta.get("annotations") if isinstance(meta, dict) else None
    text = str(notes.get(EPOCH_ANNOTATION) or "") if isinstance(notes, dict) else ""
    return int(text) if text.isdigit() else 0


def _seconds(spec: JsonObject, timing: LeaseTiming) -> float:
    said = spec.get("leaseDurationSeconds")
    return float(said) if isinstance(said, int) and said > 0 else timing.duration.total_seconds()
