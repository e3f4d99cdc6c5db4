"""Equal parts of JSON values, held once: objects of thousands of ModelDeployments differ in names and little else."""

import sys
from typing import Any

__all__ = ["Likeness"]

MOST = 8192
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
            mapping = {sys.intern(name): self.of(inner) for name, inner in value.items()}
            return self._one(mapping, (dict, *mapping, *map(_mark, mapping.values())))
        if isinstance(value, list):
            sequence = [self.of(inner) for inner in value]
            return self._one(sequence, (list, *map(_mark, sequence)))
        # Not what only looks like a string.
        return sys.intern(value) if type(value) is str and len(value) <= SHORT else value

    def _one(self, made: Any, key: tuple[Any, ...]) -> Any:
        known = self._known.get(key)
        if known is not None:
            return known
        if len(self._known) >= self._most:
            self._known.clear()
        self._known[key] = made
        return made


def _mark(value: Any) -> Any:
    """What tells a value from another; containers are told by being the same one, which a known whole keeps alive."""
    return id(value) if isinstance(value, dict | list) else (type(value), value)
