"""The ledger emptied while fifty runs are at work on real worker processes, one of which dies: nothing happens twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from redis.asyncio import Redis

from agentrun.contract.approval import Decision, Verdict
from agentrun.contract.exact_json import JsonObject
from agentrun.contract.failures import Effect
from kills.bookings import Moment
from kills.kill_site import Site, until
from kills.nursery import Hatchery
from kills.table import keep_table
from support.manifest_texts import build_run, build_tool

pytestmark = [pytest.mark.slow, pytest.mark.kills]

RUNS = 50
WORKERS, SLOTS = 3, 8
IN_HAND = WORKERS * SLOTS
READING: JsonObject = {
    "completed": {"when": {"path": "result.state", "op": "eq", "value": "done"}, "result": "result.booking"},
    "running": {"when": {"path": "result.state", "op": "eq", "value": "running"}},
    "notExecuted": {"when": {"path": "result.state", "op": "eq", "value": "unknown"}},
}


def build_fifty_tools(url: str) -> list[JsonObject]:
    """Return the specs of a Once tool with a lookup, one without, what looks, and an Idempotent one."""
    http: JsonObject = {"method": "POST", "body": "{params}", "allowPrivateAddresses": True}
    acts: JsonObject = {"type": "http", "timeout": "40s", "cost": {"perCall": "0.01"}}
    acts["http"] = {**http, "url": url + "/book/{word}"}
    params: JsonObject = {"word": "${params.word}", "key": "${key}"}
    recovery: JsonObject = {"lookup": {"tool": "look", "params": params}, "outcome": READING, "pollInterval": "200ms"}
    look: JsonObject = {"method": "GET", "url": url + "/look/{word}/{key}", "allowPrivateAddresses": True}
    again: JsonObject = {**http, "url": url + "/read/{word}"}
    return [
        {"name": "blind", **acts},
        {"name": "looked", **acts, "recovery": recovery},
        {"name": "look", "type": "http", "sideEffect": "None", "timeout": "5s", "http": look},
        {"name": "again", "type": "http", "sideEffect": "Idempotent", "timeout": "20s", "http": again},
    ]


def ends_of(site: Site, runs: list[str]) -> Counter[tuple[str, str, str]]:
    """Count tool, phase and reason of the first nodes."""
    found: Counter[tuple[str, str, str]] = Counter()
    for number, run in enumerate(runs):
        status = site.node(run)
        if status is not None:
            found["looked" if number % 2 else "blind", str(status.phase), str(status.reason)] += 1
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["emptied in place", "killed and started from nothing"])
async def test_a_ledger_that_is_emptied_under_fifty_runs_has_no_effect_twice(
    how: str, tmp_path: Path, hatchery: Hatchery
) -> None:
    runs = [f"r{number}" for number in range(RUNS)]
    async with Site(tmp_path / "site", hatchery) as site:
        words = [site.provider.open(run, Moment.LINGERS) for run in runs]
        later = [site.provider.open(f"{run}-b") for run in runs]
        for word in words[: RUNS - IN_HAND]:
            word.released.set()
        tools = [build_tool(str(spec.pop("name")), spec) for spec in build_fifty_tools(site.provider.url)]
        pids = [(await site.hatch("shared", f"w{number}", slots=SLOTS))[0] for number in range(WORKERS)]
        for number, run in enumerate(runs):
            tool = "looked" if number % 2 else "blind"
            nodes = f"""[{{name: act, tool: {tool}, params: {{word: {run}}}}},
                {{name: b, tool: again, dependsOn: [act], params: {{word: {run}-b}}}}]"""
            site.apply(tools if number == 0 else [], build_run(f"{{onNodeFailure: Continue, nodes: {nodes}}}", run))

        def in_hand() -> int:
            return sum(1 for word in words if word.requests and not word.released.is_set())

        await until(lambda: in_hand() == IN_HAND, 90, lambda: (in_hand(), ends_of(site, runs)))
        before = ends_of(site, runs)
        in_line = {run for run, word in zip(runs, words, strict=True) if not word.requests}
        if how == "emptied in place":
            async with Redis.from_url(site.server.url) as client:
                await client.flushall()
        else:
            await site.restart_server(emptied=True)
        site.kill(pids[0])
        for word in words:
            word.released.set()
        await site.hatch("shared", "w0", slots=SLOTS)

        def settled() -> bool:
            return all((status := site.node(run)) and status.phase in ("Succeeded", "Quarantined") for run in runs)

        await until(settled, 150, lambda: ends_of(site, runs))
        ends = ends_of(site, runs)
        quarantined = [run for run in runs if (status := site.node(run)) and status.phase == "Quarantined"]
        for run in quarantined:
            effect = Effect.EXECUTED if site.provider.ledgers[run].booked else Effect.NOT_EXECUTED
            said = Decision(verdict=Verdict.DISCARD, effect=effect, decided_by="Ada")
            await until(lambda run=run, said=said: site.decide(run, said), 10, lambda run=run: run)  # type: ignore[misc]
        await until(lambda: all(site.has_ended(run) for run in runs), 90, lambda: ends_of(site, runs))
        remains = await site.find_remains(within=60)
    rows = [f"| {tool} | {phase} ({reason}) | {count} |" for (tool, phase, reason), count in sorted(ends.items())]
    keep_table(f"ledger {how} under fifty runs", [f"before: {before}", *rows])
    booked = {run: len(word.booked) for run, word in zip(runs, words, strict=True)}
    assert max(booked.values()) == 1
    assert {run for run, count in booked.items() if not count} <= set(quarantined)
    # A human's matter is only what the dead worker had in hand where nobody can be asked, and orders that stood in line:
    # whether they had been taken cannot be told any more.
    begun = [run for run in quarantined if run not in in_line]
    assert len(begun) <= SLOTS
    assert all(runs.index(run) % 2 == 0 for run in begun)
    assert sum(count for (_, _, reason), count in ends.items() if reason == "RecoveredCompleted") >= IN_HAND - SLOTS
    assert all(word.read for run, word in zip(runs, later, strict=True) if run not in quarantined)
    assert not remains
