"""Generated files are what their sources say, and real objects fit the definitions."""

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from agentrun.contract import defaults
from agentrun.contract.failures import Effect, FailureClass, Reason
from agentrun.contract.node import NodePhase
from agentrun.contract.run import RunPhase
from agentrun.contract.tool import AfterLast, ToolType
from agentrun.crdgen import __main__ as crdgen
from agentrun.crdgen.__main__ import build_files
from agentrun.crdgen.enum_texts import member_texts
from agentrun.crdgen.generated_files import find_drift, write_files
from agentrun.crdgen.resources import RESOURCES
from agentrun.docgen import __main__ as docgen
from agentrun.docgen import default_table
from agentrun.docgen.__main__ import build_files as build_pages
from agentrun.local.yaml_documents import read_documents
from support.custom_resources import find_problems, read_schema
from support.scenario import Played, play

ROOT = Path(__file__).parents[2]


def test_committed_files_are_as_generated() -> None:
    assert find_drift({**build_files(ROOT), **build_pages(ROOT)}) == ""


def test_a_changed_file_is_reported_as_a_difference_and_written_anew(tmp_path: Path) -> None:
    path, missing = tmp_path / "a.yaml", tmp_path / "deep" / "b.yaml"
    path.write_text("a: 1\nb: 2\n", encoding="utf-8")
    files = {path: "a: 1\nb: 3\n", missing: "c: 4\n"}
    drift = find_drift(files)
    assert "-b: 2" in drift
    assert "+b: 3" in drift
    assert "+c: 4" in drift
    assert write_files(files) == [path, missing]
    assert find_drift(files) == ""
    assert write_files(files) == []


def copy_sources(root: Path) -> set[Path]:
    """Copy what is generated from files rather than from code; return the copies."""
    copies = {root / path.relative_to(ROOT): path for path in ROOT.glob("charts/*/values.schema.json")}
    for copy, path in copies.items():
        copy.parent.mkdir(parents=True)
        copy.write_text(path.read_text())
    return set(copies)


@pytest.mark.parametrize("main", [crdgen.main, docgen.main], ids=["crdgen", "docgen"])
def test_the_check_fails_with_the_difference_until_the_files_are_written(
    main: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = copy_sources(tmp_path)
    monkeypatch.setattr("sys.argv", ["generate", "--root", str(tmp_path), "--check"])
    with pytest.raises(SystemExit, match="run `make generate` and commit"):
        main()
    assert "(as generated)" in capsys.readouterr().out
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == sources, "a check changes nothing"
    monkeypatch.setattr("sys.argv", ["generate", "--root", str(tmp_path)])
    main()
    monkeypatch.setattr("sys.argv", ["generate", "--root", str(tmp_path), "--check"])
    main()


def test_generating_twice_gives_the_same_bytes() -> None:
    assert build_files(ROOT) == build_files(ROOT)


@pytest.mark.parametrize("enum", [Reason, NodePhase, RunPhase, Effect, FailureClass, AfterLast, ToolType])
def test_every_value_that_users_see_is_explained_where_it_is_defined(enum: type) -> None:
    assert list(member_texts(enum)) == [str(value) for value in enum]


def test_the_pages_name_every_reason_and_every_state() -> None:
    pages = {path.name: text for path, text in build_pages(ROOT).items()}
    for reason in Reason:
        assert f"### {reason}\n" in pages["reasons.md"]
    for phase in NodePhase:
        assert f"| {phase} |" in pages["states.md"]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_example_is_taken_by_the_definitions(path: Path) -> None:
    for document in read_documents(path.read_bytes()):
        value = document.value
        if isinstance(value, dict) and value.get("apiVersion") == "agentrun.dev/v1alpha1":
            assert find_problems(read_schema(str(value["kind"])), value) == []


def test_the_page_of_defaults_shows_every_number_of_the_table() -> None:
    shown = inspect.getsource(default_table)
    numbers = [name for name in vars(defaults) if name.isupper()]
    assert len(numbers) > 20
    assert [name for name in numbers if f"defaults.{name}" not in shown] == []


def test_a_definition_is_committed_for_every_kind_and_no_other_file_beside_them() -> None:
    assert {path.name for path in (ROOT / "crds").iterdir()} == {resource.file_name for resource in RESOURCES}


def objects_of(played: Played) -> list[tuple[str, dict[str, object]]]:
    outcome = played.scenario.outcome
    return [(found.kind, found.to_wire()) for found in (*outcome.runs, *outcome.nodes, *outcome.approvals)]


@pytest.mark.parametrize(
    "run, tools, script",
    [
        pytest.param(
            "{inputs: {big: 9007199254740993, pi: 3.14159}, nodes: [{name: a, tool: t, params: {x: '${inputs.big}'}}]}",
            "t: {sideEffect: Once, cost: {perCall: '0.25'}}",
            "{tools: {t: [{failure: {effect: NotExecuted}}, {result: {n: 1.5, deep: [null, true]}}]}}",
            id="retried",
        ),
        pytest.param(
            "nodes: [{name: f, type: FanOut, fanOut: {items: [1, 2, 3], node: {tool: t, params: {i: '${item}'}}}}]",
            "t: {}",
            "{tools: {t: [{result: 1}, {result: 2}, {result: 3}]}}",
            id="fanned out",
        ),
        pytest.param(
            "nodes: [{name: ask, type: Approval, approval: {message: go on?}}, {name: t, tool: t, dependsOn: [ask]}]",
            "t: {approval: {required: Always}}",
            "{tools: {t: [{result: 1}]}, humans: [{node: ask, verdict: Approve, by: Ada}, {node: t, verdict: Reject}]}",
            id="asked",
        ),
    ],
)
def test_every_object_that_a_run_leaves_behind_is_taken_by_the_definitions(run: str, tools: str, script: str) -> None:
    objects = objects_of(play(run, tools, script))
    assert {kind for kind, _ in objects} >= {"AgentRun", "AgentNode"}
    for kind, value in objects:
        assert find_problems(read_schema(kind), value) == [], kind


def test_the_definitions_are_plain_yaml_of_version_1_1_and_1_2() -> None:
    for path in (ROOT / "crds").glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        new, old = YAML(typ="safe", pure=True), YAML(typ="safe", pure=True)
        old.version = (1, 1)
        assert new.load(text) == old.load(text)
