"""The books of one conversion: which field of the source went where, and what is to be told about the others.

A field that nobody has taken or spoken of when the books are closed is reported as unknown, so nothing is lost
without a word.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Finding", "Ledger", "NotConvertibleError", "Severity", "leaves"]

Path = tuple[str | int, ...]
"""Keys and list positions from the root of an object."""


class Severity(StrEnum):
    """What became of a field."""

    PARTLY = "partly"
    """It was converted, and means something a little different now."""
    DROPPED = "dropped"
    """It was not converted."""
    UNNEEDED = "unneeded"
    """It has no counterpart since nothing has to be said there."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is to be told about one field of the source, and all that lies in it. Never tells its value."""

    path: str
    """Such as ``spec.predictor.model.env[0]``; empty for the whole object."""
    severity: Severity
    message: str


class NotConvertibleError(Exception):
    """The object cannot become a ModelDeployment at all; says why."""


class Ledger:
    """One source object, what was made of it so far, and what is to be said."""

    def __init__(self, source: Mapping[str, Any]) -> None:
        self.source = source
        self.made: dict[str, Any] = {}
        self._findings: dict[Path, Finding] = {}
        self._settled: set[Path] = set()
        self._origins: dict[Path, Path] = {}

    def get(self, *path: str | int) -> Any:
        """The value at a path of the source; None where there is none."""
        return _at(self.source, path)

    def table(self, *path: str | int) -> Mapping[str, Any]:
        """The object at a path; an empty one where there is none, or something else."""
        value = self.get(*path)
        return value if isinstance(value, Mapping) else {}

    def items(self, *path: str | int) -> list[Any]:
        """The list at a path; an empty one where there is none, or something else."""
        value = self.get(*path)
        return value if isinstance(value, list) else []

    def text(self, *path: str | int) -> str:
        """The text at a path; empty where there is none, or something else."""
        value = self.get(*path)
        return value if isinstance(value, str) else ""

    def whole(self, *path: str | int) -> int | None:
        """The whole number at a path; None where there is none, or something else."""
        value = self.get(*path)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def settle(self, *path: str | int) -> None:
        """Everything at a path is accounted for in what was made."""
        self._settled.add(path)

    def place(self, target: str, value: Any, *path: str | int) -> None:
        """Put a value at a dotted target of what is made; it comes from a path of the source, which is settled."""
        self.derive(target, value, *path)
        self.settle(*path)

    def derive(self, target: str, value: Any, *path: str | int) -> None:
        """Put a value at a dotted target that follows from a path of the source, without settling the path."""
        self.set(target, value)
        self._origins[tuple(target.split("."))] = path

    def move(self, target: str, *path: str | int) -> None:
        """Place the value at a path as it is, if there is one."""
        if self.get(*path) is not None:
            self.place(target, self.get(*path), *path)

    def set(self, target: str, value: Any) -> None:
        """Put a value at a dotted target of what is made."""
        *parents, last = target.split(".")
        where = self.made
        for key in parents:
            where = where.setdefault(key, {})
        where[last] = value

    def partly(self, message: str, *path: str | int) -> None:
        """A field was converted and means something a little different now."""
        self._say(Severity.PARTLY, message, path)

    def dropped(self, message: str, *path: str | int) -> None:
        """A field was not converted."""
        self._say(Severity.DROPPED, message, path)

    def unneeded(self, message: str, *path: str | int) -> None:
        """A field has no counterpart since nothing has to be said there."""
        self._say(Severity.UNNEEDED, message, path)

    def withdraw(self, field: str, message: str) -> bool:
        """Take something out of what was made since the API refuses it, and report where it came from.

        ``field`` is a path in the API's notation; False says that nothing that was placed lies there.
        """
        wanted = tuple(re.sub(r"\[.*?\]", "", field).split("."))
        for target, origin in list(self._origins.items()):
            if wanted[: len(target)] == target or target[: len(wanted)] == wanted:
                _remove(self.made, target)
                del self._origins[target]
                self.dropped(f"{field} {message}", *origin)
                return True
        return False

    def findings(self) -> tuple[Finding, ...]:
        """All findings in the order of the source; leaves that nobody accounted for are dropped ones."""
        known = set(self._findings) | self._settled
        order = {path: number for number, path in enumerate(_nodes(self.source))}
        for path in leaves(self.source):
            if not any(path[:length] in known for length in range(len(path) + 1)):
                self.dropped("is not known to the converter", *path)
        ranked = sorted(self._findings, key=lambda path: order.get(path, -1))
        return tuple(self._findings[path] for path in ranked)

    def _say(self, severity: Severity, message: str, path: Path) -> None:
        self._findings[path] = Finding(_written(path), severity, message)


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of everything that is no object or list, and of empty ones."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for position, item in enumerate(value):
            yield from leaves(item, (*path, position))
    else:
        yield path


def _nodes(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    entries = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        yield from _nodes(item, (*path, key))


def _at(value: Any, path: Path) -> Any:
    for key in path:
        if isinstance(key, int):
            value = value[key] if isinstance(value, list) and key < len(value) else None
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _remove(made: dict[str, Any], target: Path) -> None:
    *parents, last = target
    where: Any = made
    for key in parents:
        where = where.get(key) if isinstance(where, dict) else None
    if isinstance(where, dict):
        where.pop(str(last), None)


def _written(path: Path) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")
