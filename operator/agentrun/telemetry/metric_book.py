"""Counts in the table of metrics, for one process and one registry. The only place that knows prometheus-client.

Counting is done by the event loop's thread alone; a scrape reads from a thread of its own, so what a gauge is read from
must be a value that nobody changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from agentrun.telemetry.metrics import LABEL_SETS_MAX, LABELS, OTHER, Metric, MetricKind, Process

LabelSet = tuple[str, ...]
Reading = Callable[[], Mapping[LabelSet, float]]
"""Gives a gauge's present values, by labels in the table's order; called by the thread of a scrape."""


def build_registry() -> CollectorRegistry:
    """Return a registry of its own, with the process's memory, time and open files in it."""
    # A second series beside each counter that says when it was made: nobody asks for it.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


class MetricBook:
    """The metrics of one process."""

    def __init__(self, process: Process, registry: CollectorRegistry) -> None:
        self._counters: dict[Metric, Counter] = {}
        self._histograms: dict[Metric, Histogram] = {}
        self._known: dict[Metric, set[LabelSet]] = defaultdict(set)
        gauges: list[Metric] = []
        for metric in Metric:
            row = metric.value
            if row.process is not process:
                continue
            match row.kind:
                case MetricKind.COUNTER:
                    self._counters[metric] = Counter(row.name, row.text, row.labels, registry=registry)
                case MetricKind.HISTOGRAM:
                    self._histograms[metric] = Histogram(
                        row.name, row.text, row.labels, buckets=row.buckets, registry=registry
                    )
                case MetricKind.GAUGE:
                    gauges.append(metric)
        self._gauges = _Gauges(tuple(gauges))
        registry.register(self._gauges)

    def count(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """Add to a counter; the labels come in the table's order."""
        counter = self._counters[metric]
        (counter.labels(*self._admit(metric, labels)) if labels else counter).inc(by)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Put one observation into a histogram."""
        histogram = self._histograms[metric]
        (histogram.labels(*self._admit(metric, labels)) if labels else histogram).observe(value)

    def read_from(self, metric: Metric, reading: Reading) -> None:
        """Have a gauge's values read there at every scrape."""
        self._gauges.readings[metric] = reading

    def _admit(self, metric: Metric, labels: LabelSet) -> LabelSet:
        return admit(metric, labels, self._known[metric])


class _Gauges(Collector):
    """Reads all gauges when they are scraped."""

    def __init__(self, metrics: tuple[Metric, ...]) -> None:
        self._metrics = metrics
        self.readings: dict[Metric, Reading] = {}

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Give the names, without reading anything."""
        for metric in self._metrics:
            yield self._family(metric)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give the present values."""
        for metric in self._metrics:
            family = self._family(metric)
            reading = self.readings.get(metric)
            merged: dict[LabelSet, float] = {}
            known: set[LabelSet] = set()
            for labels, value in reading().items() if reading else ():
                admitted = admit(metric, labels, known)
                before = merged.get(admitted)
                merged[admitted] = value if before is None else _merge(metric, before, value)
            for labels, value in merged.items():
                family.add_metric(labels, value)
            yield family

    def _family(self, metric: Metric) -> GaugeMetricFamily:
        row = metric.value
        return GaugeMetricFamily(row.name, row.text, labels=row.labels)


def admit(metric: Metric, labels: LabelSet, known: set[LabelSet]) -> LabelSet:
    """Return the labels as they may be given out: ``Other`` for what no closed set holds, and for names too many.

    ``known`` holds the sets that were given out before, and takes this one in.
    """
    names = metric.value.labels
    bounded = tuple(_bounded(name, value) for name, value in zip(names, labels, strict=True))
    if bounded not in known and len(known) >= LABEL_SETS_MAX:
        bounded = tuple(
            OTHER if LABELS[name].values is None else value for name, value in zip(names, bounded, strict=True)
        )
    known.add(bounded)
    return bounded


def _bounded(name: str, value: str) -> str:
    values = LABELS[name].values
    return value if values is None or value in values else OTHER


def _merge(metric: Metric, one: float, other: float) -> float:
    # Of ages the greater one tells more; numbers of things add up.
    return max(one, other) if metric.value.name.endswith("_seconds") else one + other
