"""Sets of field paths, as `managedFields` records them (FieldsV1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

JsonDict = dict[str, Any]
Path = tuple[str, ...]
# A path is a tuple of FieldsV1 keys: "f:<field>", 'k:{"name":"a"}' (item by key), 'v:"x"' (item by value), "i:<n>".


class FieldSet:
    """A set of paths as a tree: `members` are the paths that end here, `children` those that go on."""

    __slots__ = ("children", "members")

    def __init__(self) -> None:
        self.members: set[str] = set()
        self.children: dict[str, FieldSet] = {}

    def __bool__(self) -> bool:
        return bool(self.members) or any(self.children.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FieldSet) or self.members != other.members:
            return False
        mine = {key: child for key, child in self.children.items() if child}
        return mine == {key: child for key, child in other.children.items() if child}

    __hash__ = None  # type: ignore[assignment]

    def insert(self, path: Path) -> None:
        """Add one path; the empty path is no field and is ignored."""
        if not path:
            return
        node = self
        for key in path[:-1]:
            node = node.children.setdefault(key, FieldSet())
        node.members.add(path[-1])

    def has(self, path: Path) -> bool:
        """Whether exactly this path is in the set."""
        node: FieldSet | None = self
        for key in path[:-1]:
            node = node.children.get(key) if node is not None else None
        return node is not None and path[-1] in node.members

    def union(self, other: FieldSet) -> FieldSet:
        """All paths of both."""
        out = FieldSet()
        out.members = self.members | other.members
        for key in self.children.keys() | other.children.keys():
            mine, theirs = self.children.get(key), other.children.get(key)
            out.children[key] = mine.union(theirs) if mine and theirs else (mine or theirs or FieldSet())
        return out

    def difference(self, other: FieldSet) -> FieldSet:
        """The paths that are not in the other set."""
        out = FieldSet()
        out.members = self.members - other.members
        for key, child in self.children.items():
            theirs = other.children.get(key)
            rest = child.difference(theirs) if theirs else child
            if rest:
                out.children[key] = rest
        return out

    def intersection(self, other: FieldSet) -> FieldSet:
        """The paths that are in both."""
        out = FieldSet()
        out.members = self.members & other.members
        for key, child in self.children.items():
            theirs = other.children.get(key)
            common = child.intersection(theirs) if theirs else None
            if common:
                out.children[key] = common
        return out

    def paths(self, prefix: Path = ()) -> Iterator[Path]:
        """All paths, parents before children, in a stable order."""
        for key in sorted(self.members | self.children.keys()):
            here = (*prefix, key)
            if key in self.members:
                yield here
            if key in self.children:
                yield from self.children[key].paths(here)

    def encode(self) -> JsonDict:
        """The FieldsV1 object."""
        out: JsonDict = {}
        for key in sorted(self.members | self.children.keys()):
            child = self.children.get(key)
            if not child:
                if key in self.members:
                    out[key] = {}
                continue
            encoded = child.encode()
            out[key] = {".": {}, **encoded} if key in self.members else encoded
        return out


def decode(fields: JsonDict) -> FieldSet:
    """The set that a FieldsV1 object stands for. Raises ValueError if it is none."""
    out = FieldSet()
    for key, below in fields.items():
        if key == ".":
            continue
        if key[:2] not in ("f:", "k:", "v:", "i:") or not isinstance(below, dict):
            raise ValueError(f"missing key type: {key!r}")
        if not below or "." in below:
            out.members.add(key)
        child = decode(below)
        if child:
            out.children[key] = child
    return out


def item_key(keys: JsonDict) -> str:
    """The path element of a list item that is told apart by these key fields."""
    return "k:" + orjson.dumps(keys, option=orjson.OPT_SORT_KEYS).decode()


def item_value(value: Any) -> str:
    """The path element of a set item."""
    return "v:" + orjson.dumps(value).decode()


def readable(path: Path) -> str:
    """`.spec.containers[name="main"].image`: the path as error messages show it."""
    out = ""
    for element in path:
        kind, rest = element[:2], element[2:]
        if kind == "f:":
            out += f".{rest}"
        elif kind == "k:":
            pairs = orjson.loads(rest)
            out += "[" + ",".join(f"{key}={orjson.dumps(value).decode()}" for key, value in sorted(pairs.items())) + "]"
        elif kind == "v:":
            out += f"[={rest}]"
        else:
            out += f"[{rest}]"
    return out
