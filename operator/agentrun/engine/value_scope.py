"""What a node's references and tests read: the run's inputs, its own item, and the results of nodes it may see."""

from __future__ import annotations

from agentrun.contract.exact_json import JsonObject, JsonValue
from agentrun.contract.node import NodePhase
from agentrun.contract.run import NodeType
from agentrun.decisions.conditions import NodeEnd
from agentrun.decisions.references import Found, Given, Missing, NodeValue
from agentrun.engine.run_memory import NodeMemory, RunMemory


class RunScope:
    """Reads values for one node of one run, straight from memory."""

    def __init__(self, run: RunMemory, node: NodeMemory) -> None:
        self._run = run
        self._node = node

    def inputs(self) -> JsonObject:
        """Return the run's inputs."""
        return self._run.run.spec.inputs

    def item(self) -> JsonValue:
        """Return the item of the node's fan-out instance."""
        item: JsonValue = self._node.spec.item
        return item

    def index(self) -> int | None:
        """Return the index of the node's fan-out instance."""
        return self._node.spec.index

    def node_result(self, name: str) -> NodeValue:
        """Return what a node gave, or why it gave nothing."""
        node = self._find(name)
        if node is None:
            return Missing(f"there is no node {name}")
        return self._value(node)

    def root_value(self, root: str) -> Found | Missing:
        """Return what ``inputs``, ``item`` or ``index`` stands for here."""
        if root == "inputs":
            return Found(self.inputs())
        if root == "item" and self._node.spec.index is not None:
            return Found(self.item())
        if root == "index" and self._node.spec.index is not None:
            return Found(self._node.spec.index)
        return Missing(f"{root} is not readable here")

    def node_end(self, name: str) -> NodeEnd | Missing:
        """Return how a node ended."""
        node = self._find(name)
        if node is None:
            return Missing(f"there is no node {name}")
        if not node.ended:
            return Missing(f"node {name} has not ended")
        status = node.status
        return NodeEnd(
            phase=str(status.phase),
            reason=status.failure.reason if status.failure else status.reason,
            failure_class=str(status.failure.failure_class) if status.failure else None,
            effect=str(status.effect) if status.effect else None,
            value=self._value(node),
        )

    def _find(self, name: str) -> NodeMemory | None:
        # Inside an instance, its own nodes come before those of the run.
        if self._node.spec.parent is not None and self._node.spec.index is not None:
            sibling = self._run.nodes.get(f"{self._node.spec.parent}.{self._node.spec.index}.{name}")
            if sibling is not None:
                return sibling
        return self._run.nodes.get(name)

    def _value(self, node: NodeMemory) -> NodeValue:
        status = node.status
        if status.phase is NodePhase.SUCCEEDED:
            if node.spec.node.type is NodeType.FAN_OUT:
                return Given(self._run.results_of(node))
            return Given(status.result)
        why = f"node {node.path} is {status.phase}" + (f" ({status.reason})" if status.reason else "")
        gave_nothing = status.phase is NodePhase.SKIPPED or (status.phase is NodePhase.DEAD and status.tolerated)
        return Missing(why, node.spec.node.defaults if gave_nothing else {})
