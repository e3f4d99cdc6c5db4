"""What a mesh that lags could do with the objects that it is given: every state in which a request would be lost.

A sidecar learns of a VirtualService and of a DestinationRule in any order and up to `lag` seconds late. A request is
lost where a route leads with some weight into a subset that the rule does not hold, or to one without a ready pod.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slipway.kube.kinds import DESTINATION_RULE, POD, VIRTUAL_SERVICE, Kind

from e2e.faults.api import Api, Obj
from e2e.faults.nodes import is_ready
from e2e.sandbox.apiserver.store import Change, ChangeType

__all__ = ["Mesh"]

REVISION = "slipway.dev/revision"
Weights = dict[str, int]


def weights_of(route: Obj) -> Weights:
    """Weights by subset in the default route."""
    default = next((item for item in route["spec"]["http"] if item.get("name") == "default"), None)
    return {entry["destination"]["subset"]: entry["weight"] for entry in default["route"]} if default else {}


@dataclass
class Mesh:
    """Watches the routing of one ModelDeployment."""

    api: Api
    namespace: str
    name: str
    lag: float
    """Seconds; less than `traffic.settle`."""
    armed: bool = False
    """Whether requests are under way."""
    lost: list[str] = field(default_factory=list)
    """What would have lost requests."""
    course: list[Weights] = field(default_factory=list)
    """Weights in the order in which they were written, by subset."""
    _routes: list[tuple[float, Weights | None]] = field(default_factory=list)
    _rules: list[tuple[float, frozenset[str]]] = field(default_factory=list)
    _listening: list[Callable[[], None]] = field(default_factory=list)

    def start(self) -> None:
        """Begin to watch."""
        for kind in (VIRTUAL_SERVICE, DESTINATION_RULE, POD):
            self._listening.append(self.api.listen(kind, self._changed(kind)))

    def stop(self) -> None:
        """End."""
        while self._listening:
            self._listening.pop()()

    @property
    def weights(self) -> Weights:
        """As written last."""
        return (self._routes[-1][1] if self._routes else None) or {}

    def _changed(self, kind: Kind) -> Callable[[Change], None]:
        def changed(change: Change) -> None:
            metadata = change.new.metadata
            if metadata.get("namespace") != self.namespace or (kind != POD and metadata["name"] != self.name):
                return
            gone, now = change.type is ChangeType.DELETED, asyncio.get_running_loop().time()
            if kind == VIRTUAL_SERVICE:
                self._take_route(None if gone else weights_of(change.new.obj), now)
            elif kind == DESTINATION_RULE:
                subsets = [] if gone else change.new.obj["spec"].get("subsets") or []
                self._rules.append((now, frozenset(subset["name"] for subset in subsets)))
            self.check(now)

        return changed

    def _take_route(self, weights: Weights | None, now: float) -> None:
        self._routes.append((now, weights))
        if weights and (not self.course or self.course[-1] != weights):
            self.course.append(weights)
        if self.armed and weights is not None and (sum(weights.values()) != 100 or min(weights.values()) < 0):
            self.lost.append(f"{now:.2f}: weights {weights}")

    def check(self, now: float) -> None:
        """Look at every pair of states that a sidecar may be in."""
        if not self.armed:
            return
        pods = self.api.objects(POD, self.namespace)
        ready = {pod["metadata"]["labels"].get(REVISION) for pod in pods if is_ready(pod)}
        for weights in _visible(self._routes, now - self.lag):
            if weights is None:
                self.lost.append(f"{now:.2f}: no route")
                continue
            used = {subset for subset, weight in weights.items() if weight}
            for subsets in _visible(self._rules, now - self.lag):
                if used - subsets:
                    self.lost.append(f"{now:.2f}: weights {weights} with subsets {sorted(subsets)}")
            if used - ready:
                self.lost.append(f"{now:.2f}: weights {weights} with ready pods of {ready}")


def _visible(states: list[tuple[float, Any]], since: float) -> list[Any]:
    """States that somebody who is late may still be in, newest last."""
    first = max((number for number, (begun, _) in enumerate(states) if begun <= since), default=0)
    return [state for _, state in states[first:]]
