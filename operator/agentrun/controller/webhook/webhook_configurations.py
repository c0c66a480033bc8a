"""The API server's two webhook configurations of this install: kept in step with the certificates, by name.

A chart writes them without ``caBundle``; out of a cluster, where a URL is given, they are created here if absent.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import structlog

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.object_meta import API_GROUP
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_errors import NameTakenError
from agentrun.controller.webhook.approval_admission import Stage
from agentrun.engine.cluster_port import GoneError

API = "admissionregistration.k8s.io/v1"
PATHS: dict[Stage, str] = {stage: f"/{stage}-agentapprovals" for stage in Stage}
OBJECTS_PATH = "/validate-objects"
TIMEOUT_SECONDS = 3
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Set by Kubernetes 1.21 and later on every namespace."""
_PATCH = "application/strategic-merge-patch+json"
_log = structlog.get_logger("agentrun.controller")


class _Kind(StrEnum):
    MUTATING = "MutatingWebhookConfiguration"
    VALIDATING = "ValidatingWebhookConfiguration"

    @property
    def collection(self) -> str:
        return f"/apis/{API}/{self.lower()}s"


@dataclass(frozen=True, slots=True)
class _Hook:
    name: str
    path: str
    resources: tuple[str, ...]
    operations: tuple[str, ...]
    failure_policy: str


_HOOKS: dict[_Kind, tuple[_Hook, ...]] = {
    kind: (_Hook(f"{stage}.agentapprovals.{API_GROUP}", PATHS[stage], ("agentapprovals",), ("UPDATE",), "Fail"),)
    for kind, stage in ((_Kind.MUTATING, Stage.MUTATE), (_Kind.VALIDATING, Stage.VALIDATE))
}
# The operator judges these again: without an answer they are stored all the same.
_HOOKS[_Kind.VALIDATING] += (
    _Hook(f"validate.objects.{API_GROUP}", OBJECTS_PATH, ("agentruns", "agenttools"), ("CREATE", "UPDATE"), "Ignore"),
)


@dataclass(frozen=True, slots=True)
class WebhookPlace:
    """What the configurations are called and, out of a cluster, where the API server finds the webhook."""

    name: str
    url: str | None = None
    """Without a path; None: whoever writes the configurations knows."""
    namespaces: Sequence[str] = ()
    """Namespaces that are served; empty: all."""


class WebhookConfigurations:
    """Both configurations. Methods may raise what :meth:`ApiClient.request` raises."""

    def __init__(self, client: ApiClient, place: WebhookPlace) -> None:
        self._client = client
        self._place = place
        self._missing: set[_Kind] = set()

    async def show(self, bundle: bytes) -> None:
        """Have both configurations trust exactly this bundle."""
        text = base64.b64encode(bundle).decode()
        for kind in _Kind:
            await self._show(kind, text)

    async def _show(self, kind: _Kind, bundle: str) -> None:
        path = f"{kind.collection}/{self._place.name}"
        try:
            found = await self._client.request("GET", path)
        except GoneError:
            if await self._create(kind, bundle):
                return
            if kind not in self._missing:
                _log.warning("webhook_configuration_missing", kind=kind.value, name=self._place.name)
            self._missing.add(kind)
            return
        self._missing.discard(kind)
        hooks = found.get("webhooks")
        wrong: list[JsonValue] = [
            {"name": hook.get("name"), "clientConfig": wanted}
            for hook in hooks or ()
            if isinstance(hook, dict)
            for wanted in (self._client_config(kind, str(hook.get("name")), bundle),)
            if not _holds(hook.get("clientConfig"), wanted)
        ]
        if wrong:
            await self._client.request("PATCH", path, {"webhooks": wrong}, content_type=_PATCH)
            _log.info("webhook_configuration_patched", kind=kind.value, name=self._place.name)

    def _client_config(self, kind: _Kind, name: str, bundle: str) -> JsonObject:
        path = next((hook.path for hook in _HOOKS[kind] if hook.name == name), None)
        if self._place.url is None or path is None:
            return {"caBundle": bundle}
        return {"caBundle": bundle, "url": f"{self._place.url.rstrip('/')}{path}"}

    async def _create(self, kind: _Kind, bundle: str) -> bool:
        if self._place.url is None:
            return False
        try:
            await self._client.request("POST", kind.collection, self._configuration(kind, bundle))
        except NameTakenError:
            # Another replica was faster; the next round looks at what it made.
            return True
        _log.info("webhook_configuration_created", kind=kind.value, name=self._place.name)
        return True

    def _configuration(self, kind: _Kind, bundle: str) -> JsonObject:
        hooks: list[JsonValue] = [
            self._build(hook, self._client_config(kind, hook.name, bundle)) for hook in _HOOKS[kind]
        ]
        return {"apiVersion": API, "kind": kind, "metadata": {"name": self._place.name}, "webhooks": hooks}

    def _build(self, hook: _Hook, client_config: JsonObject) -> JsonObject:
        built: JsonObject = {
            "name": hook.name,
            "clientConfig": client_config,
            "rules": [
                {
                    "apiGroups": [API_GROUP],
                    "apiVersions": ["*"],
                    "operations": list(hook.operations),
                    "resources": list(hook.resources),
                    "scope": "Namespaced",
                }
            ],
            "failurePolicy": hook.failure_policy,
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT_SECONDS,
            "admissionReviewVersions": ["v1"],
        }
        if self._place.namespaces:
            names: list[JsonValue] = list(self._place.namespaces)
            built["namespaceSelector"] = {
                "matchExpressions": [{"key": NAMESPACE_LABEL, "operator": "In", "values": names}]
            }
        return built


def _holds(config: JsonValue, wanted: JsonObject) -> bool:
    return isinstance(config, dict) and all(config.get(field) == value for field, value in wanted.items())
