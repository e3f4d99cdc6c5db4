"""Whether the three weights agree: intended, held by the router, and shown by requests.

Disagreement is normal for as long as the mesh converges; what lasts longer is said. Shares of requests scatter as a
binomial does, so they are compared with that much tolerance.
"""

import math
from collections.abc import Iterator

from slipway.api.observed import Observed
from slipway.api.scalars import format_duration
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus
from slipway.api.timestamps import parse_time

__all__ = ["traffic_verdict"]

GRACE = 10.0
"""Seconds beyond settle until a weight that is not taken up counts as stuck."""
RATE_WINDOW = 60.0
"""Seconds over which arrivals are counted."""
LAG = 30.0
"""Seconds until a request that was answered is in that count."""
LEAST_REQUESTS = 100
SIGMAS = 4.0
POINTS = 0.03
"""Difference in shares that is never told: shown weights are replaced only when they have moved visibly."""


def traffic_verdict(
    status: ModelDeploymentStatus, spec: ModelDeploymentSpec | None, observed: Observed, now: float
) -> tuple[bool | None, str, str]:
    """Status, reason and message of the condition TrafficApplied, as far as weights go."""
    if observed.traffic.leaving:
        return False, "WaitingForDeletion", f"nothing is written until it is gone: {observed.traffic.leaving}"
    if observed.traffic.refusal:
        return False, "RouteRefused", observed.traffic.refusal
    settle = spec.traffic.settle.seconds if spec is not None else 0.0
    written = parse_time(status.rollout.weight_written_at) if status.rollout is not None else None
    age = math.inf if written is None else now - written
    late = [entry.name for entry in status.versions if entry.weight.applied != entry.weight.intended]
    if late:
        names = ", ".join(late)
        if age < settle + GRACE:
            return None, "WaitingForMesh", f"the router takes up the weight of {names}"
        waited = format_duration(settle + GRACE)
        return False, "WaitingForMesh", f"the router does not hold the intended weight of {names} after {waited}"
    if not observed.traffic.exists:
        return None, "NoRoute", "no route exists yet"
    if age >= settle + RATE_WINDOW + LAG and not _pinned_by_design(spec):
        for text in _differences(status):
            return False, "ObservedDiffers", text
    return True, "Applied", "the router holds the intended weights"


def _pinned_by_design(spec: ModelDeploymentSpec | None) -> bool:
    """Whether requests go to versions past the weights because the spec says so."""
    if spec is None:
        return True
    traffic = spec.traffic
    return bool(
        traffic.session_affinity.cookie
        or (traffic.mirror.version and traffic.mirror.percent)
        or any(experiment.match for experiment in traffic.experiments)
    )


def _differences(status: ModelDeploymentStatus) -> Iterator[str]:
    requests = RATE_WINDOW * sum(entry.qps.number for entry in status.versions if entry.qps is not None)
    if requests < LEAST_REQUESTS:
        return
    for entry in status.versions:
        if entry.weight.observed is None:
            continue
        held, shown = entry.weight.applied / 100, entry.weight.observed.number / 100
        if abs(held - shown) > POINTS + SIGMAS * math.sqrt(held * (1 - held) / requests):
            yield (
                f"the router holds {entry.weight.applied} % for {entry.name}, and requests show "
                f"{entry.weight.observed} %; requests pinned by header and clients outside the mesh count as well"
            )
