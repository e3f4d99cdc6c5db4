"""``make manifests``: the Helm chart as plain manifests, for kubectl and kustomize.

    python -m charts.deploy.render [VALUES_FILE]

Without a file of values the chart's defaults are rendered into ``charts/deploy/manifests/slipway.yaml``, which is
checked in and leaves the CustomResourceDefinition to the kustomization beside it; with one, all goes to
``dist/slipway.yaml``.
"""

import subprocess
import sys
from pathlib import Path

from e2e.sandbox.binaries import helm_path

__all__ = ["CHECKED_IN", "manifests"]

ROOT = Path(__file__).parents[2]
CHECKED_IN = ROOT / "charts" / "deploy" / "manifests" / "slipway.yaml"
_HEAD = "# The chart charts/slipway with its default values. Written by `make manifests`; do not edit.\n"
_OF_HELM = ("app.kubernetes.io/managed-by: Helm", "helm.sh/chart: ")


def manifests(values: Path | None = None) -> str:
    """The chart's objects without what only Helm reads; raises CalledProcessError with helm's complaint."""
    command = [str(helm_path()), "template", "slipway", str(ROOT / "charts" / "slipway"), "-n", "slipway-system"]
    command += ["-f", str(values)] if values else ["--set", "crds.install=false"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    kept = [line for line in text.splitlines() if not line.strip().startswith(_OF_HELM)]
    return _HEAD + "\n".join(kept) + "\n"


def main(arguments: list[str]) -> int:
    """Write the manifests and say where they are."""
    values = Path(arguments[0]) if arguments else None
    target = ROOT / "dist" / "slipway.yaml" if values else CHECKED_IN
    try:
        text = manifests(values)
    except subprocess.CalledProcessError as error:
        print(error.stderr, end="", file=sys.stderr)
        return 1
    target.parent.mkdir(exist_ok=True)
    target.write_text(text)
    print(target.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
