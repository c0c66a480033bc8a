"""In which order Jobs are looked at, and that the many which have ended cost next to nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from agentrun.contract.exact_json import JsonObject
from agentrun.contract.run import Priority
from agentrun.contract.tool import AgentToolSpec
from agentrun.controller.api_client import ApiClient
from agentrun.controller.jobs.job_keeper import JobKeeper
from agentrun.controller.jobs.job_manifests import JobSettings
from agentrun.controller.pools.pool_manifests import LedgerAccess
from agentrun.controller.pools.pool_settings import PoolSettings
from agentrun.decisions.jobs.job_wishes import JobKey, JobStage, JobWish
from agentrun.engine.cluster_port import QuotaExceededError
from agentrun.engine.job_desk import JobSurvey

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Api:
    """An API server with room for so many Jobs."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.created: list[str] = []
        self.tried: list[str] = []
        self.broken: set[str] = set()
        self.asked_about: list[str] = []

    async def request(self, verb: str, path: str, body: JsonObject | None = None, **_: Any) -> JsonObject:
        if not path.endswith("/jobs") or body is None:
            return {}
        meta: Any = body["metadata"]
        self.tried.append(meta["name"])
        if meta["name"] in self.broken:
            raise RuntimeError("a bug of ours")
        if len(self.created) >= self.room:
            raise QuotaExceededError("narrow")
        self.created.append(meta["name"])
        return {**body, "metadata": {**meta, "uid": f"uid-{meta['name']}", "creationTimestamp": NOW.isoformat()}}

    async def list_all(self, path: str, params: Any = None) -> tuple[list[JsonObject], str]:
        self.asked_about.append(params["fieldSelector"])
        told: JsonObject = {"reason": "FailedCreate", "message": "pods are forbidden: exceeded quota: narrow"}
        return [told], "1"


class Board:
    """What attempts want, and what is told of it."""

    def __init__(self, *wishes: JobWish) -> None:
        self.wishes = {wish.key: wish for wish in wishes}
        self.notes: dict[JobKey, str] = {}
        self.leads = True

    def survey_jobs(self) -> JobSurvey:
        return JobSurvey(complete=True, wishes=self.wishes)

    async def still_leads(self) -> bool:
        return self.leads

    def note_jobs(self, notes: Any) -> None:
        self.notes = dict(notes)


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time


class Access:
    """Everybody has theirs."""

    async def ensure(self, namespace: str) -> LedgerAccess:
        return LedgerAccess("ledger", "1")


def wish(name: str, priority: Priority = Priority.P2) -> JobWish:
    return JobWish(
        key=JobKey("shop", name),
        stage=JobStage.START,
        queue=f"shared.{'0' * 32}",
        node=name,
        node_uid=f"node-{name}",
        seq=1,
        run_uid="run",
        tool="act",
        priority=priority,
        spec=AgentToolSpec.model_validate(
            {"type": "python", "python": {"entryPoint": "m:f"}, "execution": {"mode": "Job"}}
        ),
        lookup=None,
        longest_call=timedelta(seconds=20),
        patience=timedelta(minutes=30),
    )


def build_keeper(api: Api, board: Board, clock: Clock) -> JobKeeper:
    settings = JobSettings(PoolSettings("agentrun", "worker:1"))
    keeper = JobKeeper(cast(ApiClient, api), board, Access(), settings, clock, [None])
    for watch in (*keeper._job_watches, *keeper._pod_watches):
        watch.complete = True
    return keeper


async def test_where_a_quota_has_room_for_some_the_urgent_ones_have_it() -> None:
    board = Board(wish("a", Priority.P3), wish("b", Priority.P2), wish("c", Priority.P0), wish("d", Priority.P0))
    api, clock = Api(room=2), Clock()
    keeper = build_keeper(api, board, clock)
    await keeper._look()
    assert api.created == ["c", "d"]
    assert {key.name for key in board.notes} == {"a", "b"}
    assert all("narrow" in note for note in board.notes.values())
    # Nobody knocks at the door all the time.
    tried = len(api.tried)
    await keeper._look()
    assert len(api.tried) == tried
    clock.time += timedelta(seconds=20)
    api.room = 3
    await keeper._look()
    assert api.created == ["c", "d", "b"]
    assert "quota narrow" in board.notes[JobKey("shop", "a")]


async def test_events_are_asked_for_about_jobs_without_a_pod_alone_and_now_and_then() -> None:
    board, api, clock = Board(wish("a")), Api(room=9), Clock()
    keeper = build_keeper(api, board, clock)
    for _ in range(30):
        await keeper._look()
        clock.time += timedelta(seconds=1)
    assert api.asked_about == ["involvedObject.uid=uid-a"] * 3
    assert "its pods are refused: pods are forbidden: exceeded quota: narrow" in board.notes[JobKey("shop", "a")]
    (watch,) = keeper._pod_watches
    labels: JsonObject = {"agentrun.dev/job": "a", "agentrun.dev/node-uid": "node-a"}
    watch.note({"metadata": {"name": "a-x", "namespace": "shop", "labels": labels}, "status": {"phase": "Pending"}})
    keeper._note_pods()
    clock.time += timedelta(seconds=30)
    await keeper._look()
    assert len(api.asked_about) == 3
    assert not board.notes


async def test_a_leader_that_was_overtaken_makes_and_takes_away_nothing() -> None:
    board, api, clock = Board(wish("a")), Api(room=9), Clock()
    keeper = build_keeper(api, board, clock)
    await keeper._look()
    board.leads, board.wishes = False, {wish("b").key: wish("b")}
    for _ in range(30):
        await keeper._look()
        clock.time += timedelta(seconds=1)
    assert api.created == ["a"]
    (watch,) = keeper._job_watches
    assert set(watch.found) == {("shop", "a")}
    board.leads = True
    await keeper._look()
    assert api.created == ["a", "b"]
    assert set(watch.found) == {("shop", "b")}


async def test_a_bug_about_one_job_keeps_no_other_waiting_and_is_told() -> None:
    board, api = Board(wish("a"), wish("b")), Api(room=9)
    api.broken = {"a"}
    await build_keeper(api, board, Clock())._look()
    assert api.created == ["b"]
    assert board.notes == {JobKey("shop", "a"): "RuntimeError: a bug of ours"}


async def test_jobs_that_have_ended_are_read_once_and_deleted_when_their_time_has_come() -> None:
    board, api, clock = Board(wish("a")), Api(room=9), Clock()
    keeper = build_keeper(api, board, clock)
    await keeper._look()
    (watch,) = keeper._job_watches
    ended = {"type": "Complete", "status": "True", "lastTransitionTime": NOW.isoformat()}
    watch.note({**watch.found["shop", "a"], "status": {"conditions": [ended]}})
    board.wishes = {}
    await keeper._look()
    looked = replace(keeper._jobs[JobKey("shop", "a")].memory)
    clock.time += timedelta(minutes=59)
    await keeper._look()
    assert keeper._jobs[JobKey("shop", "a")].memory == looked
    assert watch.found
    clock.time += timedelta(minutes=1)
    await keeper._look()
    assert not watch.found
    await keeper._look()
    assert not keeper._jobs
