"""The webhook configurations that the chart writes are those that the operator means, without the authority."""

from typing import Any

import pytest

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.webhook.webhook_configurations import WebhookConfigurations, WebhookPlace
from agentrun.controller.webhook.webhook_service import WebhookSettings, find_names
from agentrun.engine.cluster_port import GoneError
from support.helm import Helm, Manifest, find_object, find_objects

KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class EmptyServer:
    """An API server that has nothing, and remembers what was created."""

    def __init__(self) -> None:
        self.created: list[JsonObject] = []

    async def request(self, verb: str, path: str, body: JsonObject | None = None, **_: Any) -> JsonObject:
        if verb == "GET":
            raise GoneError(path)
        assert body is not None
        self.created.append(body)
        return body


async def build_meant(namespaces: list[str]) -> dict[str, Any]:
    """What the operator itself would create, by kind."""
    server = EmptyServer()
    place = WebhookPlace("meant", "https://webhook.example", namespaces)
    await WebhookConfigurations(server, place).show(b"authority")  # type: ignore[arg-type]
    return {str(found["kind"]): found for found in server.created}


@pytest.mark.parametrize(
    "values, namespaces",
    [
        pytest.param({}, ["agents"], id="its own namespace"),
        pytest.param({"scope": {"namespaces": ["a", "b"]}}, ["a", "b"], id="two namespaces"),
        pytest.param({"scope": {"mode": "Cluster"}}, [], id="all namespaces"),
    ],
)
async def test_the_chart_writes_what_the_operator_means(
    helm: Helm, values: dict[str, Any], namespaces: list[str]
) -> None:
    meant, manifests = await build_meant(namespaces), helm.render(values)
    for kind in KINDS:
        written = find_object(manifests, kind)
        assert written["apiVersion"] == meant[kind]["apiVersion"]
        for hook, want in zip(written["webhooks"], meant[kind]["webhooks"], strict=True):
            reached, known = hook.pop("clientConfig"), want.pop("clientConfig")
            assert hook == want
            assert known["url"] == f"https://webhook.example{reached['service']['path']}"
            assert "caBundle" not in reached


def test_the_operator_knows_the_configurations_and_the_service_by_their_names(standard: list[Manifest]) -> None:
    (container,) = find_object(standard, "Deployment")["spec"]["template"]["spec"]["containers"]
    told = {entry["name"].removeprefix("AGENTRUN_OPERATOR_"): entry.get("value") for entry in container["env"]}
    for kind in KINDS:
        found = find_object(standard, kind)
        assert found["metadata"]["name"] == told["WEBHOOK_NAME"]
        for hook in found["webhooks"]:
            service = hook["clientConfig"]["service"]
            assert (service["name"], service["namespace"]) == (told["WEBHOOK_SERVICE"], told["LEASE_NAMESPACE"])
    ports = find_object(standard, "Service", str(told["WEBHOOK_SERVICE"]))["spec"]["ports"]
    assert [(port["port"], port["targetPort"]) for port in ports] == [(443, "webhook")]


def test_cert_manager_makes_a_certificate_for_the_names_that_the_api_server_asks_for(helm: Helm) -> None:
    manifests = helm.render({"webhook": {"certificates": {"mode": "CertManager"}}})
    certificate = find_object(manifests, "Certificate", "agentrun-agentrun-operator-webhook")
    settings = WebhookSettings.__new__(WebhookSettings)
    for field, value in {
        "service": "agentrun-agentrun-operator-webhook",
        "namespace": "agents",
        "place": WebhookPlace("any"),
    }.items():
        object.__setattr__(settings, field, value)
    assert set(certificate["spec"]["dnsNames"]) == find_names(settings)
    pod = find_object(manifests, "Deployment")["spec"]["template"]["spec"]
    (mounted,) = [volume for volume in pod["volumes"] if volume["name"] == "webhook-tls"]
    assert mounted["secret"]["secretName"] == certificate["spec"]["secretName"]
    for kind in KINDS:
        notes = find_object(manifests, kind)["metadata"]["annotations"]
        assert notes["cert-manager.io/inject-ca-from"] == f"agents/{certificate['metadata']['name']}"


def test_the_issuer_signs_what_it_is_named_for(helm: Helm) -> None:
    own = helm.render({"webhook": {"certificates": {"mode": "CertManager"}}})
    issuers = {found["metadata"]["name"]: found["spec"] for found in find_objects(own, "Issuer")}
    authority = find_object(own, "Certificate", "agentrun-agentrun-operator-authority")
    serving = find_object(own, "Certificate", "agentrun-agentrun-operator-webhook")
    assert issuers[authority["spec"]["issuerRef"]["name"]] == {"selfSigned": {}}
    assert issuers[serving["spec"]["issuerRef"]["name"]] == {"ca": {"secretName": authority["spec"]["secretName"]}}
    named = {"mode": "CertManager", "issuer": {"name": "corporate", "kind": "ClusterIssuer"}}
    other = helm.render({"webhook": {"certificates": named}})
    assert find_objects(other, "Issuer") == []
    assert find_object(other, "Certificate")["spec"]["issuerRef"]["name"] == "corporate"


def test_without_the_webhook_nothing_of_it_is_there(helm: Helm) -> None:
    manifests = helm.render({"webhook": {"enabled": False}, "approvals": {"admissionPolicy": False}})
    text = str([found for found in manifests if found["kind"] != "CustomResourceDefinition"]).lower()
    assert "webhook" not in text
    assert "subjectaccessreviews" not in text
