"""``python -m agentrun.docgen``: writes the pages of docs/reference and the charts' values, or compares them."""

from __future__ import annotations

from pathlib import Path

from agentrun.crdgen.generated_files import run_generator
from agentrun.docgen.chart_values import build_chart_files
from agentrun.docgen.default_table import build_default_table
from agentrun.docgen.metric_table import build_metric_table
from agentrun.docgen.reason_table import build_reason_table
from agentrun.docgen.state_table import build_state_table


def build_files(root: Path) -> dict[Path, str]:
    """Return every generated page by path."""
    folder = root / "docs" / "reference"
    return {
        folder / "states.md": build_state_table(),
        folder / "reasons.md": build_reason_table(),
        folder / "defaults.md": build_default_table(),
        folder / "metrics.md": build_metric_table(),
        **build_chart_files(root),
    }


def main() -> None:
    """Write the files, or fail when one is not what it should be."""
    written = (
        "states.md, reasons.md, defaults.md and metrics.md in docs/reference, values.yaml and README.md in charts/"
    )
    run_generator("agentrun.docgen", written, build_files)


if __name__ == "__main__":
    main()
