"""``slipway`` as in its image: ``python -m e2e.bench.operator_load.image run …``.

A development environment has many packages that the operator's image has not, and some that the operator does use
import others where they are found: a Kubernetes validator alone takes 20 MiB and seconds. Here they are not found.
"""

import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.metadata import packages_distributions
from types import ModuleType

from e2e.sandbox.children import REPOSITORY_ROOT

__all__ = ["absent_packages"]

PINS = REPOSITORY_ROOT / "operator" / "constraints.txt"


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def absent_packages(pins: str) -> set[str]:
    """Importable names that only distributions provide which these pins do not name."""
    present = {_normal(line.partition("==")[0]) for line in pins.splitlines() if "==" in line} | {"slipway"}
    provided = packages_distributions()
    return {name for name, found in provided.items() if present.isdisjoint(map(_normal, found))}


class _Image:
    """A finder that finds nothing of some packages, so that nobody else is asked."""

    def __init__(self, absent: set[str]) -> None:
        self._absent = absent

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise for what is absent; leave everything else to the next finder."""
        if name.partition(".")[0] in self._absent:
            raise ModuleNotFoundError(f"No module named {name!r} in the operator's image", name=name)
        return None


if __name__ == "__main__":
    sys.meta_path.insert(0, _Image(absent_packages(PINS.read_text())))
    from slipway.cli import main

    sys.exit(main())
