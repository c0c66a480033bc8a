"""A node reads an input that the run does not have."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.contract.failures import Reason
from agentrun.contract.value_tests import Operator
from agentrun.decisions.admission.spec_view import SpecView
from agentrun.decisions.admission.violation import Violation
from agentrun.decisions.value_paths import Missing, lookup_path


def reference_to_missing_input(view: SpecView) -> Iterator[Violation]:
    """Find reads of inputs that are not there; a test whether an input exists may ask for any."""
    for read in view.reads:
        if read.root != "inputs" or (read.test is not None and read.test.op is Operator.EXISTS):
            continue
        found = lookup_path({"inputs": view.spec.inputs}, ("inputs", *read.path))
        if isinstance(found, Missing):
            yield Violation(
                read.field,
                read.text,
                f"the run has no such input: {found.why}",
                "add it to spec.inputs, or correct the name",
                Reason.INVALID_REFERENCE,
            )
