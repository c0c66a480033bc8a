"""The pure parts of the bench."""

from __future__ import annotations

import pytest

from bench_cluster.aims import judge
from bench_cluster.api import kind_of
from bench_cluster.figures import count_repetitions, find_gaps, percentile, summarize_ms, used_share
from bench_cluster.server_metrics import difference, read_counts, writes_by_kind

_BEFORE = """\
# HELP apiserver_request_total Counter of apiserver requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",group="agentrun.dev",resource="agentnodes",subresource="",verb="POST"} 10
apiserver_request_total{code="200",group="agentrun.dev",resource="agentnodes",subresource="status",verb="PUT"} 1.5e+01
apiserver_request_total{code="200",group="",resource="pods",subresource="",verb="LIST"} 4
apiserver_request_total_other{code="200",group="",resource="pods",subresource="",verb="POST"} 4
"""
_AFTER = """\
apiserver_request_total{code="201",group="agentrun.dev",resource="agentnodes",subresource="",verb="POST"} 13
apiserver_request_total{code="200",group="agentrun.dev",resource="agentnodes",subresource="status",verb="PUT"} 20
apiserver_request_total{code="409",group="agentrun.dev",resource="agentnodes",subresource="status",verb="PUT"} 1
apiserver_request_total{code="200",group="",resource="pods",subresource="",verb="LIST"} 9
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",subresource="",verb="PUT"} 2
"""


@pytest.mark.parametrize(
    "values, share, want",
    [
        pytest.param([7.0], 0.99, 7.0, id="one-value"),
        pytest.param([4.0, 1.0, 3.0, 2.0], 0.5, 2.0, id="half-of-an-even-count"),
        pytest.param([3.0, 1.0, 2.0], 0.5, 2.0, id="half-of-an-odd-count"),
        pytest.param([float(at) for at in range(1, 101)], 0.99, 99.0, id="of-a-hundred"),
        pytest.param([1.0, 2.0, 3.0], 0.0, 1.0, id="smallest"),
        pytest.param([1.0, 2.0, 3.0], 1.0, 3.0, id="largest"),
    ],
)
def test_a_percentile_is_a_value_that_was_measured(values: list[float], share: float, want: float) -> None:
    assert percentile(values, share) == want


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_durations_are_summarized_in_milliseconds() -> None:
    assert summarize_ms([0.01, 0.03]) == {
        "count": 2,
        "mean_ms": 20.0,
        "p50_ms": 10.0,
        "p99_ms": 30.0,
        "max_ms": 30.0,
    }
    assert summarize_ms([]) == {"count": 0}


def test_gaps_are_between_moments_in_order_of_time() -> None:
    assert find_gaps([5.0, 1.0, 2.0]) == [1.0, 3.0]
    assert find_gaps([1.0]) == []


def test_a_repetition_is_every_call_beyond_the_first() -> None:
    assert count_repetitions(["a", "b", "a", "a"]) == 2


def test_the_used_share_weighs_eachkind_of_write_by_its_own_rate() -> None:
    writes = {"POST agentnodes": 50.0, "PUT agentnodes/status": 25.0, "PUT leases": 25.0}
    raw = {"POST agentnodes": 200.0, "PUT agentnodes/status": 100.0}

    assert used_share(writes, raw, "PUT agentnodes/status") == pytest.approx(0.75)


def test_a_metric_is_read_by_its_whole_name() -> None:
    counts = read_counts(_BEFORE, "apiserver_request_total")

    assert sum(counts.values()) == 29


def test_a_metric_without_labels_and_labels_with_quotes_are_read() -> None:
    assert read_counts("up 1\n", "up") == {(): 1.0}
    assert read_counts('said{what="a \\"b\\", c"} 2 1700000000\n', "said") == {(("what", 'a \\"b\\", c'),): 2.0}


def test_writes_between_two_looks_are_told_by_kind() -> None:
    grown = difference(*(read_counts(text, "apiserver_request_total") for text in (_BEFORE, _AFTER)))

    assert writes_by_kind(grown) == {"POST agentnodes": 3, "PUT agentnodes/status": 6, "PUT leases": 2}
    assert writes_by_kind(grown, "agentrun.dev") == {"POST agentnodes": 3, "PUT agentnodes/status": 6}


def test_a_server_that_was_started_anew_counts_from_zero() -> None:
    assert difference({(): 10.0}, {(): 3.0}) == {(): 3.0}


@pytest.mark.parametrize(
    "verb, path, want",
    [
        ("POST", "/api/v1/namespaces", "POST namespaces"),
        ("POST", "/apis/agentrun.dev/v1alpha1/namespaces/a/agentruns", "POST agentruns"),
        ("PUT", "/apis/agentrun.dev/v1alpha1/namespaces/a/agentnodes/n/status", "PUT agentnodes/status"),
        ("DELETE", "/apis/agentrun.dev/v1alpha1/namespaces/a/agentnodes", "DELETECOLLECTION agentnodes"),
        ("DELETE", "/apis/agentrun.dev/v1alpha1/namespaces/a/agentnodes/n", "DELETE agentnodes"),
    ],
)
def test_the_bench_counts_its_own_writes_as_the_server_does(verb: str, path: str, want: str) -> None:
    assert kind_of(verb, path) == want


def test_a_missed_aim_is_told_from_a_broken_promise() -> None:
    parts = {
        "tree": {"share_of_raw": 0.39, "calls_missing": 0, "calls_repeated": 0},
        "chain": {"step": {"p50_ms": 39.9}},
        "burst": {"lost": 1, "duplicates": 0},
    }

    missed = {aim.name: aim.is_promise for aim in judge(parts) if not aim.is_met}

    assert missed == {"tree: writes": False, "burst: lost runs": True}
    assert judge({"chain": {"error": "it failed"}}) == []
