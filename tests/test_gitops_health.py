"""What docs/gitops.md tells Argo CD about runs: the Lua text itself, run by the Lua of the ledger's server.

Argo CD's Lua is gopher-lua, which is Lua 5.1 as the server's is; ``obj`` is the object.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import redis

from agentrun.contract.run import TERMINAL_RUN_PHASES, RunPhase

PAGE = Path(__file__).parents[1] / "docs" / "gitops.md"
WANTED = {
    RunPhase.PENDING: "Progressing",
    RunPhase.RUNNING: "Progressing",
    RunPhase.SUSPENDED: "Suspended",
    RunPhase.SUCCEEDED: "Healthy",
    RunPhase.CANCELLED: "Healthy",
    RunPhase.FAILED: "Degraded",
    RunPhase.DEAD: "Degraded",
    RunPhase.REJECTED: "Degraded",
}


@pytest.fixture(scope="module")
def script() -> str:
    (lua,) = re.findall(r"^```lua\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return f"local obj = cjson.decode(ARGV[1])\nlocal function health()\n{lua}\nend\nreturn cjson.encode(health())"


def judge(url: str, script: str, status: dict[str, Any] | None, generation: int = 1) -> dict[str, str]:
    found: dict[str, Any] = {"metadata": {"generation": generation}}
    if status is not None:
        found["status"] = status
    with redis.Redis.from_url(url) as server:
        told: dict[str, str] = json.loads(server.eval(script, 0, json.dumps(found)))  # type: ignore[arg-type]
    return told


@pytest.mark.parametrize("phase", RunPhase)
def test_every_phase_has_its_health(ledger_url: str, script: str, phase: RunPhase) -> None:
    told = judge(ledger_url, script, {"phase": phase, "observedGeneration": 1})
    assert told == {"status": WANTED[phase], "message": phase}
    assert (told["status"] in {"Healthy", "Degraded"}) == (phase in TERMINAL_RUN_PHASES)


@pytest.mark.parametrize(
    "status, generation, want",
    [
        pytest.param(None, 1, {"status": "Progressing", "message": "Not looked at yet"}, id="no status"),
        pytest.param({}, 1, {"status": "Progressing", "message": "Not looked at yet"}, id="empty status"),
        pytest.param(
            {"phase": "Failed", "reason": "NodeDead", "message": "pay: refused", "observedGeneration": 1},
            1,
            {"status": "Degraded", "message": "Failed (NodeDead): pay: refused"},
            id="with its cause",
        ),
        pytest.param(
            {"phase": "Suspended", "observedGeneration": 1},
            2,
            {"status": "Progressing", "message": "Suspended"},
            id="a change that was not looked at",
        ),
        pytest.param(
            {"phase": "Tomorrow", "observedGeneration": 1},
            1,
            {"status": "Unknown", "message": "Tomorrow"},
            id="a phase of a later version",
        ),
    ],
)
def test_what_else_a_run_may_show(
    ledger_url: str, script: str, status: dict[str, Any] | None, generation: int, want: dict[str, str]
) -> None:
    assert judge(ledger_url, script, status, generation) == want
