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


_STAGES = {_Kind.MUTATING: Stage.MUTATE, _Kind.VALIDATING: Stage.VALIDATE}


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
        wrong = [hook for hook in hooks or () if isinstance(hook, dict) and not self._fits(kind, hook, bundle)]
        if wrong:
            patch: JsonObject = {
                "webhooks": [{"name": hook.get("name"), "clientConfig": self._patched(kind, bundle)} for hook in wrong]
            }
            await self._client.request("PATCH", path, patch, content_type=_PATCH)
            _log.info("webhook_configuration_patched", kind=kind.value, name=self._place.name)

    def _fits(self, kind: _Kind, hook: JsonObject, bundle: str) -> bool:
        config = hook.get("clientConfig")
        return isinstance(config, dict) and all(
            config.get(field) == value for field, value in self._patched(kind, bundle).items()
        )

    def _patched(self, kind: _Kind, bundle: str) -> JsonObject:
        url: JsonObject = {"url": self._url(kind)} if self._place.url else {}
        return {"caBundle": bundle, **url}

    def _url(self, kind: _Kind) -> str:
        return f"{(self._place.url or '').rstrip('/')}{PATHS[_STAGES[kind]]}"

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
        rule: JsonObject = {
            "apiGroups": [API_GROUP],
            "apiVersions": ["*"],
            "operations": ["UPDATE"],
            "resources": ["agentapprovals"],
            "scope": "Namespaced",
        }
        hook: JsonObject = {
            "name": f"{_STAGES[kind]}.agentapprovals.{API_GROUP}",
            "clientConfig": self._patched(kind, bundle),
            "rules": [rule],
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT_SECONDS,
            "admissionReviewVersions": ["v1"],
        }
        if self._place.namespaces:
            names: list[JsonValue] = list(self._place.namespaces)
            hook["namespaceSelector"] = {
                "matchExpressions": [{"key": NAMESPACE_LABEL, "operator": "In", "values": names}]
            }
        return {"apiVersion": API, "kind": kind, "metadata": {"name": self._place.name}, "webhooks": [hook]}
