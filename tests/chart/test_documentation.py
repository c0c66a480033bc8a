"""What the pages say about the chart's values is so."""

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from agentrun.docgen.chart_values import list_values, read_schema
from support.helm import OPERATOR_CHART, ROOT, Helm, find_object, merged

PAGES = [ROOT / "docs" / f"{name}.md" for name in ("install", "production-checklist", "security", "gitops")]
VALUES = {value.path for value in list_values(read_schema(OPERATOR_CHART))}
GROUPS = {path.rpartition(".")[0] for path in VALUES}
HEADS = {path.partition(".")[0] for path in VALUES} - {"install"}


def blocks(page: Path) -> list[Any]:
    """The YAML documents of a page."""
    texts = re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    return [YAML(typ="safe", pure=True).load(text) for text in texts]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_value_that_a_page_names_is_one(page: Path) -> None:
    named = re.findall(r"`([a-z][A-Za-z]*(?:\.[a-zA-Z]+)+)(?:[:=][^`]*)?`", page.read_text(encoding="utf-8"))
    of_ours = {name for name in named if name.partition(".")[0] in HEADS}
    assert of_ours <= VALUES | GROUPS
    assert of_ours or page.name == "security.md" or page.name == "gitops.md"


def test_the_values_for_production_are_taken(helm: Helm) -> None:
    (values,) = blocks(ROOT / "docs" / "install.md")
    values["image"]["digest"] = values["image"]["digest"].replace("…", "0" * 64)
    manifests = helm.render(values)
    assert find_object(manifests, "PrometheusRule")
    (container,) = find_object(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    told = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert told["AGENTRUN_OPERATOR_NAMESPACES"] == "shop,billing"
    assert told["SSL_CERT_FILE"] == "/etc/agentrun/ledger-tls/ca.crt"


def test_the_values_of_gitops_tools_are_taken_and_what_they_ignore_is_what_the_operator_writes(helm: Helm) -> None:
    argo, flux = blocks(ROOT / "docs" / "gitops.md")
    for values in (argo["spec"]["source"]["helm"]["valuesObject"], flux["spec"]["values"]):
        manifests = helm.render(values)
    paths = {found["target"]["kind"]: found["paths"] for found in flux["spec"]["driftDetection"]["ignore"]}
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        hooks = find_object(manifests, kind)["webhooks"]
        assert paths[kind] == [f"/webhooks/{place}/clientConfig/caBundle" for place in range(len(hooks))]
    assert {found["kind"] for found in argo["spec"]["ignoreDifferences"]} == set(paths)


def test_switching_these_off_leaves_nothing_of_the_clusters(helm: Helm) -> None:
    (sentence,) = re.findall(
        r"^With (`webhook\.enabled=false`.*?) the chart makes", (ROOT / "docs/install.md").read_text(), re.M | re.S
    )
    values: dict[str, Any] = {}
    for path in re.findall(r"`([a-zA-Z.]+)=false`", sentence):
        group, _, name = path.partition(".")
        values = merged(values, {group: {name: False}})
    assert [found["kind"] for found in helm.render(values) if "namespace" not in found["metadata"]] == []
