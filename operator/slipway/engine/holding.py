"""Status changes that only tell more of the same wait: held back for a moment, since what is waited for may come.

While a change is held back nothing is done at all, so status still is written before any effect.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slipway.api.status import ModelDeploymentStatus, Stage
from slipway.kube.metadata import Key

__all__ = ["HOLD", "Holding", "only_tells"]

HOLD = 1.0
"""Seconds for which such a change is held back at most."""

_TELLING_ROLLOUT = frozenset({"reason", "message"})
_TELLING_VERSION = frozenset({"readyReplicas", "coldStart", "reason", "message"})


def only_tells(before: Mapping[str, Any], patch: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the change of a status, all in its JSON form, is of no consequence for what is done or decided next.

    Counts of pods, reasons and messages are observed anew at every look. What the router may lead to counts as changed
    when its last pod goes or its first comes.
    """
    if not patch.keys() <= {"replicas", "versions", "rollout", "conditions"}:
        return False
    rollout = patch.get("rollout", {})
    if not isinstance(rollout, Mapping) or not rollout.keys() <= _TELLING_ROLLOUT:
        return False
    same_truths = _truths(before) == _truths(after)
    return same_truths and _stripped(before.get("versions") or ()) == _stripped(after.get("versions") or ())


def _truths(status: Mapping[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}


def _stripped(versions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Versions without what only tells."""
    return [
        {name: value for name, value in entry.items() if name not in _TELLING_VERSION}
        | {"serves": bool(entry.get("subset") and entry.get("readyReplicas"))}
        for entry in versions
    ]


class Holding:
    """Remembers since when changes of which ModelDeployments are held back; a new process holds nothing back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[Key, float] = {}

    def rest(
        self, key: Key, before: Mapping[str, Any], patch: Mapping[str, Any], status: ModelDeploymentStatus
    ) -> float:
        """Seconds for which the write of a change may still wait; 0 for one that may not, or not any more."""
        moving = status.rollout is not None and status.rollout.stage is not Stage.FINISHED
        if not moving or not only_tells(before, patch, status.to_wire()):
            self.end(key)
            return 0.0
        now = self._clock()
        rest = self._since.setdefault(key, now) + HOLD - now
        if rest <= 0:
            self.end(key)
            return 0.0
        return rest

    def end(self, key: Key) -> None:
        """Note that nothing is held back any more."""
        self._since.pop(key, None)
