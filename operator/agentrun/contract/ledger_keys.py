"""The ledger's key catalogue: every key's name, type, lifetime and owner, in one place.

All keys start with ``<install>:<namespace>:`` so that tenants can be separated by ACL patterns; keys of the install
as a whole stand under the pseudo namespace ``_``. Lengths are bounded because names are (DNS labels) and everything
else is hashed.

| key | type | lifetime | written by |
|---|---|---|---|
| ``_:meta`` | hash: generation, formatVersion, open, epoch, durable | for ever | scheduler |
| ``_:slots:global`` | sorted set: holder by expiry ms | holders expire | scheduler |
| ``<ns>:slots:<name>`` | sorted set: holder (``node_uid/attempt``) by expiry ms | holders expire | both |
| ``<ns>:run:<uid>`` | hash: state, counters, limits, deadline | ``window`` after the end | both |
| ``<ns>:runs`` | set: uids of runs that are open, or ended with a claim that lives | until wound up | scheduler |
| ``<ns>:runnodes:<uid>`` | set: node uids that were ever dispatched | with the run | both |
| ``<ns>:node:<uid>`` | hash: seq, epoch, order, claim, hold, outcome | with the run | both |
| ``<ns>:record:<key>`` | hash: the idempotency record | by its status and window | both |
| ``<ns>:waiters:<key>`` | list: nodes that wait for the record, in order | with the record | both |
| ``<ns>:queue:<pool>:<tool>:<priority>`` | stream of orders | entries go with acknowledge or withdraw | both |
| ``<ns>:queues:<pool>`` | set: names of the pool's streams | for ever; a day for a Job's | scheduler |
| ``<ns>:bell:<pool>`` | list: rung for each order sent, bounded | until it is heard | both |
| ``<ns>:claims`` | sorted set: nodes with a claim, by the end of its lease | with the claim | both |
| ``<ns>:rate:<tool>`` | string: GCRA theoretical arrival time | one period past it | worker |
| ``<ns>:tool:<digest>`` | string: definition as JSON | refreshed at use, 30 d | scheduler |
| ``<ns>:pins:<run uid>`` | string: what a run was admitted with, JSON | refreshed at use, 30 d | scheduler |
| ``<ns>:workers:<pool>`` | hash: live workers by identity | heartbeats; 2 d past the last | worker |
| ``<ns>:session:<hash>`` | hash: holder, run | until released | scheduler |
| ``<ns>:tombstone:<hash>`` | hash: uid, digest, outcome | ``window`` after the end | scheduler |
| ``<ns>:audit:<run uid>`` | stream of audit events, bounded | 30 d after the end | both |
| ``<ns>:reports`` | stream of reports | trimmed behind the slowest reader only | worker |
| ``_:namespaces`` | set: namespaces in use | for ever | scheduler |
| ``agentrun-installs`` | hash: ``<cluster> <namespace>`` to install, over all installs | for ever | operator |
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

FORMAT_VERSION = 1
"""Version of the ledger's layout; an operator refuses a newer one."""
INSTALL_NAMESPACE = "_"
INSTALLS_KEY = "agentrun-installs"
"""What is served by which install: the one key that all installs on a server share."""
WORKERS_GROUP = "workers"
"""Consumer group of every order stream."""
SCHEDULER_GROUP = "scheduler"
"""Consumer group of every report stream."""


@dataclass(frozen=True, slots=True)
class LedgerKeys:
    """Builds the key names of one install and namespace."""

    install: str
    namespace: str

    def _key(self, *parts: str) -> str:
        return ":".join((self.install, self.namespace, *parts))

    @property
    def prefix(self) -> str:
        """What every key of the namespace starts with."""
        return f"{self.install}:{self.namespace}:"

    @property
    def meta(self) -> str:
        """The install's own record."""
        return f"{self.install}:{INSTALL_NAMESPACE}:meta"

    @property
    def namespaces(self) -> str:
        """The namespaces in use."""
        return f"{self.install}:{INSTALL_NAMESPACE}:namespaces"

    @property
    def global_slots(self) -> str:
        """Holders of the install-wide slots."""
        return f"{self.install}:{INSTALL_NAMESPACE}:slots:global"

    def slots(self, name: str) -> str:
        """Holders of the slots called ``name`` (``namespace``, ``tool:<name>``, ``pool:<name>``)."""
        return self._key("slots", name)

    def run(self, uid: str) -> str:
        """State and counters of a run."""
        return self._key("run", uid)

    @property
    def runs(self) -> str:
        """Runs that are not wound up."""
        return self._key("runs")

    def run_nodes(self, uid: str) -> str:
        """Nodes of a run that were ever dispatched."""
        return self._key("runnodes", uid)

    def node(self, uid: str) -> str:
        """Order, claim and hold of a node."""
        return self._key("node", uid)

    def record(self, key: str) -> str:
        """An idempotency record."""
        return self._key("record", key)

    def waiters(self, key: str) -> str:
        """Who waits for a record."""
        return self._key("waiters", key)

    def queue(self, pool: str, tool: str, priority: str) -> str:
        """The stream of one tool's orders of one priority."""
        return self._key("queue", pool, tool, priority)

    def queues(self, pool: str) -> str:
        """The streams of a pool."""
        return self._key("queues", pool)

    def bell(self, pool: str) -> str:
        """What a pool's idle workers listen to."""
        return self._key("bell", pool)

    @property
    def claims(self) -> str:
        """Nodes with a claim, by the end of its lease."""
        return self._key("claims")

    def rate(self, tool: str) -> str:
        """The rate limiter of a tool."""
        return self._key("rate", tool)

    def tool(self, digest: str) -> str:
        """A tool's definition."""
        return self._key("tool", digest)

    def pins(self, run_uid: str) -> str:
        """What a run was admitted with."""
        return self._key("pins", run_uid)

    def workers(self, pool: str) -> str:
        """The live workers of a pool."""
        return self._key("workers", pool)

    def session(self, session: str) -> str:
        """The holder of a session."""
        return self._key("session", short_hash(session))

    def tombstone(self, run_name: str) -> str:
        """The recorded outcome of the run of this name."""
        return self._key("tombstone", short_hash(run_name))

    def audit(self, run_uid: str) -> str:
        """Audit events of a run."""
        return self._key("audit", run_uid)

    @property
    def reports(self) -> str:
        """Reports for the scheduler."""
        return self._key("reports")


def short_hash(text: str) -> str:
    """Return 32 hex digits of SHA-256: names of any length and alphabet become bounded key parts."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
