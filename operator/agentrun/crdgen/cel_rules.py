"""CEL rules of the custom resources: what the models' own checks say, in the API server's language.

By model name; a rule stands wherever its model does. Values without a type (``value``, ``result``) cannot be seen by
CEL; about them the operator alone decides. ``${…}`` and graphs are never checked here.

A rule about a change (``oldSelf``) is asked only where an old value stands, so it stands above everything that may be
absent. Even there the server's ``==`` does not see the order of a keyed list, nor a field of a free object that takes
the place of another one; about those changes the operator alone decides, by the digest of the spec.
"""

from __future__ import annotations

from agentrun.contract.execution import FORBIDDEN_MOUNT, Scaling
from agentrun.contract.run import MUTABLE_SPEC_FIELDS, AgentRunSpec


def _rule(rule: str, message: str) -> dict[str, str]:
    return {"rule": rule, "message": message}


def _immutable_fields() -> list[dict[str, str]]:
    admitted = "has(oldSelf.status) && has(oldSelf.status.admittedGeneration) && oldSelf.status.admittedGeneration > 0"
    rules = []
    for name, field in AgentRunSpec.model_fields.items():
        alias = field.alias or name
        if name in MUTABLE_SPEC_FIELDS:
            continue
        same = (
            f"has(self.spec.{alias}) == has(oldSelf.spec.{alias})"
            f" && (!has(self.spec.{alias}) || self.spec.{alias} == oldSelf.spec.{alias})"
        )
        message = f"spec.{alias} is immutable once the run is admitted: create another run"
        rules.append(_rule(f"!({admitted}) || ({same})", message))
    return rules


def _goes_with(field: str, kind: str) -> dict[str, str]:
    kind_of = "(has(self.type) ? self.type : 'Task')"
    return _rule(f"({kind_of} == '{kind}') == has(self.{field})", f"field {field} goes with type {kind} and needs it")


_NODE_RULES = [
    _goes_with("tool", "Task"),
    _goes_with("condition", "Condition"),
    _goes_with("approval", "Approval"),
    _rule("!(has(self.priority) && has(self.priorityFrom))", "give priority or priorityFrom, not both"),
]

CEL_RULES: dict[str, list[dict[str, str]]] = {
    "AgentRun": _immutable_fields(),
    "RunNode": [*_NODE_RULES, _goes_with("fanOut", "FanOut")],
    "InstanceNode": _NODE_RULES,
    "Join": [
        _rule(
            "(has(self.rule) && self.rule == 'AtLeast') == has(self.count)",
            "count is needed by rule AtLeast and goes with no other rule",
        )
    ],
    "FanOut": [
        _rule(
            "has(self.node) != (has(self.nodes) && size(self.nodes) > 0)",
            "needs either node (one task for each item) or nodes (a small graph for each item)",
        ),
        _rule(
            "!has(self.result) || (has(self.nodes) && self.nodes.exists(n, n.name == self.result))",
            "result must name one of nodes",
        ),
    ],
    "AgentToolSpec": [
        _rule("(self.type == 'http') == has(self.http)", "field http goes with type http and is needed by it"),
        _rule("(self.type == 'python') == has(self.python)", "field python goes with type python and is needed by it"),
        _rule(
            "(self.type == 'container') == has(self.container)",
            "field container goes with type container and is needed by it",
        ),
        _rule(
            "self.type != 'container'"
            " || (has(self.execution) && has(self.execution.mode) && self.execution.mode == 'Job')",
            "type container needs execution.mode: Job, a pod is made for each call",
        ),
        _rule(
            "self.type != 'container' || !has(self.execution) || !has(self.execution.image)",
            "execution.image is the worker's: with type container name container.image alone",
        ),
    ],
    "Scaling": [
        _rule(
            f"(has(self.min) ? self.min : {Scaling().min}) <= (has(self.max) ? self.max : {Scaling().max})",
            "min must be no more than max",
        )
    ],
    "EnvironmentVariable": [
        _rule("!self.name.startsWith('AGENTRUN_')", "names that begin with AGENTRUN_ are the product's own")
    ],
    "Volume": [
        _rule(
            f"!self.mountPath.matches('{FORBIDDEN_MOUNT}')".replace("\\", "\\\\"),
            "mountPath must be no place of the system or the product, and hold no ..",
        ),
        _rule(
            "!has(self.readOnly) || self.readOnly || self.kind == 'PersistentVolumeClaim'",
            "readOnly: false goes with kind PersistentVolumeClaim alone",
        ),
    ],
    "Execution": [
        _rule(
            "!has(self.scaling) || !has(self.mode) || self.mode == 'Pool'",
            "scaling goes with mode Pool",
        )
    ],
    "ApprovalRule": [
        _rule(
            "(has(self.required) && self.required == 'Always') || (has(self.when) && size(self.when) > 0)",
            "needs required: Always, or at least one test under when",
        ),
        _rule(
            "!has(self.when) || self.when.all(t, t.path.startsWith('params.'))",
            "when may test params only",
        ),
    ],
    "AgentNodeSpec": [_rule("self == oldSelf", "the spec of a node is immutable")],
    # On the whole object: a rule of the spec would not run when the spec itself is taken away.
    "AgentApproval": [
        _rule(
            "!(has(oldSelf.spec) && has(oldSelf.spec.decision))"
            " || (has(self.spec) && has(self.spec.decision) && self.spec.decision == oldSelf.spec.decision)",
            "spec.decision is set once",
        )
    ],
    "Decision": [
        _rule(
            "!has(self.params) || self.verdict in ['Approve', 'Release', 'Redrive']",
            "params go with verdict Approve, Release or Redrive",
        ),
        _rule(
            "!has(self.effect) || self.effect != 'Unknown'", "effect must say what happened: NotExecuted or Executed"
        ),
    ],
}
