"""Strategy Target: enough replicas for demand, with guards that raise the number or veto a lower one.

Demand is requests per second against ``qps.target`` (and the backlog that has to be worked off), and requests in
flight against ``concurrency.target``. With neither set, GPU utilisation (or the executor's busy share) stands in for
demand, so that an object without any setting scales sensibly.

Exactly ``qps.target`` per replica is n = ceil(demand / target), which is a / 0.8 with the offered load a = demand / mu
and mu = target / 0.8. Small fleets queue more at the same utilisation; the square root term for that, a + sqrt(a), is
added only once requests are seen waiting, so that the target means what it says.
"""

import math
from dataclasses import dataclass

from slipway.api.samples import Quality, Sample
from slipway.scaling.capacity import SAFE_SHARE, whole
from slipway.scaling.demand import Demand, usable
from slipway.scaling.fleet import Fleet
from slipway.scaling.guards import guarded
from slipway.scaling.proposal import Proposal, held
from slipway.scaling.reasons import ScalingReason
from slipway.scaling.request import ScalingRequest

__all__ = ["propose_target"]

DRAIN_SECONDS = 60.0
"""Time in which a backlog should be worked off."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one signal asks for."""

    signal: str
    quality: Quality
    replicas: float | None
    """Fractional replicas that carry it, a lower bound unless quality is OK; ``None`` while nothing is known."""
    reason: ScalingReason
    message: str
    detail: str
    """What is wrong with the signal, if anything is."""


def propose_target(request: ScalingRequest, fleet: Fleet, demand: Demand) -> Proposal:
    """Replicas for the greatest need, raised or held by the guards."""
    needs = _needs(request, fleet, demand)
    if not needs:
        detail = "Set qps.target, concurrency.target or gpuUtilization.target."
        return Proposal(fleet.wanted, ScalingReason.NO_SIGNAL, "", detail, detail, active=False)
    untrusted = next((need for need in needs if need.quality is not Quality.OK), None)
    known = [(need.replicas, need) for need in needs if need.replicas is not None]
    if not known:
        return guarded(request, fleet, held(request, needs[0].quality, needs[0].signal, needs[0].detail), needed=None)
    needed, leading = max(known, key=lambda pair: pair[0])
    proposal = _planned(fleet.wanted, needed, leading, request.autoscaling.tolerance)
    if untrusted is not None and proposal.replicas <= fleet.wanted:
        proposal = held(request, untrusted.quality, untrusted.signal, untrusted.detail)
    return guarded(request, fleet, proposal, needed=_staffing(request, demand, needed))


def _planned(present: int, needed: float, need: Need, tolerance: float) -> Proposal:
    if present > 0 and present * (1 - tolerance) <= needed <= present * (1 + tolerance):
        return Proposal(present, ScalingReason.STEADY, need.signal, need.message)
    wanted = whole(needed)
    if wanted > present:
        return Proposal(wanted, need.reason, need.signal, need.message)
    reason = ScalingReason.SCALED_DOWN if wanted < present else ScalingReason.STEADY
    return Proposal(wanted, reason, need.signal, need.message)


def _needs(request: ScalingRequest, fleet: Fleet, demand: Demand) -> list[Need]:
    scaling = request.autoscaling
    needs: list[Need] = []
    if scaling.qps.target is not None:
        origin = ", learned: qps.target is unset" if request.target_learned else ""
        needs += _needs_of_demand(scaling.qps.target, origin, request.metrics.queue_depth, demand)
    if scaling.concurrency.target > 0:
        target = scaling.concurrency.target
        what = f"requests in flight at {target:g} per replica"
        needs.append(_need_of("concurrency", request.metrics.in_flight, 1 / target, what))
    if not needs and scaling.gpu_utilization.target > 0:
        target = scaling.gpu_utilization.target
        what = f"% {request.metrics.gpu_source or 'GPU utilisation'} at a target of {target:g} %"
        need = _need_of("gpu", request.metrics.gpu_utilization, fleet.ready / target, what)
        needs.append(need if fleet.seasoned else _no_more(need, fleet.wanted))
    return needs


def _needs_of_demand(target: float, origin: str, queue_depth: Sample, demand: Demand) -> list[Need]:
    detail = "" if demand.quality is Quality.OK else f"qps: {demand.reason or demand.quality.lower()}"
    if not demand.known:
        return [Need("qps", demand.quality, None, ScalingReason.SCALED_UP_DEMAND, detail, detail)]
    expected = f", {demand.forecast:.4g} expected," if demand.forecast > demand.rate else ""
    message = f"{demand.rate:.4g} requests/s{expected} at {target:.4g} per replica{origin}"
    needed = demand.forecast / target
    needs = [Need("qps", demand.quality, needed, ScalingReason.SCALED_UP_DEMAND, message, detail)]
    if usable(queue_depth) and queue_depth.value > 0:
        text = f"{message}, and {queue_depth.value:.4g} requests waiting"
        drained = needed + queue_depth.value / DRAIN_SECONDS / target
        needs.append(Need("backlog", demand.quality, drained, ScalingReason.SCALED_UP_BACKLOG, text, detail))
    if queue_depth.quality not in (Quality.OK, Quality.MISSING):
        doubt = f"backlog: {queue_depth.reason or queue_depth.quality.lower()}"
        needs.append(Need("backlog", queue_depth.quality, None, ScalingReason.SCALED_UP_BACKLOG, doubt, doubt))
    return needs


def _need_of(signal: str, sample: Sample, replicas_per_unit: float, what: str) -> Need:
    if usable(sample):
        message = f"{sample.value:.4g} {what}"
        detail = "" if sample.ok else f"{signal}: {sample.reason or sample.quality.lower()}"
        return Need(
            signal,
            sample.quality,
            sample.value * replicas_per_unit,
            ScalingReason.SCALED_UP_DEMAND,
            message,
            detail,
        )
    detail = f"{signal}: {sample.reason or sample.quality.lower()}"
    return Need(signal, sample.quality, None, ScalingReason.SCALED_UP_DEMAND, detail, detail)


def _no_more(need: Need, present: int) -> Need:
    """A load on GPUs that may still be the warm-up is no reason to order more of them."""
    if need.replicas is None or need.replicas <= present:
        return need
    return Need(need.signal, need.quality, float(present), need.reason, need.message, need.detail)


def _staffing(request: ScalingRequest, demand: Demand, needed: float) -> float:
    """Fractional replicas to have once requests are seen waiting."""
    target = request.autoscaling.qps.target
    if target is None or not demand.known:
        return needed
    offered = demand.forecast * SAFE_SHARE / target
    return max(needed, offered + math.sqrt(offered))
