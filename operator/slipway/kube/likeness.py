"""Equal parts of JSON values, held once: objects of thousands of ModelDeployments differ in names and little else."""

import sys
from typing import Any

__all__ = ["Likeness"]

MOST = 4096
"""Parts that are remembered; with more, all are forgotten, and what comes is compared with what comes after."""
SHORT = 64
"""Characters of a string that is worth looking up."""


class Likeness:
    """Gives for a value an equal one that may be part of others as well, and so must never be changed."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: dict[tuple[Any, ...], Any] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, value: Any) -> Any:
        """An equal value; equal to JSON, for which 1, 1.0 and true differ."""
        if isinstance(value, dict):
            mapping: dict[str, Any] = {}
            marks: list[Any] = [dict]
            for name, inner in value.items():
                known = sys.intern(name)
                mapping[known] = one = self._part(inner)
                marks += (known, _mark(one))
            return self._one(mapping, tuple(marks))
        if isinstance(value, list):
            sequence = [self._part(inner) for inner in value]
            return self._one(sequence, (list, *map(_mark, sequence)))
        return self._part(value)

    def of_next(self, value: Any, former: Any) -> Any:
        """An equal value that shares with a ``former`` state of the same thing, itself given by this, what is equal.

        That is found out without a look at every part, where it is true of most of them.
        """
        if not (isinstance(value, dict) and isinstance(former, dict)):
            return former if _same(value, former) else self.of(value)
        if _same(value, former):
            return former
        return {sys.intern(name): self.of_next(inner, former.get(name)) for name, inner in value.items()}

    def _part(self, value: Any) -> Any:
        # Not what only looks like a string.
        if type(value) is str:
            return sys.intern(value) if len(value) <= SHORT else value
        return self.of(value) if isinstance(value, dict | list) else value

    def _one(self, made: Any, key: tuple[Any, ...]) -> Any:
        known = self._known.get(key)
        if known is not None:
            return known
        if len(self._known) >= self._most:
            self._known.clear()
        self._known[key] = made
        return made


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal to JSON, and in the same order: 1 and true are equal to Python."""
    return bool(one == other) and repr(one) == repr(other)


def _mark(value: Any) -> Any:
    """What tells a value from another; containers are told by being the same one, which a known whole keeps alive."""
    if type(value) is str:
        return value
    return id(value) if isinstance(value, dict | list) else (type(value), value)
