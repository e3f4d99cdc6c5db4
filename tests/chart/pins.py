"""Exact versions of everything that the images install; ``python -m tests.chart.pins`` writes them anew.

They are those of the environment that runs the tests, so that what is tested is what is built.
"""

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
EXTRAS = {
    "operator": ("operator",),
    "runtime_image": ("runtime", "runtime-onnx", "runtime-safetensors", "runtime-tracing", "runtime-gpu"),
}
"""Extras of each image, by its folder."""
CHOSEN = {"torch"}
"""Given by build arguments."""


def requirements(folder: str) -> list[Requirement]:
    """What pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = project["dependencies"] if folder == "operator" else []
    return [Requirement(text) for text in (*own, *(one for name in EXTRAS[folder] for one in _extra(project, name)))]


def _extra(project: dict[str, dict[str, list[str]]], name: str) -> list[str]:
    return project["optional-dependencies"][name]


def pins(folder: str) -> dict[str, str]:
    """The constraints file: versions by canonical name."""
    lines = (ROOT / folder / "constraints.txt").read_text().splitlines()
    found = (re.fullmatch(r"([a-z0-9-]+)==(\S+)", line) for line in lines if not line.startswith("#"))
    return {match[1]: match[2] for match in found if match}


def closure(wanted: Iterable[Requirement]) -> dict[str, str]:
    """Installed versions of requirements and of all that they require."""
    found: dict[str, str] = {}
    waiting = [(one, extra) for one in wanted for extra in ("", *sorted(one.extras))]
    seen = set()
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, extra) in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add((name, extra))
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        found[name] = installed.version
        for text in installed.requires or ():
            inner = Requirement(text)
            if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                inner.marker = None
                waiting += [(inner, more) for more in ("", *sorted(inner.extras))]
    return {name: found[name] for name in sorted(found) if name not in CHOSEN}


if __name__ == "__main__":
    for image in EXTRAS:
        head = "# What this image installs, exactly. Written by `python -m tests.chart.pins`.\n"
        text = "".join(f"{name}=={version}\n" for name, version in closure(requirements(image)).items())
        (ROOT / image / "constraints.txt").write_text(head + text)
