"""The page of metrics, from the table that the processes count in."""

from __future__ import annotations

from agentrun.telemetry.metrics import LABEL_SETS_MAX, LABELS, Metric, MetricKind, Process

_HEAD = """# Metrics

Generated from the table in `agentrun/telemetry/metrics.py` by `make generate`. Operator and worker give them out under
`/metrics` of the address they listen on ([how](../operator.md#metrics-and-probes)). Beside them stand `process_*` of
prometheus-client (memory, processor time, open files).

"""
_TITLES = {Process.OPERATOR: "Operator", Process.WORKER: "Worker"}


def build_metric_table() -> str:
    """Return the page as Markdown."""
    tables = "\n".join(_table(process) for process in Process)
    labels = "".join(f"| `{name}` | {label.text} |\n" for name, label in LABELS.items())
    histograms = "".join(
        f"| `{metric.value.name}` | {', '.join(f'{end:g}' for end in metric.value.buckets)} |\n"
        for metric in Metric
        if metric.value.kind is MetricKind.HISTOGRAM
    )
    return (
        f"{_HEAD}{tables}\n"
        f"## Labels\n\n| label | what it says |\n|---|---|\n{labels}\n"
        "No label ever holds a run, a node, a uid, a worker or a message. A value that a closed set does not hold is "
        f"given as `Other`; so are the names of a metric that has {LABEL_SETS_MAX} sets of labels already.\n\n"
        f"## Buckets\n\n| histogram | upper ends |\n|---|---|\n{histograms}"
    )


def _table(process: Process) -> str:
    rows = "".join(
        f"| `{metric.value.name}` | {metric.value.kind} | {', '.join(metric.value.labels)} | {metric.value.text} |\n"
        for metric in Metric
        if metric.value.process is process
    )
    return f"## {_TITLES[process]}\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n{rows}"
