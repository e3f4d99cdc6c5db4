"""``slipway`` as in its image: ``python -m e2e.bench.operator_load.image run …``.

A development environment has many packages that the operator's image has not, and some that the operator does use
import others where they are found: a Kubernetes validator alone takes 20 MiB and seconds. Here they are not found.
"""

import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import packages_distributions
from types import ModuleType
from typing import ClassVar

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


class _Image(PathFinder):
    """Finds what lies on the path, but for what is absent."""

    absent: ClassVar[set[str]] = set()

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for what is absent."""
        if fullname.partition(".")[0] in cls.absent:
            return None
        return super().find_spec(fullname, path, target)


if __name__ == "__main__":
    _Image.absent = absent_packages(PINS.read_text())
    sys.meta_path[:] = [_Image if finder is PathFinder else finder for finder in sys.meta_path]
    from slipway.cli import main

    sys.exit(main())
