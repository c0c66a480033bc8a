"""Alerts ask for metrics and labels that there are, of the job that the monitor makes."""

import re

from agentrun.telemetry.metrics import LABELS, Metric, MetricKind
from support.helm import Helm, Manifest, find_object

VALUES = {"metrics": {"serviceMonitor": {"enabled": True}, "rules": {"enabled": True}}}
OF_PROMETHEUS = {"job", "pod"}
METRICS = {metric.value.name: metric.value for metric in Metric}


def rules(helm: Helm) -> list[Manifest]:
    (group,) = find_object(helm.render(VALUES), "PrometheusRule")["spec"]["groups"]
    found: list[Manifest] = group["rules"]
    return found


def test_alerts_ask_for_metrics_that_there_are(helm: Helm) -> None:
    for rule in rules(helm):
        asked = re.findall(r"(agentrun_\w+)\{([^}]*)\}", rule["expr"])
        assert asked, rule["alert"]
        assert len(re.findall(r"agentrun_[a-z_]+", rule["expr"])) == len(asked), "each names its job"
        for name, matchers in asked:
            metric = METRICS[name]
            grows = metric.kind is MetricKind.COUNTER
            assert grows == (f"increase({name}" in rule["expr"]), rule["alert"]
            for label, values in re.findall(r'(\w+)=~?"([^"]*)"', matchers):
                assert label in OF_PROMETHEUS or label in metric.labels, rule["alert"]
                known = LABELS[label].values if label in LABELS else None
                assert known is None or set(values.split("|")) <= known, rule["alert"]
            for grouped in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"]):
                assert set(re.split(r",\s*", grouped)) <= set(metric.labels) | OF_PROMETHEUS, rule["alert"]


def test_alerts_say_what_is_wrong_and_what_to_do(helm: Helm) -> None:
    found = rules(helm)
    assert len({rule["alert"] for rule in found}) == len(found) >= 8
    for rule in found:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "runbook"}


def test_the_monitor_selects_the_metrics_service_whose_name_the_alerts_know(helm: Helm) -> None:
    manifests = helm.render(VALUES)
    monitor = find_object(manifests, "ServiceMonitor")["spec"]
    selected = [
        found["metadata"]["name"]
        for found in manifests
        if found["kind"] == "Service"
        and monitor["selector"]["matchLabels"].items() <= found["metadata"]["labels"].items()
    ]
    assert selected == ["agentrun-agentrun-operator-metrics"]
    assert {job for rule in rules(helm) for job in re.findall(r'job="([^"]*)"', rule["expr"])} == set(selected)
    (endpoint,) = monitor["endpoints"]
    assert (endpoint["port"], endpoint["path"], endpoint["honorLabels"]) == ("metrics", "/metrics", True)
