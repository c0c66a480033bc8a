"""A ``${`` begins no reference."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.contract.model_base import cut_text
from agentrun.decisions.admission.spec_view import SpecView
from agentrun.decisions.admission.violation import Violation


def malformed_reference(view: SpecView) -> Iterator[Violation]:
    """Find templates that do not parse; the first malformed reference of each is named."""
    for malformed in view.malformed:
        error = malformed.error
        yield Violation(
            malformed.field,
            cut_text(error.text, 200),
            f"no reference at character {error.position + 1}: {error.problem}",
            error.remedy,
            Reason.INVALID_REFERENCE,
        )
