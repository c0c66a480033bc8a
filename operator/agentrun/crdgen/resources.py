"""The CustomResourceDefinitions: names, columns and versions around the generated schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from agentrun.contract.approval import AgentApproval
from agentrun.contract.node import AgentNode
from agentrun.contract.object_meta import API_GROUP
from agentrun.contract.run import AgentRun
from agentrun.contract.tool import AgentTool
from agentrun.crdgen.cel_rules import CEL_RULES
from agentrun.crdgen.structural_schema import Defaults, Schema, build_structural_schema

_AGE = ("Age", "date", ".metadata.creationTimestamp", 0)


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind: its model, its names, and the columns that answer the first question."""

    model: type[BaseModel]
    plural: str
    short: str
    columns: tuple[tuple[str, str, str, int], ...]
    """(name, type, JSON path, priority); priority 1 is shown by ``-o wide`` alone."""

    @property
    def kind(self) -> str:
        """The kind's name."""
        return self.model.__name__

    @property
    def file_name(self) -> str:
        """The file its definition is written to."""
        return f"{API_GROUP}_{self.plural}.yaml"


RESOURCES = (
    Resource(
        AgentTool,
        "agenttools",
        "at",
        (
            ("Type", "string", ".spec.type", 0),
            ("SideEffect", "string", ".spec.sideEffect", 0),
            ("Pool", "string", ".spec.execution.pool", 1),
            ("Description", "string", ".spec.description", 1),
            _AGE,
        ),
    ),
    Resource(
        AgentRun,
        "agentruns",
        "ar",
        (
            ("Phase", "string", ".status.phase", 0),
            ("Reason", "string", ".status.reason", 0),
            ("Done", "integer", ".status.counts.Succeeded", 0),
            ("Running", "integer", ".status.counts.Running", 0),
            ("Dead", "integer", ".status.counts.Dead", 0),
            ("WaitsFor", "string", ".status.waits[0].waitingFor", 0),
            ("Cost", "string", ".status.spent.cost", 0),
            ("Finished", "date", ".status.finishedAt", 1),
            ("Session", "string", ".spec.session", 1),
            ("Intent", "string", ".spec.intent", 1),
            ("Message", "string", ".status.message", 1),
            _AGE,
        ),
    ),
    Resource(
        AgentNode,
        "agentnodes",
        "an",
        (
            ("Run", "string", ".spec.run.name", 0),
            ("Node", "string", ".spec.path", 0),
            ("Phase", "string", ".status.phase", 0),
            ("Reason", "string", ".status.reason", 0),
            ("Attempt", "integer", ".status.attempt", 0),
            ("WaitsFor", "string", ".status.waitingFor", 0),
            ("Effect", "string", ".status.effect", 1),
            ("Replayed", "string", ".status.replayOf", 1),
            ("Cost", "string", ".status.cost", 1),
            ("Message", "string", ".status.message", 1),
            _AGE,
        ),
    ),
    Resource(
        AgentApproval,
        "agentapprovals",
        "aa",
        (
            ("Run", "string", ".status.request.run.name", 0),
            ("Node", "string", ".status.request.node", 0),
            ("Kind", "string", ".status.request.kind", 0),
            ("State", "string", ".status.state", 0),
            ("Verdict", "string", ".status.verdict", 0),
            ("Question", "string", ".status.request.question", 1),
            # kubectl shows a date as an age, and one that is still to come as <invalid>
            ("Expires", "string", ".status.request.expiresAt", 1),
            _AGE,
        ),
    ),
)


def build_schema(resource: Resource, defaults: Defaults = Defaults.SERVER) -> Schema:
    """Return the schema of the kind with its CEL rules."""
    return build_structural_schema(resource.model, CEL_RULES, defaults)


def build_definition(resource: Resource) -> dict[str, Any]:
    """Return the CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{API_GROUP}"},
        "spec": {
            "group": API_GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [resource.short],
                # Not "agentrun": a category hides the kind of that name, and `kubectl get agentrun NAME` is refused.
                "categories": ["agentrun-all"],
            },
            "versions": [
                {
                    "name": "v1alpha1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path, **({"priority": priority} if priority else {})}
                        for name, kind, path, priority in resource.columns
                    ],
                    "schema": {"openAPIV3Schema": build_schema(resource)},
                }
            ],
        },
    }
