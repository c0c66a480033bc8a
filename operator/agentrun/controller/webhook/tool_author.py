"""What the author of an AgentTool must be allowed to do without it; pure.

A tool has workers act with what its namespace holds: they read the Secrets that it names, and they are pods. Whoever
may write a tool, and may not read a Secret, would read it through the tool otherwise, which names the host that the
Secret is sent to. Called by the admission of objects, which asks the API server. Afterwards nobody knows who wrote what
a tool says, so this is judged there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentrun.contract.execution import VolumeKind
from agentrun.contract.tool import AgentToolSpec
from agentrun.controller.webhook.access_reviews import Access


@dataclass(frozen=True, slots=True)
class AuthorNeed:
    """One right that the author needs, and for what."""

    field: str
    access: Access
    name: str = ""
    """Of the object in question; empty: any of its kind."""

    def explain_refusal(self, username: str, namespace: str) -> str:
        """Return what is refused to an author who lacks it, and the remedy."""
        named = f"{self.access.purpose}{f' {self.name}' if self.name else ''} in namespace {namespace}"
        grant = f"{self.access}{f' with the name {self.name}' if self.name else ''}"
        return (
            f'{self.field}: user "{username}" may not {named}, and a tool may do no more than its author: '
            f"grant {grant} to the author, or have somebody apply the tool who has it"
        )


def find_author_needs(spec: AgentToolSpec) -> Iterator[AuthorNeed]:
    """Yield the rights that the author of this definition needs, each once."""
    yield AuthorNeed("spec", Access("create", purpose="create pods", resource="pods", group=""))
    named: set[str] = set()
    for field, secret in _secrets(spec):
        if secret not in named:
            named.add(secret)
            yield AuthorNeed(field, Access("get", purpose="get Secret", resource="secrets", group=""), secret)


def _secrets(spec: AgentToolSpec) -> Iterator[tuple[str, str]]:
    for at, header in enumerate(spec.http.headers_from if spec.http else ()):
        yield f"spec.http.headersFrom[{at}].secretKeyRef.name", header.secret_key_ref.name
    if spec.execution is None:
        return
    for at, volume in enumerate(spec.execution.volumes):
        if volume.kind is VolumeKind.SECRET:
            yield f"spec.execution.volumes[{at}].source", volume.source
    for at, secret in enumerate(spec.execution.secrets):
        yield f"spec.execution.secrets[{at}]", secret
