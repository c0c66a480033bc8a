"""Local mode with everything real: embedded or given server, HTTP, processes, and the shop's own database as witness."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from agentrun.contract.ledger_keys import LedgerKeys
from agentrun.engine.settings import SchedulerSettings
from agentrun.local.local_run import LocalOutcome, LocalRun, LocalSetup
from support.manifest_texts import build_run, build_tools
from support.shop import RunningShop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[RunningShop]:
    with RunningShop(tmp_path) as running:
        yield running


def tools(shop: RunningShop, limits: str = "{}", effect: str = "Once", more: str = "") -> str:
    return f"""
    stock:
      type: http
      sideEffect: None
      limits: {limits}
      http: {{method: GET, url: "{shop.url}/warehouses/north/stock", allowPrivateAddresses: true}}
    note:
      type: http
      sideEffect: {effect}
      limits: {limits}
      http: {{url: "{shop.url}/notes", body: "{{params}}", allowPrivateAddresses: true{more}}}
    """


async def execute(run: str, tool_text: str, url: str | None = None, slots: int = 32) -> LocalOutcome:
    setup = LocalSetup(
        tools=build_tools(tool_text),
        runs=[build_run(run)],
        redis_url=url,
        slots=slots,
        settings=SchedulerSettings(coalesce=timedelta(seconds=1)),
    )
    return await LocalRun(setup).execute()


def many(count: int, tool: str, params: str, more: str = "") -> str:
    return (
        f"{{timeout: 5m, session: s, nodes: [{{name: many, type: FanOut, {more} fanOut: "
        f"{{items: {list(range(count))}, node: {{tool: {tool}, params: {params}}}}}}}]}}"
    )


def phases(outcome: LocalOutcome) -> dict[str, str]:
    return {node.spec.path: str(node.status.phase) for node in outcome.nodes if node.status}


@pytest.mark.slow
async def test_the_shop_never_sees_more_than_the_tools_concurrency_at_once(shop: RunningShop) -> None:
    outcome = await execute(many(500, "note", '{text: "n${item}"}'), tools(shop, "{concurrency: 10}"))
    assert set(phases(outcome).values()) == {"Succeeded"}
    assert len(outcome.nodes) == 501
    assert shop.count("notes") == 500
    assert 2 <= shop.stats["mostAtOnce"] <= 10
    by_path = {node.spec.path: node for node in outcome.nodes}
    assert [by_path[f"many.{at}"].spec.item for at in range(500)] == list(range(500))


@pytest.mark.slow
async def test_no_second_of_the_servers_clock_sees_more_calls_than_the_tools_rate(
    shop: RunningShop, empty_ledger_url: str
) -> None:
    outcome = await execute(
        many(50, "note", '{text: "n${item}"}'), tools(shop, "{ratePerSecond: 20}"), empty_ledger_url
    )
    assert set(phases(outcome).values()) == {"Succeeded"}
    with redis.Redis.from_url(empty_ledger_url, decode_responses=True) as client:
        audit = client.xrange(LedgerKeys("agentrun", "default").audit(outcome.runs[0].metadata.uid))
    claims = sorted(int(fields["atMs"]) for _, fields in audit if fields["event"] == "Claimed")
    assert len(claims) == 50
    for at, first in enumerate(claims):
        within = [claim for claim in claims[at:] if claim < first + 1000]
        assert len(within) <= 20


@pytest.mark.slow
async def test_five_hundred_equal_once_calls_have_one_effect_and_the_rest_are_replays(shop: RunningShop) -> None:
    outcome = await execute(many(500, "note", "{text: same}"), tools(shop))
    assert set(phases(outcome).values()) == {"Succeeded"}
    assert shop.count("notes") == 1
    reasons = [node.status.reason for node in outcome.nodes if node.status and node.spec.parent]
    assert (reasons.count("Completed"), reasons.count("Replayed")) == (1, 499)


@pytest.mark.slow
async def test_equal_once_calls_behind_an_unknown_outcome_ask_one_question(shop: RunningShop) -> None:
    outcome = await execute(
        many(100, "note", "{text: same}"), tools(shop, more=", headers: {X-Shop-Fault: drop-after}")
    )
    assert outcome.waits_for_human or str(outcome.runs[0].status and outcome.runs[0].status.phase) != "Succeeded"
    assert shop.count("notes") == 1
    asked = [approval for approval in outcome.approvals if approval.status and approval.status.state == "Open"]
    assert len(asked) == 1


async def test_values_arrive_exactly_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "echo_tool.py").write_text("def echo(value):\n    return value\n")
    value = '{n: 9007199254740993, five: 5.0, tiny: 0.1000000000000000055511, text: "a\\u2028b\\U0001F680", none: null}'
    setup = LocalSetup(
        tools=build_tools('echo: {python: {entryPoint: "echo_tool:echo"}, sideEffect: None}'),
        runs=[
            build_run(
                f'{{inputs: {{v: {value}}}, nodes: [{{name: a, tool: echo, params: {{value: "${{inputs.v}}"}}}}, '
                '{name: b, tool: echo, dependsOn: [a], params: {value: "${nodes.a.result}"}}]}'
            )
        ],
        import_paths=[tmp_path],
    )
    outcome = await LocalRun(setup).execute()
    by_path = {node.spec.path: node for node in outcome.nodes}
    assert by_path["b"].status is not None
    assert by_path["b"].status.result == setup.runs[0].spec.inputs["v"]
    assert by_path["b"].status.result["n"] == 9007199254740993
    assert by_path["b"].status.result["five"] == 5


CANARY = "canary-7f3a9b-secret-value"
ECHO_SERVER = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        said = json.dumps({"you": dict(self.headers), "url": self.path}).encode()
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
    def log_message(self, *a): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@pytest.mark.slow
def test_a_secret_that_is_echoed_in_answer_and_error_is_nowhere_to_be_found(
    tmp_path: Path, empty_ledger_url: str
) -> None:
    server = subprocess.Popen([sys.executable, "-c", ECHO_SERVER], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    try:
        http = (
            f'{{url: "http://127.0.0.1:{port}/STATUS/x", body: "{{params}}", allowPrivateAddresses: true, '
            'headersFrom: [{name: Authorization, prefix: "Bearer ", secretKeyRef: {name: shop, key: token}}]}'
        )
        manifest = "---\n".join(
            f"apiVersion: agentrun.dev/v1alpha1\nkind: AgentTool\nmetadata: {{name: t{status}}}\n"
            f"spec: {{type: http, sideEffect: None, retry: {{limit: 0}}, http: {http.replace('STATUS', str(status))}}}\n"
            for status in (200, 400, 500)
        )
        run = (
            "---\napiVersion: agentrun.dev/v1alpha1\nkind: AgentRun\nmetadata: {name: r}\n"
            "spec: {intent: x, onNodeFailure: Continue, nodes: "
            "[{name: a, tool: t200}, {name: b, tool: t400}, {name: c, tool: t500}]}\n"
        )
        (tmp_path / "all.yaml").write_text(manifest + run)
        answer = subprocess.run(
            [
                sys.executable,
                "-c",
                "from agentrun.cli.main import main; main()",
                "local",
                "run",
                "all.yaml",
                "-o",
                "json",
                "--log-level",
                "debug",
                "--redis",
                empty_ledger_url,
            ],
            cwd=tmp_path,
            env={**os.environ, "SECRET_SHOP_TOKEN": CANARY},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    found = json.loads(answer.stdout)
    assert {node["spec"]["path"]: node["status"]["phase"] for node in found["nodes"]} == {
        "a": "Succeeded",
        "b": "Dead",
        "c": "Dead",
    }
    assert "[redacted]" in answer.stdout
    assert CANARY not in answer.stdout
    assert CANARY not in answer.stderr
    with redis.Redis.from_url(empty_ledger_url) as client:
        dump = b"".join(client.dump(key) or b"" for key in client.scan_iter("*"))
        assert dump
        texts = [repr(client.xrange(key)) for key in client.scan_iter("*", _type="stream")]
        texts += [repr(client.hgetall(key)) for key in client.scan_iter("*", _type="hash")]
    assert not any(CANARY in text for text in texts)
