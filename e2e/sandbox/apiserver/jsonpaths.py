"""The JSONPath of printer columns, scale paths and selectable fields: fields, indexes, all items, simple filters."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import orjson

_STEP = re.compile(
    r"""\.(?P<field>(?:[A-Za-z0-9_\-/]|\\.)+)|\[['"](?P<quoted>[^'"]+)['"]\]|\[(?P<index>-?\d+)\]|(?P<all>\[\*\])"""
    r"""|\[\?\(@\.(?P<key>[\w./\\-]+)\s*(?P<op>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[\w.-]+)\)\]"""
)


@lru_cache(maxsize=512)
def steps(path: str) -> tuple[dict[str, str], ...]:
    """A path taken apart. Raises ValueError for what is not understood."""
    text = path if path.startswith((".", "[")) else f".{path}"
    out, at = [], 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise ValueError(f"unrecognized JSONPath at {text[at:]!r}")
        out.append({name: value for name, value in match.groupdict().items() if value is not None})
        at = match.end()
    return tuple(out)


def find(obj: Any, path: str) -> list[Any]:
    """All values at a path."""
    found = [obj]
    for step in steps(path):
        found = [value for node in found for value in _take(node, step)]
    return found


def _take(node: Any, step: dict[str, str]) -> list[Any]:
    if "field" in step or "quoted" in step:
        name = step.get("quoted") or re.sub(r"\\(.)", r"\1", step["field"])
        return [node[name]] if isinstance(node, dict) and name in node else []
    if isinstance(node, dict) and "all" in step:
        return list(node.values())
    if not isinstance(node, list):
        return []
    if "all" in step:
        return node
    if "index" in step:
        index = int(step["index"])
        return [node[index]] if -len(node) <= index < len(node) else []
    return [item for item in node if _holds(item, step)]


def _holds(item: Any, step: dict[str, str]) -> bool:
    found = find(item, step["key"])
    text = step["value"]
    wanted = (
        text[1:-1]
        if text[0] in "\"'"
        else orjson.loads(text)
        if text in ("true", "false") or text[0].isdigit()
        else text
    )
    equal = bool(found) and found[0] == wanted
    return equal if step["op"] == "==" else not equal


def field_path(path: str) -> tuple[str, ...]:
    """A path that only names fields, as a tuple of them. Raises ValueError for others."""
    out = []
    for step in steps(path):
        if "field" not in step:
            raise ValueError(f"{path!r} must be a simple path of fields")
        out.append(step["field"])
    return tuple(out)
