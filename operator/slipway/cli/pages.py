"""``python -m slipway.cli.pages``: write everything in the repository that is generated from the code.

The CRD (twice: the chart has its own copy), the API reference, the runbook of reasons, the tables of the operator's
metrics and of the chart's values, and Argo CD's settings; a test says when one of them is out of date.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from slipway.api.reasons import REASONS
from slipway.api.reference import REFERENCE_PATH, reference_markdown
from slipway.api.schema import CHART_CRD_PATH, CRD_PATH, crd_yaml
from slipway.cli.gitops_pages import argocd_settings, values_page
from slipway.engine import telemetry
from slipway.scaling.reasons import ScalingReason

__all__ = ["pages"]

ROOT = Path(__file__).parents[3]

_RUNBOOK = """# Runbook

What each reason in a condition, in `status.rollout.reason` or in `status.versions[].reason` means, and what to do.
`kubectl describe mdep NAME` and `slipway explain NAME` show them. Generated from the code; do not edit.

| Reason | What it means | What to do |
| --- | --- | --- |
"""
_NO_REMEDY = "Nothing; it passes or is as it should be."
_SCALING = """
## Reasons of scaling decisions

They stand in `status.scaling[].reason` and in the condition `ScalingActive`.

| Reason | What it means |
| --- | --- |
"""
_METRICS = """# Metrics of the operator

Served on `/metrics` beside `/healthz` and `/readyz`. Generated from the code; do not edit.

"""


def pages(root: Path = ROOT) -> Mapping[Path, str]:
    """Path in the repository to content, for every generated file; ``root`` is the repository."""
    values = (root / "charts" / "slipway" / "values.yaml").read_text()
    return {
        Path(CRD_PATH): crd_yaml(),
        CHART_CRD_PATH: crd_yaml(),
        Path("docs/chart-values.md"): values_page(values),
        Path("charts/deploy/argocd/argocd-cm.yaml"): argocd_settings(root / "charts" / "deploy" / "argocd"),
        Path(REFERENCE_PATH): reference_markdown(),
        Path("docs/runbook.md"): _runbook(),
        Path("docs/operator-metrics.md"): _METRICS + telemetry.table(),
    }


def _runbook() -> str:
    reasons = "".join(
        f"| `{reason}` | {explanation.meaning} | {explanation.remedy or _NO_REMEDY} |\n"
        for reason, explanation in sorted(REASONS.items())
    )
    scaling = "".join(f"| `{reason.value}` | {reason.meaning} |\n" for reason in ScalingReason)
    return _RUNBOOK + reasons + _SCALING + scaling


def _main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else ROOT
    for path, text in pages(root).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
