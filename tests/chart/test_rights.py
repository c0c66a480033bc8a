"""The operator's rights are exactly what its code asks the API server for; people's roles are exactly these."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from agentrun.contract.approval import AgentApproval, AgentApprovalSpec, AgentApprovalStatus
from agentrun.contract.exact_json import JsonObject
from agentrun.contract.node import AgentNode, AgentNodeSpec, AgentNodeStatus, RunRef
from agentrun.contract.object_meta import ObjectMeta
from agentrun.contract.run import AgentRun, AgentRunSpec, AgentRunStatus, RunNode, RunPhase
from agentrun.controller.api_cluster import ApiCluster
from agentrun.controller.api_errors import NameTakenError
from agentrun.controller.api_objects import PLURALS
from agentrun.controller.event_poster import EventPoster
from agentrun.controller.install_binding import InstallBinding
from agentrun.controller.jobs.job_writer import JobWriter, jobs_path
from agentrun.controller.kopf_source import WATCHED_KINDS
from agentrun.controller.leadership import Leadership, LeaseTiming
from agentrun.controller.ledger_secret import ensure_ledger_secret
from agentrun.controller.node_deletions import NodeDeletions
from agentrun.controller.pools.labelled_objects import LabelledObjects
from agentrun.controller.pools.pool_manifests import PoolManifests
from agentrun.controller.pools.pool_writer import PoolWriter, deployments_path, pods_path
from agentrun.controller.pools.worker_access import AccessSettings, Isolation, WorkerAccess
from agentrun.controller.served_kinds import warn_of_missing_namespaces
from agentrun.controller.session_leases import ApiSessionLeases
from agentrun.controller.unreadable_objects import UnreadableObjects
from agentrun.controller.webhook.access_reviews import Access, AccessReviews, Requester
from agentrun.controller.webhook.approval_review import EDIT_PARAMS, VERBS
from agentrun.controller.webhook.seal_key import SealKey
from agentrun.controller.webhook.stored_secrets import StoredSecrets
from agentrun.controller.webhook.webhook_configurations import WebhookConfigurations, WebhookPlace
from agentrun.decisions.jobs.job_wishes import JobKey
from agentrun.decisions.pools.pool_wishes import PoolKey
from agentrun.engine.clock import SystemClock
from agentrun.engine.cluster_port import AlreadyExistsError, ChangeKind, ClusterChange, GoneError, ObjectSight
from agentrun.engine.observer import RunPhaseStored
from support.helm import ROOT, Helm, Manifest, find_object, find_objects

Right = tuple[str, str, str, str]
"""(API group, resource, verb, name of the object or empty)."""
OWN, SERVED = "agents", "shop"
FULL = "agentrun-agentrun-operator"
CLUSTER = f"{OWN}.{FULL}"
META = ObjectMeta(name="r", namespace=SERVED, uid="u-1", resource_version="1")
RUN = AgentRun(
    metadata=META,
    spec=AgentRunSpec(intent="test", nodes=(RunNode(name="a", tool="t"),)),
    status=AgentRunStatus(phase=RunPhase.RUNNING),
)
NODE = AgentNode(
    metadata=META,
    spec=AgentNodeSpec(run=RunRef(name="r", uid="u-1"), path="a", node=RunNode(name="a", tool="t")),
    status=AgentNodeStatus(entered_at=datetime(2026, 1, 1, tzinfo=UTC)),
)
APPROVAL = AgentApproval(metadata=META, spec=AgentApprovalSpec(), status=AgentApprovalStatus())
_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Ledgerbook:
    """Stands in for the API client and writes down the rights that each request takes."""

    def __init__(self, answer: Callable[[str, str], JsonObject]) -> None:
        """``answer`` is given verb and path, and may raise what an API server's refusal becomes."""
        self._answer = answer
        self.rights: set[tuple[str, Right]] = set()
        """Each with the namespace, empty for what is the cluster's."""

    async def request(self, verb: str, path: str, *_: Any, **__: Any) -> JsonObject:
        self._note(verb, path)
        return self._answer(verb, path)

    async def list_all(self, path: str, *_: Any, **__: Any) -> tuple[list[JsonObject], str]:
        self._note("GET", path)
        return [], "1"

    async def list_pages(self, path: str) -> AsyncIterator[JsonObject]:
        self._note("GET", path)
        return
        yield {}

    async def watch_lines(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        self._note("WATCH", path)
        await asyncio.Event().wait()
        yield b""

    def _note(self, verb: str, path: str) -> None:
        found = _PATH.fullmatch(path)
        assert found is not None, path
        name = found["name"] or ""
        if verb == "GET":
            verb = "get" if name else "list"
        resource = f"{found['resource']}/{found['sub']}" if found["sub"] else found["resource"]
        right = (found["group"] or "", resource, _VERBS.get(verb, verb.lower()), name)
        # A namespace is an object in itself, as far as rights go.
        place = name if resource == "namespaces" else found["namespace"]
        self.rights.add((place or "", right))


def nothing_there(verb: str, path: str) -> JsonObject:
    """An API server that has nothing yet."""
    if verb == "GET" and (found := _PATH.fullmatch(path)) and found["name"]:
        raise GoneError(path)
    return {"metadata": {"resourceVersion": "1"}, "spec": {}}


def everything_taken(stored: JsonObject) -> Callable[[str, str], JsonObject]:
    """An API server that has it all already."""

    def answer(verb: str, path: str) -> JsonObject:
        if verb == "POST" and not path.endswith("subjectaccessreviews"):
            raise NameTakenError(path)
        return stored

    return answer


async def use_cluster_port(book: Ledgerbook) -> None:
    """Everything that the engine may ask of its cluster port."""
    cluster = ApiCluster(book, [SERVED])  # type: ignore[arg-type]
    cluster.tell(ClusterChange(ChangeKind.SEEN, RUN))
    async for _ in cluster.watch():
        break
    for create, wanted in (
        (cluster.create_run, RUN), (cluster.create_node, NODE), (cluster.create_approval, APPROVAL)
    ):  # fmt: skip
        book._answer = everything_taken(wanted.to_wire())
        with pytest.raises(AlreadyExistsError):
            await create(wanted)  # type: ignore[arg-type]
        await cluster.replace_status(wanted)
        await cluster.delete(wanted)
    await cluster.delete(ObjectSight("Lease", META))
    await cluster.list_nodes(SERVED, "u-1")
    await cluster.find_run(SERVED, "r")
    await cluster.fetch_run(SERVED, "r")
    await cluster.survey()
    async for _ in cluster.iterate_nodes():
        break


async def use_session_leases(book: Ledgerbook) -> None:
    leases = ApiSessionLeases(book, SystemClock())  # type: ignore[arg-type]
    await leases.take(META, "s")
    book._answer = lambda verb, path: {"spec": {"holderIdentity": "u-1/x"}, "metadata": {"resourceVersion": "1"}}
    await leases.take(META, "s")
    await leases.release(META, "s")


async def use_events(book: Ledgerbook) -> None:
    poster = EventPoster(book, SystemClock(), "me")  # type: ignore[arg-type]
    task = asyncio.create_task(poster.run())
    for _ in range(2):
        poster.note(RunPhaseStored(RUN))
    while len(book.rights) < 2:
        await asyncio.sleep(0)
    task.cancel()


async def use_watches(book: Ledgerbook) -> None:
    watch = asyncio.create_task(NodeDeletions(book, SERVED, lambda change: None).run())  # type: ignore[arg-type]
    while len(book.rights) < 2:
        await asyncio.sleep(0)
    watch.cancel()
    # kopf has a client of its own: it lists and watches what it has handlers for.
    for kind in WATCHED_KINDS:
        book.rights |= {(SERVED, ("agentrun.dev", PLURALS[kind], verb, "")) for verb in ("list", "watch")}


async def use_rejections(book: Ledgerbook) -> None:
    raw = {"metadata": {"name": "r", "namespace": SERVED, "uid": "u-1", "resourceVersion": "1"}}
    with pytest.raises(ValidationError) as refused:
        AgentRunSpec.from_wire({})
    await UnreadableObjects(book, SystemClock()).refuse("AgentRun", raw, refused.value)  # type: ignore[arg-type]


async def use_leadership(book: Ledgerbook) -> None:
    timing = LeaseTiming(timedelta(seconds=1), timedelta(seconds=1), timedelta(0))
    lead = Leadership(book, OWN, "agentrun-operator", "me", SystemClock(), timing)  # type: ignore[arg-type]
    await lead.acquire()
    book._answer = lambda verb, path: {"spec": {"holderIdentity": "me"}, "metadata": {}}
    await lead.release()


async def use_certificates(book: Ledgerbook) -> None:
    stored = StoredSecrets(book, OWN)  # type: ignore[arg-type]
    await stored.create_if_absent("agentrun-webhook-tls", {})
    read = await StoredSecrets(Ledgerbook(everything_taken({})), OWN).find("any")  # type: ignore[arg-type]
    assert read is not None
    await stored.replace("agentrun-webhook-tls", {}, read)
    book._answer = everything_taken({"data": {"key": "a" * 64}})
    await stored.find("agentrun-webhook-tls")


async def use_seal_key(book: Ledgerbook) -> None:
    book._answer = lambda verb, path: {"data": {"key": "a" * 64}}
    key = SealKey(StoredSecrets(book, OWN), "agentrun-decision-seal")  # type: ignore[arg-type]
    await key.fetch()
    await StoredSecrets(book, OWN).create_if_absent("agentrun-decision-seal", {})  # type: ignore[arg-type]


async def use_ledger_secret(book: Ledgerbook) -> None:
    stored = StoredSecrets(book, OWN)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="has no password"):
        await ensure_ledger_secret(stored, f"{FULL}-ledger", "host:1")


async def use_pools(book: Ledgerbook) -> None:
    writer = PoolWriter(book, "v1")  # type: ignore[arg-type]
    key = PoolKey(SERVED, "shared")
    wanted = our_object()
    manifests = PoolManifests("p", "digest", wanted, wanted, wanted)
    book._answer = everything_taken(wanted)
    await writer.create(key, manifests, 1)
    await writer.replace(key, manifests, wanted)
    await writer.scale(key, "p", 2)
    await writer.mark(key, "pod", keep=True)
    await writer.list_beside(SERVED, "x")
    await writer.delete(key, "p", "uid")


async def use_jobs(book: Ledgerbook) -> None:
    writer = JobWriter(book)  # type: ignore[arg-type]
    key = JobKey(SERVED, "p")
    book._answer = everything_taken(our_object())
    await writer.create(our_object())
    await writer.write_policy(SERVED, "agentrun")
    await writer.find_refusal(key, "uid")
    await writer.delete(key, "uid")


def our_object() -> JsonObject:
    """What bears every label of ours."""
    labels: JsonObject = {"agentrun.dev/install": "agentrun", "agentrun.dev/pool": "shared"}
    return {"metadata": {"name": "p", "namespace": SERVED, "labels": labels}, "spec": {}}


async def use_pool_watches(book: Ledgerbook) -> None:
    await use_watches_of(book, deployments_path(SERVED), pods_path(SERVED))


async def use_job_watches(book: Ledgerbook) -> None:
    await use_watches_of(book, jobs_path(SERVED), pods_path(SERVED))


async def use_watches_of(book: Ledgerbook, *paths: str) -> None:
    for path in paths:
        before = len(book.rights)
        watch = asyncio.create_task(LabelledObjects(book, path, "x", lambda: None).run())  # type: ignore[arg-type]
        while len(book.rights) < before + 2:
            await asyncio.sleep(0)
        watch.cancel()


async def use_worker_secrets(book: Ledgerbook) -> None:
    settings = AccessSettings("agentrun", "redis://:p@h:1", Isolation.NONE)
    await WorkerAccess(book, NoUsers(), settings, SystemClock()).ensure(SERVED)  # type: ignore[arg-type]
    # Another URL is written.
    book._answer = lambda verb, path: {"data": {}, "metadata": {"resourceVersion": "1"}}
    await WorkerAccess(book, NoUsers(), settings, SystemClock()).ensure(SERVED)  # type: ignore[arg-type]


class NoUsers:
    """Nobody needs any."""

    async def ensure(self, namespace: str, passwords: Sequence[str]) -> None:
        raise AssertionError("not asked for")


async def use_version(book: Ledgerbook) -> None:
    """Which version a server has, every account may ask (`system:public-info-viewer`)."""


async def use_reviews(book: Ledgerbook) -> None:
    await AccessReviews(book).may(Requester("bob"), SERVED, "a", Access("approve"))  # type: ignore[arg-type]


async def use_configurations(book: Ledgerbook) -> None:
    book._answer = lambda verb, path: {"webhooks": [{"name": "any", "clientConfig": {}}]}
    await WebhookConfigurations(book, WebhookPlace(CLUSTER)).show(b"authority")  # type: ignore[arg-type]


class FreeInstallBook:
    """Nothing is bound yet."""

    async def bind_install(self, cluster: str, namespaces: Sequence[str]) -> tuple[str, str] | None:
        return None


async def use_binding(book: Ledgerbook) -> None:
    await InstallBinding(book, FreeInstallBook(), "agentrun", [SERVED]).bind()  # type: ignore[arg-type]


async def use_discovery(book: Ledgerbook) -> None:
    # The kinds themselves every account may discover (`system:discovery`).
    await warn_of_missing_namespaces(book, [SERVED, OWN])  # type: ignore[arg-type]


USES: dict[str, Callable[[Ledgerbook], Awaitable[None]]] = {
    "api_cluster": use_cluster_port,
    "session_leases": use_session_leases,
    "event_poster": use_events,
    "node_deletions": use_watches,
    "unreadable_objects": use_rejections,
    "leadership": use_leadership,
    "served_kinds": use_discovery,
    "install_binding": use_binding,
    "webhook/stored_secrets": use_certificates,
    "webhook/seal_key": use_seal_key,
    "ledger_secret": use_ledger_secret,
    "pools/pool_writer": use_pools,
    "pools/labelled_objects": use_pool_watches,
    "pools/worker_access": use_worker_secrets,
    "pools/pool_keeper": use_version,
    "jobs/job_writer": use_jobs,
    "jobs/job_keeper": use_job_watches,
    "webhook/access_reviews": use_reviews,
    "webhook/webhook_configurations": use_configurations,
}
"""By module below controller/: everything that it asks of an API server."""
ASK_THROUGH_OTHERS = {"webhook/seal_key", "ledger_secret", "pools/worker_access", "jobs/job_keeper"}
"""They ask by way of ``stored_secrets`` or ``labelled_objects``, for objects of their own."""
OTHERS_ASK_THROUGH = {"pools/our_objects"}
"""Recorded with those that use them."""


async def record(*modules: str) -> set[tuple[str, Right]]:
    rights: set[tuple[str, Right]] = set()
    for module in modules or USES:
        book = Ledgerbook(nothing_there)
        async with asyncio.timeout(20):
            await USES[module](book)
        rights |= book.rights
    return rights


def expand(rules: list[dict[str, Any]]) -> Iterator[Right]:
    for rule in rules:
        assert set(rule) <= {"apiGroups", "resources", "verbs", "resourceNames"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield group, resource, verb, name


def granted(manifests: list[Manifest], kind: str, name: str) -> set[Right]:
    return set(expand(find_object(manifests, kind, name)["rules"]))


def test_every_module_that_asks_an_api_server_is_recorded() -> None:
    folder = ROOT / "operator" / "agentrun" / "controller"
    asking = {
        path.relative_to(folder).with_suffix("").as_posix()
        for path in folder.rglob("*.py")
        if re.search(r"client\.(request|list_all|list_pages|watch_lines)\(", path.read_text())
    }
    assert asking == (set(USES) | OTHERS_ASK_THROUGH) - ASK_THROUGH_OTHERS


async def test_rights_in_a_served_namespace_are_what_is_asked_there(helm: Helm) -> None:
    # Names are not known beforehand there but for one Secret, and no list or creation can be bound to one.
    for pools, jobs in ((True, True), (True, False), (False, True), (False, False)):
        left_out = [module for module in USES if module.startswith("pools/") and not pools]
        left_out += [module for module in USES if module.startswith("jobs/") and not jobs]
        if jobs:
            left_out = [module for module in left_out if module != "pools/worker_access"]
        asked = {
            (group, kind, verb, name if kind == "secrets" else "")
            for namespace, (group, kind, verb, name) in await record(*(m for m in USES if m not in left_out))
            if namespace == SERVED
        }
        for scope, kind in (({"namespaces": [SERVED]}, "Role"), ({"mode": "Cluster"}, "ClusterRole")):
            manifests = helm.render({"scope": scope, "pools": {"enabled": pools}, "jobs": {"enabled": jobs}})
            assert granted(manifests, kind, f"{CLUSTER}-served") == asked


def rights_in(rights: set[tuple[str, Right]], namespace: str) -> set[Right]:
    return {right for place, right in rights if place == namespace}


@pytest.mark.parametrize(
    "values, modules",
    [
        pytest.param(
            {},
            ("leadership", "served_kinds", "webhook/stored_secrets", "webhook/seal_key", "ledger_secret"),
            id="standard",
        ),
        pytest.param(
            {"webhook": {"certificates": {"mode": "CertManager"}}, "valkey": {"existingSecret": "mine"}},
            ("leadership", "served_kinds", "webhook/seal_key"),
            id="others make certificates and password",
        ),
        pytest.param(
            {"webhook": {"enabled": False}, "valkey": {"existingSecret": "mine"}},
            ("leadership", "served_kinds"),
            id="no webhook",
        ),
        pytest.param(
            {
                "webhook": {"enabled": False},
                "valkey": {"existingSecret": "mine"},
                "approvals": {"unverified": "Refuse"},
            },
            ("leadership", "served_kinds", "webhook/seal_key"),
            id="another process's webhook",
        ),
    ],
)
async def test_rights_in_its_own_namespace_are_what_is_asked_there_by_name(
    helm: Helm, values: dict[str, Any], modules: tuple[str, ...]
) -> None:
    asked = rights_in(await record(*modules), OWN)
    assert granted(helm.render(values), "Role", f"{FULL}-own") == asked


async def test_rights_in_the_cluster_are_the_webhooks_and_the_identity_alone(
    helm: Helm, standard: list[Manifest]
) -> None:
    asked = rights_in(await record(), "")
    assert granted(standard, "ClusterRole", f"{CLUSTER}-admission") == asked
    managed = helm.render({"webhook": {"certificates": {"mode": "CertManager"}}})
    reviews = rights_in(await record("webhook/access_reviews"), "")
    assert granted(managed, "ClusterRole", f"{CLUSTER}-admission") == reviews
    (left,) = find_objects(helm.render({"webhook": {"enabled": False}}), "ClusterRoleBinding")
    assert left["roleRef"]["name"] == f"{CLUSTER}-identity"


async def test_the_one_object_outside_that_is_read_says_which_cluster_it_is(standard: list[Manifest]) -> None:
    asked = rights_in(await record("install_binding"), "kube-system")
    assert granted(standard, "ClusterRole", f"{CLUSTER}-identity") == asked


def test_rights_are_bound_in_served_namespaces_alone(helm: Helm) -> None:
    manifests = helm.render({"scope": {"namespaces": ["shop", "billing"]}})
    bound = {(one["metadata"]["namespace"], one["roleRef"]["name"]) for one in find_objects(manifests, "RoleBinding")}
    assert bound == {(OWN, f"{FULL}-own"), ("shop", f"{CLUSTER}-served"), ("billing", f"{CLUSTER}-served")}
    cluster_bindings = find_objects(manifests, "ClusterRoleBinding")
    everywhere = {one["roleRef"]["name"] for one in cluster_bindings}
    assert everywhere == {f"{CLUSTER}-admission", f"{CLUSTER}-identity"}
    for binding in (*find_objects(manifests, "RoleBinding"), *cluster_bindings):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": FULL, "namespace": OWN}]


PEOPLE: dict[str, tuple[set[str], set[tuple[str, str]]]] = {
    "viewer": (
        {"view", "edit", "admin"},
        {
            (kind, verb)
            for kind in ("agentruns", "agentnodes", "agentapprovals", "agenttools")
            for verb in ("get", "list", "watch")
        },
    ),
    "run-author": (
        {"edit", "admin"},
        {("agentruns", verb) for verb in ("get", "list", "watch", "create", "update", "patch", "delete")}
        | {
            (kind, verb)
            for kind in ("agentnodes", "agentapprovals", "agenttools")
            for verb in ("get", "list", "watch")
        },
    ),
    "tool-author": (
        set(),
        {("agenttools", verb) for verb in ("get", "list", "watch", "create", "update", "patch", "delete")},
    ),
    "approver": (
        set(),
        {
            ("agentapprovals", verb)
            for verb in (
                "get", "list", "watch", "update", "patch", "approve", "release", "resolve", "redrive", "edit-params"
            )
        }
        | {(kind, verb) for kind in ("agentruns", "agentnodes") for verb in ("get", "list", "watch")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("role", PEOPLE)
def test_a_persons_role_is_this_and_counts_for_these(helm: Helm, standard: list[Manifest], role: str) -> None:
    counts_for, want = PEOPLE[role]
    found = find_object(standard, "ClusterRole", f"{CLUSTER}-{role}")
    assert set(expand(found["rules"])) == {("agentrun.dev", kind, verb, "") for kind, verb in want}
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    labels = found["metadata"]["labels"]
    assert {label.removeprefix(prefix) for label in labels if label.startswith(prefix)} == counts_for
    alone = find_object(helm.render({"roles": {"aggregate": False}}), "ClusterRole", f"{CLUSTER}-{role}")
    assert not [label for label in alone["metadata"]["labels"] if label.startswith(prefix)]


def test_no_role_of_people_writes_what_is_the_operators(standard: list[Manifest]) -> None:
    for role in PEOPLE:
        for _, resource, verb, _ in granted(standard, "ClusterRole", f"{CLUSTER}-{role}"):
            assert "/" not in resource, "a status is the operator's"
            assert resource != "agentnodes" or verb in {"get", "list", "watch"}


def test_an_approver_has_every_virtual_verb_that_the_webhook_asks_for(helm: Helm, standard: list[Manifest]) -> None:
    virtual = {*VERBS.values(), EDIT_PARAMS}
    plain = {"get", "list", "watch", "update", "patch"}
    approver = granted(standard, "ClusterRole", f"{CLUSTER}-approver")
    assert {verb for _, kind, verb, _ in approver if kind == "agentapprovals"} == virtual | plain
    few = granted(helm.render({"roles": {"approverVerbs": ["approve"]}}), "ClusterRole", f"{CLUSTER}-approver")
    assert {verb for _, kind, verb, _ in few if kind == "agentapprovals"} == {"approve"} | plain
