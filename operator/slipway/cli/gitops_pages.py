"""Generated files of the installation: the table of the chart's values, and Argo CD's settings from their Lua files."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from slipway.api.schema import PlainDumper
from slipway.api.spec import GROUP, KIND

__all__ = ["argocd_settings", "values_page"]

_VALUES = """# Values of the Helm chart

Any other value is refused. Generated from `charts/slipway/values.yaml`; do not edit.

| Value | Default | Meaning |
| --- | --- | --- |
"""
_ARGOCD = """# Settings of Argo CD for ModelDeployments: merge them into the ConfigMap argocd-cm.
# Generated from the Lua files beside it; do not edit.
"""


@dataclass(frozen=True, slots=True)
class Value:
    """One value of the chart."""

    path: str
    default: str
    meaning: str


def values_page(text: str) -> str:
    """The table of values from the text of a commented values.yaml; raises ValueError for one without a comment."""
    return _VALUES + "".join(f"| `{row.path}` | `{row.default}` | {row.meaning} |\n" for row in _values(text))


def _values(text: str) -> Iterator[Value]:
    tree = yaml.safe_load(text)
    comment: list[str] = []
    parents: list[str] = []
    for line in text.splitlines():
        content = line.strip()
        depth = (len(line) - len(line.lstrip())) // 2
        if content.startswith("#"):
            comment.append(content.removeprefix("#").strip())
            continue
        key, colon, _rest = content.partition(":")
        path = [*parents[:depth], key]
        known, value = _find(tree, path)
        if not colon or not known:
            comment = comment if content else []
            continue
        parents = path
        if comment:
            yield Value(".".join(path), _default(value), " ".join(comment))
        elif not isinstance(value, dict) and not _documented_above(tree, path):
            raise ValueError(f"values.yaml: {'.'.join(path)} has no comment")
        comment = []


def _documented_above(tree: Any, path: list[str]) -> bool:
    """Whether the key lies in a value that is documented as a whole, as requests and limits are."""
    return path[0] == "resources" and len(path) > 1


def _find(tree: Any, path: list[str]) -> tuple[bool, Any]:
    for name in path:
        if not isinstance(tree, dict) or name not in tree:
            return False, None
        tree = tree[name]
    return True, tree


def _default(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()


def argocd_settings(folder: Path) -> str:
    """The ConfigMap with health check and actions from the Lua files in a folder."""
    discovery = (folder / "actions" / "discovery.lua").read_text()
    definitions = [
        {"name": path.stem, "action.lua": path.read_text()}
        for path in sorted((folder / "actions").glob("*.lua"))
        if path.stem != "discovery"
    ]
    actions = {"discovery.lua": discovery, "definitions": definitions}
    data = {
        f"resource.customizations.health.{GROUP}_{KIND}": (folder / "health.lua").read_text(),
        f"resource.customizations.actions.{GROUP}_{KIND}": _dumped(actions),
    }
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-cm", "namespace": "argocd"}}
    return _ARGOCD + _dumped({**head, "data": data})


class _BlockDumper(PlainDumper):
    """Texts of several lines as blocks, so that Lua stays readable."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_BlockDumper.add_representer(str, _text)


def _dumped(value: Any) -> str:
    return yaml.dump(value, Dumper=_BlockDumper, sort_keys=False, width=1000)
