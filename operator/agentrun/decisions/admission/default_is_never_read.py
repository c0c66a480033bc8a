"""``defaults`` names a path that no reference can read."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.contract.run import NodeType
from agentrun.decisions.admission.spec_view import SpecView
from agentrun.decisions.admission.violation import Violation
from agentrun.decisions.value_paths import PathSyntaxError, parse_path


def default_is_never_read(view: SpecView) -> Iterator[Violation]:
    """Find defaults whose path does not begin with ``result`` (a fan-out: ``results``)."""
    for place in view.places:
        wanted = "results" if place.type is NodeType.FAN_OUT else "result"
        for path in sorted(place.node.defaults):
            try:
                first = parse_path(path)[0]
            except PathSyntaxError:
                first = ""
            if first != wanted:
                yield Violation(
                    f"{place.field}.defaults",
                    path,
                    f"no reference reads {path} from node {place.name}",
                    f"write the path as a reference reads it, such as {wanted}.rate",
                    Reason.INVALID_SPEC,
                )
