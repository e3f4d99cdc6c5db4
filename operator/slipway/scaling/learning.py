"""What a replica can do, learned from intervals in which all replicas were saturated; it stands in for ``qps.target``.

Only saturation shows a limit: a fleet that keeps up shows how much came, not how much it could have taken. What is
learned moves slowly, counts nothing while pods start, and says in every decision that it stands in.
"""

from dataclasses import replace

from slipway.api.autoscaling import Autoscaling
from slipway.api.scalars import DecimalString
from slipway.api.status import LearnedCapacity, VersionStatus
from slipway.api.timestamps import format_time, parse_time
from slipway.scaling.capacity import SAFE_SHARE
from slipway.scaling.fleet import Fleet
from slipway.scaling.request import ScalingRequest

__all__ = ["INTERVALS_NEEDED", "known_target", "learned_capacity", "learned_target", "with_learned_target"]

INTERVAL = 60.0
"""Seconds between two observations, so that each rests on requests of its own."""
INTERVALS_NEEDED = 3
"""Saturated intervals before what was learned is used."""
LARGEST_MOVE = 0.1
"""Share by which one observation may move what was learned."""
UNPROVEN = 0.8
"""Share of stable's capacity that a version is taken to have before it has shown its own."""
SATURATED_WAIT = 0.1
"""Mean wait in seconds from which replicas count as saturated where ``queueTime.upper`` is turned off."""


def learned_capacity(request: ScalingRequest, fleet: Fleet) -> LearnedCapacity:
    """What is known after this moment; the same value when it teaches nothing."""
    known = request.entry.capacity
    at = parse_time(known.at)
    served = request.metrics.served
    if not (_saturated(request, fleet) and fleet.settled and served.ok and served.value > 0):
        return known
    if at is not None and abs(request.now - at) < INTERVAL:
        return known
    seen = served.value / fleet.ready
    if known.qps_per_replica is not None:
        before = known.qps_per_replica.number
        seen = min(max(seen, before * (1 - LARGEST_MOVE)), before * (1 + LARGEST_MOVE))
    return LearnedCapacity(
        qps_per_replica=DecimalString.of(seen, 4),
        intervals=min(known.intervals + 1, INTERVALS_NEEDED),
        at=format_time(request.now),
    )


def learned_target(entry: VersionStatus) -> float | None:
    """Requests per second that a replica is given by what was learned: 80 % of its limit; ``None`` while unknown."""
    known = entry.capacity
    if known.qps_per_replica is None or known.intervals < INTERVALS_NEEDED:
        return None
    return SAFE_SHARE * known.qps_per_replica.number or None


def known_target(autoscaling: Autoscaling, entry: VersionStatus, stable: VersionStatus | None) -> float | None:
    """Requests per second that a replica may be given: ``qps.target``, else what was learned; ``None`` while unknown.

    A version that has not shown its own limit is taken to do 80 % of what stable does.
    """
    if autoscaling.qps.target is not None:
        return autoscaling.qps.target
    own = learned_target(entry)
    if own is not None or stable is None:
        return own
    stables = learned_target(stable)
    return None if stables is None else UNPROVEN * stables


def with_learned_target(request: ScalingRequest) -> ScalingRequest:
    """The request with the learned target where the user has set none."""
    target = learned_target(request.entry)
    if request.autoscaling.qps.target is not None or target is None:
        return request
    qps = request.autoscaling.qps.model_copy(update={"target": target})
    scaling = request.autoscaling.model_copy(update={"qps": qps})
    return replace(request, autoscaling=scaling, target_learned=True)


def _saturated(request: ScalingRequest, fleet: Fleet) -> bool:
    """Requests wait, longer than they should, whatever GPUs say; one busy replica among idle ones is no saturation."""
    depth, wait = request.metrics.queue_depth, request.metrics.queue_time
    limit = request.autoscaling.queue_time.upper.seconds or SATURATED_WAIT
    return depth.ok and depth.value >= fleet.ready and wait.ok and wait.value > limit
