"""The pods of a revision, counted by what they mean for capacity."""

from dataclasses import dataclass

from slipway.api.observed import PodView, RevisionView

__all__ = ["Fleet", "fleet_of"]

UNSCHEDULABLE_AFTER = 60.0
"""Seconds after which a pod without a place is a shortage: a node may just be coming."""
SEASONED_AFTER = 60.0
"""Seconds of being ready after which means over the rate window speak about a pod."""
START_LIMIT = 600.0
"""Seconds after which a pod that is not ready counts as broken, unless starts are known to be slower."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Pods of a revision by state."""

    wanted: int
    """Replicas asked for up to now."""
    ready: int
    seasoned: int
    """Ready for so long that the metrics of the last minute are about them."""
    warming: int
    """Started or about to be, neither ready nor known to fail: capacity that is on its way."""
    unschedulable: int
    """Without a place in the cluster."""
    failure: str
    """Why pods cannot even be created."""

    @property
    def settled(self) -> bool:
        """Whether the metrics of the last minute are about all pods that were ordered and can be had."""
        return 0 < self.seasoned == self.ready and not self.warming


def fleet_of(view: RevisionView, wanted: int, slow_start: float, now: float) -> Fleet:
    """Count the pods; ``slow_start`` is the learned 90th percentile of starts in seconds, 0 if unknown."""
    limit = max(START_LIMIT, 3 * slow_start)
    alive = [pod for pod in view.pods if not pod.terminating]
    ready = [pod for pod in alive if pod.ready]
    missing = 0 if view.failure else max(0, wanted - len(alive))
    warming = sum(1 for pod in alive if _warming(pod, limit, now))
    return Fleet(
        wanted=wanted,
        ready=len(ready),
        seasoned=sum(1 for pod in ready if now - _ready_since(pod) >= SEASONED_AFTER),
        warming=warming + missing,
        unschedulable=sum(1 for pod in alive if _without_place(pod, now)),
        failure=view.failure,
    )


def _warming(pod: PodView, limit: float, now: float) -> bool:
    return not (pod.ready or pod.failing or pod.unschedulable) and now - pod.created_at < limit


def _ready_since(pod: PodView) -> float:
    return pod.created_at if pod.ready_at is None else pod.ready_at


def _without_place(pod: PodView, now: float) -> bool:
    since = pod.created_at if pod.unschedulable_since is None else pod.unschedulable_since
    return pod.unschedulable and now - since >= UNSCHEDULABLE_AFTER
