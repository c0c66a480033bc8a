"""A real worker process: how it starts, stops and dies, and what the next one finds out."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentrun.contract.orders import LookupOrder, Order, ReportKind
from agentrun.contract.tool import AgentToolSpec
from support.orders import NAMESPACE
from support.tool_calls import build_python_tool
from support.worker_rig import WorkerRig, rigged

TOOLS = Path(__file__).parent / "tools"
WORKER = Path(sys.executable).with_name("agentrun-worker")

pytestmark = pytest.mark.slow


@asynccontextmanager
async def process(rig: WorkerRig | None, *arguments: str, **environment: str) -> AsyncIterator[Process]:
    """Start a worker, by environment what a rig knows; it is killed at the end if it still runs."""
    told = {"AGENTRUN_WORKER_IMPORT_PATHS": str(TOOLS), "AGENTRUN_WORKER_DURABILITY": "Accept"}
    if rig is not None:
        told |= {
            "AGENTRUN_WORKER_REDIS": rig.url,
            "AGENTRUN_WORKER_INSTALL": rig.settings.install,
            "AGENTRUN_WORKER_NAMESPACE": NAMESPACE,
        }
    told |= {f"AGENTRUN_WORKER_{name}": value for name, value in environment.items()}
    started = await asyncio.create_subprocess_exec(
        WORKER, "run", *arguments, env=os.environ | told, stdout=PIPE, stderr=PIPE
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def end_of(started: Process) -> tuple[int, str]:
    async with asyncio.timeout(20):
        _, told = await started.communicate()
    assert started.returncode is not None
    return started.returncode, told.decode()


async def appears(path: Path) -> None:
    async with asyncio.timeout(20):
        while not path.exists():
            await asyncio.sleep(0.01)


@pytest.fixture
async def rig(ledger_url: str) -> AsyncIterator[WorkerRig]:
    async with rigged(ledger_url) as rig:
        yield rig


class Transfer:
    """A call whose only trace is a line in a file, and the files by which it is steered."""

    def __init__(self, folder: Path) -> None:
        self.ledger, self.began, self.go = folder / "ledger", folder / "began", folder / "go"

    @property
    def effects(self) -> int:
        return len(self.ledger.read_text().splitlines()) if self.ledger.exists() else 0

    def tool(self, function: str) -> AgentToolSpec:
        outcome = {
            "completed": {"when": {"path": "result.state", "op": "eq", "value": "done"}, "result": "result.transfer"},
            "notExecuted": {"when": {"path": "result.state", "op": "eq", "value": "unknown"}},
        }
        recovery = {"lookup": {"tool": "lookup", "params": {}}, "outcome": outcome}
        return build_python_tool(f"lookup_tools:{function}", recovery=recovery)

    async def send(self, rig: WorkerRig, function: str = "transfer") -> Order:
        params = {"ledger": str(self.ledger), "began": str(self.began), "go": str(self.go)}
        return await rig.send(self.tool(function), params=params)

    async def send_recovery(self, rig: WorkerRig, order: Order) -> None:
        lookup = build_python_tool("lookup_tools:find_transfer", sideEffect="None")
        await rig.ledger.put_tool(NAMESPACE, "sha256:lookup", lookup.to_wire())
        asks = LookupOrder(tool="lookup", tool_digest="sha256:lookup", params={"ledger": str(self.ledger)})
        await rig.send_recovery(order, lookup=asks)


@pytest.fixture
def transfer(tmp_path: Path) -> Transfer:
    return Transfer(tmp_path)


async def test_sigterm_lets_the_call_end_and_ends_in_order(rig: WorkerRig, transfer: Transfer) -> None:
    await transfer.send(rig)
    async with process(rig, "--name", "w") as started:
        await appears(transfer.began)
        started.send_signal(signal.SIGTERM)
        transfer.go.touch()
        code, told = await end_of(started)
    assert code == 0, told
    outcome = (await rig.report(ReportKind.COMMITTED)).outcome
    assert outcome is not None
    assert outcome.result == {"id": 1}
    assert await rig.ledger.find_pool_slots(NAMESPACE, "shared") == 0


async def test_a_call_that_outlives_the_drain_ends_with_its_process(rig: WorkerRig, transfer: Transfer) -> None:
    await transfer.send(rig)
    async with process(rig, DRAIN_GRACE="100ms") as started:
        await appears(transfer.began)
        started.send_signal(signal.SIGTERM)
        code, told = await end_of(started)
    assert code == 1, told
    outcome = (await rig.report(ReportKind.COMMITTED)).outcome
    assert outcome is not None
    assert outcome.effect == "Unknown"


async def test_a_second_signal_ends_the_worker_at_once(rig: WorkerRig, transfer: Transfer) -> None:
    await transfer.send(rig)
    async with process(rig) as started:
        await appears(transfer.began)
        started.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.1)  # two signals in one moment are one
        started.send_signal(signal.SIGTERM)
        code, told = await end_of(started)
    assert code == 130, told
    transfer.go.touch()
    await asyncio.sleep(0.2)
    assert transfer.effects == 0


@pytest.mark.parametrize(
    "function, want_effects, want",
    [("transfer", 0, ("NotExecuted", "RecoveredNotExecuted")), ("transfer_and_hang", 1, ("Executed", ""))],
    ids=["after the claim, before the effect", "after the effect"],
)
async def test_the_next_worker_finds_out_what_a_killed_one_did(
    rig: WorkerRig, transfer: Transfer, function: str, want_effects: int, want: tuple[str, str]
) -> None:
    order = await transfer.send(rig, function)
    async with process(rig, "--name", "w") as killed:
        await appears(transfer.began)
        killed.kill()
        await end_of(killed)
    # Whatever it was about to do: nobody does it any more.
    transfer.go.touch()
    await asyncio.sleep(0.2)
    assert transfer.effects == want_effects
    async with process(rig, "--name", "w", "--once") as idle:
        # A new incarnation under the same name: the old one is proven gone.
        assert (await end_of(idle))[0] == 0
    await transfer.send_recovery(rig, order)
    async with process(rig, "--name", "w", "--once") as following:
        code, told = await end_of(following)
    assert code == 0, told
    report = await rig.report(ReportKind.COMMITTED)
    assert report.recovering
    assert report.outcome is not None
    failure = report.outcome.failure
    assert (str(report.outcome.effect), failure.reason if failure else "") == want
    assert transfer.effects == want_effects


async def test_not_executed_is_not_believed_while_the_old_worker_may_live(rig: WorkerRig, transfer: Transfer) -> None:
    order = await transfer.send(rig)
    async with process(rig, "--name", "old") as old:
        await appears(transfer.began)
        old.send_signal(signal.SIGSTOP)
        await transfer.send_recovery(rig, order)
        async with process(rig, "--name", "new", "--once") as new:
            assert (await end_of(new))[0] == 0
        outcome = (await rig.report(ReportKind.COMMITTED)).outcome
        assert outcome is not None
        assert outcome.effect == "Unknown"
        old.send_signal(signal.SIGCONT)


async def test_once_ends_when_nothing_is_left(rig: WorkerRig) -> None:
    for number in range(3):
        await rig.send(build_python_tool("table_tools:add"), node=f"node-{number}", params={"a": number})
    async with process(rig, "--once", "--slots", "2") as started:
        code, told = await end_of(started)
    assert code == 0, told
    results = [(await rig.report(ReportKind.COMMITTED)).outcome for _ in range(3)]
    assert sorted(outcome.result["sum"] for outcome in results if outcome) == [1, 2, 3]


# --- one order, as the pod of a Job carries it out


async def test_one_order_is_carried_out_and_the_rest_is_left(rig: WorkerRig) -> None:
    for number in range(2):
        await rig.send(build_python_tool("table_tools:add"), node=f"node-{number}", params={"a": number})
    async with process(rig, "--one-order", "--slots", "8") as started:
        code, told = await end_of(started)
    assert code == 0, told
    await rig.report(ReportKind.COMMITTED)
    assert await rig.all_reports() == ["Claimed", "Committed"]
    assert sum((await rig.ledger.find_backlog(NAMESPACE, "shared", "act")).values()) == 1
    assert await rig.ledger.find_pool_slots(NAMESPACE, "shared") == 0


async def test_an_order_whose_call_fails_is_carried_out_as_well(rig: WorkerRig) -> None:
    await rig.send(build_python_tool("table_tools:no_such_function"))
    async with process(rig, "--one-order") as started:
        code, told = await end_of(started)
    assert code == 0, told
    outcome = (await rig.report(ReportKind.COMMITTED)).outcome
    assert outcome is not None
    assert outcome.failure is not None


async def test_an_order_that_comes_later_is_waited_for_with_one_slot(rig: WorkerRig) -> None:
    await rig.begin()
    async with process(rig, "--one-order", "--slots", "8") as started:
        async with asyncio.timeout(20):
            while await rig.ledger.find_pool_slots(NAMESPACE, "shared") != 1:
                await asyncio.sleep(0.05)
        await rig.send(build_python_tool("table_tools:add"), params={"a": 1})
        code, told = await end_of(started)
    assert code == 0, told
    await rig.report(ReportKind.COMMITTED)


async def test_who_is_told_to_end_before_the_order_came_has_done_its_work(rig: WorkerRig) -> None:
    await rig.begin()
    async with process(rig, "--one-order") as started:
        async with asyncio.timeout(20):
            while await rig.ledger.find_pool_slots(NAMESPACE, "shared") != 1:
                await asyncio.sleep(0.05)
        started.send_signal(signal.SIGTERM)
        code, told = await end_of(started)
    assert code == 0, told
    assert await rig.ledger.find_pool_slots(NAMESPACE, "shared") == 0


async def test_sigterm_lets_the_one_call_end(rig: WorkerRig, transfer: Transfer) -> None:
    await transfer.send(rig)
    async with process(rig, "--one-order") as started:
        await appears(transfer.began)
        started.send_signal(signal.SIGTERM)
        transfer.go.touch()
        code, told = await end_of(started)
    assert code == 0, told
    outcome = (await rig.report(ReportKind.COMMITTED)).outcome
    assert outcome is not None
    assert outcome.result == {"id": 1}


# --- one order of a tool of type container, whose program runs in a container beside this one


class Container:
    """The folders that both containers see; the helper in the tool's own is started by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("call", "answer", "helper"):
            (folder / name).mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "agentrun_worker", "helper", str(folder / "helper")], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        self.told = {"CALL_DIRECTORY": str(folder / "call"), "ANSWER_DIRECTORY": str(folder / "answer")}
        self.started: subprocess.Popen[bytes] | None = None

    def start(self, *command: str) -> None:
        helper = str(self.folder / "helper" / "busybox")
        script = str(self.folder / "helper" / "container_helper.sh")
        folders = [self.told["CALL_DIRECTORY"], self.told["ANSWER_DIRECTORY"]]
        self.started = subprocess.Popen([helper, "sh", script, helper, *folders, *command], start_new_session=True)


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    if shutil.which("busybox") is None:
        pytest.skip("needs busybox, which a worker's image has at a fixed place")
    made = Container(tmp_path)
    yield made
    if made.started is not None:
        if made.started.poll() is None:
            os.killpg(made.started.pid, signal.SIGKILL)
        made.started.wait()


def build_container_tool() -> AgentToolSpec:
    return AgentToolSpec.model_validate(
        {
            "type": "container",
            "container": {"image": "sums:1", "command": ["sum"]},
            "execution": {"mode": "Job"},
        }
    )


async def test_no_order_is_asked_for_before_the_tools_container_runs(rig: WorkerRig, container: Container) -> None:
    await rig.begin()
    async with process(rig, "--one-order", **container.told) as started:
        async with asyncio.timeout(20):
            while not (container.folder / "call" / "alive").exists():
                await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        assert await rig.ledger.find_pool_slots(NAMESPACE, "shared") == 0
        container.start("/bin/sh", "-c", 'cp "$AGENTRUN_PARAMS" "$AGENTRUN_OUTPUT"')
        async with asyncio.timeout(20):
            while await rig.ledger.find_pool_slots(NAMESPACE, "shared") != 1:
                await asyncio.sleep(0.05)
        await rig.send(build_container_tool(), params={"a": 1})
        code, told = await end_of(started)
    assert code == 0, told
    outcome = (await rig.report(ReportKind.COMMITTED)).outcome
    assert outcome is not None
    assert outcome.result == {"a": 1}
    assert container.started is not None
    assert container.started.wait(5) == 0


async def test_a_container_without_its_program_takes_no_order(rig: WorkerRig, container: Container) -> None:
    await rig.begin()
    container.start("/no/such/program")
    async with process(rig, "--one-order", **container.told) as started:
        code, told = await end_of(started)
    assert (code, "/no/such/program: no such program" in told) == (8, True), told
    assert await rig.all_reports() == []


async def test_a_worker_that_is_killed_takes_its_program_with_it_and_nothing_is_run_again(
    rig: WorkerRig, container: Container, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    container.start("/bin/sh", "-c", f"echo x >> {began}; sleep 120")
    await rig.send(build_container_tool())
    async with process(rig, "--one-order", **container.told) as started:
        await appears(began)
        started.kill()
        await end_of(started)
    assert container.started is not None
    assert await asyncio.to_thread(container.started.wait, 40) != 0
    async with process(rig, "--one-order", ORDER_PATIENCE="2s") as another:
        code, told = await end_of(another)
    assert code == 7, told
    assert began.read_text() == "x\n"


async def test_no_order_within_its_patience_is_said_by_the_exit_code(rig: WorkerRig) -> None:
    await rig.begin()
    async with process(rig, "--one-order", ORDER_PATIENCE="300ms") as started:
        code, told = await end_of(started)
    assert (code, "no_order_came" in told) == (7, True), told


@pytest.mark.parametrize(
    "arguments, environment, want, said",
    [
        (["--once", "--redis", "redis://:hunter2@127.0.0.1:1/0"], {"IDLE_PATIENCE": "200ms"}, 6, "ledger_unavailable"),
        (["--one-order", "--redis", "redis://127.0.0.1:1/0"], {"ORDER_PATIENCE": "200ms"}, 6, "ledger_unavailable"),
        (["--one-order", "--once"], {}, 2, "does not go with --once"),
        (["--slots", "0"], {}, 2, "AGENTRUN_WORKER_SLOTS"),
        (["--pool", "No Pool"], {}, 2, "AGENTRUN_WORKER_POOL"),
        (["--nonsense"], {}, 2, ""),
        (["--redis", "127.0.0.1:6379"], {}, 2, "--redis (AGENTRUN_WORKER_REDIS): '127.0.0.1:6379' has no scheme"),
        (["--redis", "redis://:hunter2@127.0.0.1:x"], {}, 2, "'redis://***@127.0.0.1:x' cannot be read"),
        (["--import-path", "/nope"], {}, 2, "--import-path (AGENTRUN_WORKER_IMPORT_PATHS): '/nope': is not there"),
        (["--secrets-directory", "/etc/passwd"], {}, 2, "'/etc/passwd': is no folder"),
        (["--namespace", "Bad_Name"], {}, 2, "--namespace (AGENTRUN_WORKER_NAMESPACE): 'Bad_Name' cannot be used"),
        ([], {"HEARTBEAT": "5"}, 2, "AGENTRUN_WORKER_HEARTBEAT"),
        ([], {"DRAIN_GRACE": "0s"}, 2, "AGENTRUN_WORKER_DRAIN_GRACE"),
    ],
)
async def test_what_cannot_be_used_is_named_with_an_exit_code(
    arguments: list[str], environment: dict[str, str], want: int, said: str
) -> None:
    async with process(None, *arguments, **environment) as started:
        code, told = await end_of(started)
    assert (code, said in told) == (want, True), told
    assert "hunter2" not in told
