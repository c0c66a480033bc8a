"""The table of metrics and the book that counts in it: names, labels, and how many series there can be at most."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agentrun.telemetry.metric_book import MetricBook, build_registry
from agentrun.telemetry.metrics import LABEL_SETS_MAX, LABELS, OTHER, Metric, MetricKind, Process


def samples(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {tuple(s.labels.values()): s.value for family in families for s in family.samples if s.name == name}


@pytest.mark.parametrize("metric", Metric, ids=lambda metric: str(metric.value.name))
def test_names_labels_and_buckets_follow_the_conventions(metric: Metric) -> None:
    row = metric.value
    assert row.name.startswith("agentrun_")
    assert row.name.endswith("_total") == (row.kind is MetricKind.COUNTER)
    assert bool(row.buckets) == (row.kind is MetricKind.HISTOGRAM)
    assert list(row.buckets) == sorted(set(row.buckets))
    assert set(row.labels) <= set(LABELS)
    assert len({other.value.name for other in Metric}) == len(Metric)


def test_only_names_that_people_give_are_open_labels() -> None:
    assert {name for name, label in LABELS.items() if label.values is None} == {"namespace", "pool", "tool"}


@pytest.mark.parametrize("process", Process, ids=str)
def test_a_registry_gives_out_exactly_the_tables_rows_of_its_process(process: Process) -> None:
    registry = build_registry()
    MetricBook(process, registry)
    found = {family.name: family.type for family in text_string_to_metric_families(generate_latest(registry).decode())}
    own = {name: kind for name, kind in found.items() if not name.startswith("process_")}
    rows = [metric.value for metric in Metric if metric.value.process is process]
    assert own == {row.name.removesuffix("_total"): str(row.kind) for row in rows}


def test_a_word_outside_of_a_closed_set_is_counted_as_other() -> None:
    registry = build_registry()
    book = MetricBook(Process.OPERATOR, registry)
    book.count(Metric.NODES_ENDED, "shop", "Succeeded", "Completed")
    book.count(Metric.NODES_ENDED, "shop", "Dead", "order 4711 is unknown")
    book.count(Metric.NODES_ENDED, "shop", "Dead", "order 4712 is unknown")
    assert samples(registry, "agentrun_nodes_ended_total") == {
        ("shop", "Succeeded", "Completed"): 1,
        ("shop", "Dead", OTHER): 2,
    }


def test_names_beyond_the_limit_are_counted_together() -> None:
    registry = build_registry()
    book = MetricBook(Process.OPERATOR, registry)
    book.read_from(Metric.NODES, lambda: {(f"n{at}", "Running"): 1 for at in range(LABEL_SETS_MAX + 50)})
    for at in range(LABEL_SETS_MAX + 50):
        book.count(Metric.COST_MICROS, "shop", f"tool-{at}", by=2)
    counted = samples(registry, "agentrun_cost_micros_total")
    assert len(counted) == LABEL_SETS_MAX + 1
    assert counted[OTHER, OTHER] == 100
    assert sum(counted.values()) == 2 * (LABEL_SETS_MAX + 50)
    read = samples(registry, "agentrun_nodes")
    assert read[OTHER, "Running"] == 50


def test_of_ages_that_are_given_together_the_greatest_is_shown() -> None:
    registry = build_registry()
    book = MetricBook(Process.OPERATOR, registry)
    book.read_from(Metric.QUEUE_OLDEST, lambda: {("shop", f"p{at}"): float(at) for at in range(LABEL_SETS_MAX + 50)})
    assert samples(registry, "agentrun_queue_oldest_seconds")[OTHER, OTHER] == LABEL_SETS_MAX + 49
