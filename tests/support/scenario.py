"""Playing a run by a script on virtual time, and looking at how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from agentrun.contract.node import AgentNode, AgentNodeStatus
from agentrun.contract.run import AgentRun, AgentRunStatus
from agentrun.local.local_run import LocalSetup
from agentrun.local.script_file import Script, with_call_lists
from agentrun.local.script_run import ScriptOutcome, run_script
from support.manifest_texts import build_run, build_tools, read_yaml


@dataclass(frozen=True, slots=True)
class Played:
    """A run that was played."""

    scenario: ScriptOutcome

    @property
    def run(self) -> AgentRunStatus:
        """The (first) run's status."""
        return self.status_of(self.scenario.outcome.runs[0])

    @property
    def phase(self) -> str:
        """How the run ended."""
        return str(self.run.phase)

    @property
    def phases(self) -> dict[str, str]:
        """Phase by node."""
        return {node.spec.path: str(_status(node).phase) for node in self.scenario.outcome.nodes}

    @property
    def ends(self) -> dict[str, tuple[str, str]]:
        """Phase and reason by node."""
        return {
            node.spec.path: (str(_status(node).phase), str(_status(node).reason))
            for node in self.scenario.outcome.nodes
        }

    def node(self, path: str) -> AgentNodeStatus:
        """Return a node's status."""
        return _status(next(node for node in self.scenario.outcome.nodes if node.spec.path == path))

    def steps(self, path: str) -> list[str]:
        """Return the states a node went through."""
        return [str(line.to_phase) for line in self.node(path).timeline]

    def calls(self, tool: str) -> int:
        """Return how often a tool was called."""
        return self.scenario.counts.calls[tool]

    def effects(self, tool: str) -> int:
        """Return how often a tool's effect happened."""
        return self.scenario.counts.effects[tool]

    def approvals(self, path: str) -> list[tuple[str, str]]:
        """Return kind and state of the questions that were asked about a node."""
        return [
            (str(approval.status.request.kind), approval.status.state)
            for approval in self.scenario.outcome.approvals
            if approval.status and approval.status.request and approval.status.request.node == path
        ]

    @staticmethod
    def status_of(run: AgentRun) -> AgentRunStatus:
        """Return a run's status."""
        return run.status or AgentRunStatus()


def play(run: str, tools: str, script: str = "", seed: int = 1) -> Played:
    """Play one run: its spec, its tools (name to spec), and what tools and people say, each as YAML text."""
    read = Script.model_validate(with_call_lists(read_yaml(script)))
    setup = LocalSetup(tools=build_tools(tools), runs=[build_run(run)])
    return Played(run_script(setup, read, seed))


def _status(node: AgentNode) -> AgentNodeStatus:
    return node.status or AgentNodeStatus(entered_at=node.metadata.creation_timestamp)  # type: ignore[arg-type]
