"""Names of child objects are valid, deterministic and never shared, whatever the run is called."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.execution import order_identity
from agentrun.contract.names import approval_object_name, job_object_name, node_object_name, retry_run_name

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
UID = "1e2feb89-414c-343c-1027-c4d1c386bbc4"
RUN_NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", fullmatch=True)
PATHS = st.from_regex(r"[a-z][a-z0-9-]{0,62}(\.[0-9]{1,4}(\.[a-z][a-z0-9-]{0,62})?)?", fullmatch=True)


@given(RUN_NAMES, PATHS, st.uuids().map(str))
def test_names_of_nodes_and_their_approvals_are_dns_labels(run: str, path: str, uid: str) -> None:
    node = node_object_name(run, uid, path)
    assert DNS_LABEL.fullmatch(node), node
    assert node == node_object_name(run, uid, path)
    approval = approval_object_name(node, "q1")
    assert DNS_LABEL.fullmatch(approval), approval
    assert approval != node


@given(RUN_NAMES, PATHS, st.uuids().map(str))
def test_a_jobs_name_leaves_room_for_the_name_of_its_pod(run: str, path: str, uid: str) -> None:
    node = node_object_name(run, uid, path)
    names = {job_object_name(node, order_identity(uid, seq, "digest")) for seq in range(1, 4)}
    assert len(names) == 3
    for name in names:
        assert DNS_LABEL.fullmatch(f"{name}-x7k2p"), name


@pytest.mark.parametrize(
    "run, path",
    [
        pytest.param("r" * 253, "a" * 63, id="as long as names get"),
        pytest.param("r" * 51 + "-x", "a", id="cut exactly after a dash"),
        pytest.param("a.b.c", "check.3.price", id="dots"),
        pytest.param("r", "a--", id="dashes at the end of a path"),
        pytest.param("1", "a", id="a digit first"),
    ],
)
def test_awkward_names_are_cut_to_valid_ones(run: str, path: str) -> None:
    name = node_object_name(run, UID, path)
    assert DNS_LABEL.fullmatch(name), name
    assert "--" not in name.removesuffix(name[-10:]) or "--" in f"{run}-{path}"


def test_a_readable_name_begins_with_run_and_node() -> None:
    assert node_object_name("transfer", UID, "check.3").startswith("transfer-check-3-")


def test_long_names_that_begin_alike_do_not_collide() -> None:
    run = "r" * 100
    names = {
        node_object_name(run, UID, "a" * 62 + "b"),
        node_object_name(run, UID, "a" * 62 + "c"),
        node_object_name(run, UID.replace("1", "2"), "a" * 62 + "b"),
    }
    assert len(names) == 3
    assert len({name[:50] for name in names}) == 1


def test_paths_that_differ_only_in_dots_and_dashes_do_not_collide() -> None:
    assert node_object_name("r", UID, "a.1.b") != node_object_name("r", UID, "a-1-b")
    assert node_object_name("r-a", UID, "b") != node_object_name("r", UID, "a-b")


def test_a_run_of_the_same_name_has_other_nodes() -> None:
    assert node_object_name("r", UID, "a") != node_object_name("r", "another uid", "a")


def test_each_question_about_a_node_has_a_name_of_its_own() -> None:
    node = node_object_name("r" * 100, UID, "a")
    names = {approval_object_name(node, f"q{number}") for number in range(100)}
    assert len(names) == 100
    assert all(len(name) <= 63 for name in names)


@given(RUN_NAMES, PATHS, st.uuids().map(str), st.integers(1, 10_000))
def test_the_run_that_a_redrive_makes_has_a_valid_name(run: str, path: str, uid: str, question: int) -> None:
    name = retry_run_name(run, uid, path, question)
    assert DNS_LABEL.fullmatch(name), name
    assert name == retry_run_name(run, uid, path, question)


def test_redrives_of_long_nodes_that_begin_alike_make_runs_of_different_names() -> None:
    names = {
        retry_run_name("r", UID, "a" * 40 + "b", 1),
        retry_run_name("r", UID, "a" * 40 + "c", 1),
        retry_run_name("r", UID, "a" * 40 + "b", 2),
        retry_run_name("r", UID.replace("1", "2"), "a" * 40 + "b", 1),
        retry_run_name("r", UID, f"{'a' * 40}b.1", 1),
    }
    assert len(names) == 5
