"""Random edits and faults under request load, for as long as you like: ``python -m e2e.soak [--minutes N]``.

One sandbox (a simulated Kubernetes, a real Envoy and a real Prometheus), two operators of which one leads, a
ModelDeployment under load and another that comes and goes. Prints what was done and what was seen; exit code 1 when
anything was seen that must never be. The same seed draws the same course, though not to the millisecond.
"""

import argparse
import asyncio
import shutil
import sys

from e2e.sandbox.children import REPOSITORY_ROOT
from e2e.soak.soak import soak


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(prog="python -m e2e.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    folder = REPOSITORY_ROOT / ".slipway" / "soak"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    report = asyncio.run(soak(folder, chosen.seed, 60 * chosen.minutes, lambda line: print(line, file=sys.stderr)))
    print(report.text())
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
