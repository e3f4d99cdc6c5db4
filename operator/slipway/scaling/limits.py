"""From what load asks for to what is done: bounds, step sizes, cooldown, stabilisation, what the cluster can hold."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from slipway.api.autoscaling import CooldownAppliesTo
from slipway.api.status import PlanSample
from slipway.api.timestamps import parse_time, whole_second
from slipway.scaling.fleet import Fleet
from slipway.scaling.proposal import Proposal
from slipway.scaling.reasons import ScalingReason
from slipway.scaling.request import ScalingRequest
from slipway.scaling.window import Window

__all__ = ["Bounds", "Step", "begins_anew", "step"]

PENDING = 2
"""Pods without a place that are kept: enough to make a cluster autoscaler act."""
SMALLEST_ADDITION = 0.25
"""Share of the present replicas below which a step up waits for the pods of the last one: as each of them becomes ready
the limit moves by one, which is no reason to order one by one."""
STARTS_PER_WINDOW = 2
"""The stabilisation window is at least this many slow starts: what is removed takes one to come back."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Fewest and most replicas."""

    lower: int
    """Of minimum and the rollout's floor the greater, but never above ``upper``."""
    upper: int

    @classmethod
    def of(cls, request: ScalingRequest) -> "Bounds":
        """The bounds that hold whatever load says."""
        upper = request.autoscaling.max_replicas
        return cls(min(max(request.minimum, request.floor, 0), upper), upper)


@dataclass(frozen=True, slots=True)
class Step:
    """The number of replicas to have now."""

    replicas: int
    reason: str
    signal: str
    message: str
    """The numbers in words."""
    detail: str = ""
    """What is worth telling while nothing changes."""
    plans: tuple[PlanSample, ...] = ()


@dataclass(frozen=True, slots=True)
class Cap:
    """Something that allows no more than a number of replicas for now."""

    replicas: int
    reason: ScalingReason
    detail: str


def step(request: ScalingRequest, fleet: Fleet, proposal: Proposal, slow_start: float) -> Step:
    """Apply every limit to a proposal."""
    bounds = Bounds.of(request)
    plan = max(proposal.replicas, bounds.lower)
    if proposal.replicas > fleet.wanted:
        chosen = _up(request, fleet, proposal)
    elif plan < fleet.wanted:
        chosen = _down(request, fleet, proposal, plan, slow_start)
    else:
        reason = proposal.reason if proposal.replicas == fleet.wanted else ScalingReason.AT_MINIMUM
        chosen = Step(fleet.wanted, reason, proposal.signal, proposal.message, proposal.detail)
    return _bounded(request, _without_surplus(fleet, chosen, bounds), bounds)


def _up(request: ScalingRequest, fleet: Fleet, proposal: Proposal) -> Step:
    cap = min(_caps(request, fleet), key=lambda cap: cap.replicas)
    if cap.replicas >= proposal.replicas:
        return Step(proposal.replicas, proposal.reason, proposal.signal, proposal.message, proposal.detail)
    message = f"{proposal.message}: {proposal.replicas} wanted, {cap.detail}"
    reason = proposal.reason if cap.replicas > fleet.wanted else cap.reason
    return Step(cap.replicas, reason, proposal.signal, message, cap.detail)


def _caps(request: ScalingRequest, fleet: Fleet) -> Iterator[Cap]:
    """What limits a step up; the rate is counted from replicas that are ready, so those on their way are part of it."""
    scaling, present = request.autoscaling, fleet.wanted
    yield Cap(scaling.max_replicas, ScalingReason.LIMITED_MAX, f"maxReplicas is {scaling.max_replicas}")
    rate = max(math.ceil(fleet.ready * scaling.scale_up.max_percent / 100), scaling.scale_up.max_replicas)
    allowed = fleet.ready + rate
    if fleet.warming and allowed - present < math.ceil(present * SMALLEST_ADDITION):
        allowed = present
    yield Cap(max(present, allowed), ScalingReason.LIMITED_RATE, f"{fleet.ready} of {present} are ready")
    if fleet.failure:
        yield Cap(present, ScalingReason.QUOTA_EXCEEDED, fleet.failure)
    if fleet.unschedulable:
        detail = f"{fleet.unschedulable} pods have no place"
        yield Cap(present, ScalingReason.GPU_CAPACITY_EXHAUSTED, detail)
    cooled = _cooled_at(request)
    if scaling.cooldown_applies_to is CooldownAppliesTo.BOTH and cooled > request.now:
        yield Cap(present, ScalingReason.HOLD_COOLDOWN, f"cooldown until {whole_second(cooled)}")


def _down(request: ScalingRequest, fleet: Fleet, proposal: Proposal, plan: int, slow_start: float) -> Step:
    present, scaling = fleet.wanted, request.autoscaling
    length = max(scaling.stabilization_window.seconds, STARTS_PER_WINDOW * slow_start)
    window = Window(request.entry.plans, length).with_plan(plan, request.now)
    highest = max(window.highest(), plan)
    hold = _hold_down(request, fleet, window, highest)
    if hold is not None:
        reason, detail = hold
        message = f"{proposal.message}: {plan} would do; {detail}"
        return Step(present, reason, proposal.signal, message, detail, window.plans)
    largest = max(1, math.floor(present * scaling.scale_down.max_percent / 100))
    fewer = max(highest, present - largest)
    return Step(fewer, ScalingReason.SCALED_DOWN, proposal.signal, proposal.message, plans=window.plans)


def _hold_down(request: ScalingRequest, fleet: Fleet, window: Window, highest: int) -> tuple[str, str] | None:
    """The first thing that keeps replicas from being removed: reason code and detail."""
    if request.hold_down:
        return request.hold_down, "nothing is removed now"
    if fleet.ready == 0:
        return ScalingReason.NO_READY_PODS, ""
    if fleet.warming:
        return ScalingReason.HOLD_WARMUP, f"{fleet.warming} pods"
    covered = window.covered_at()
    if covered is not None and covered > request.now:
        return ScalingReason.HOLD_STABILIZATION, f"until {whole_second(covered)} at the earliest"
    if _unfinished(request, fleet):
        return ScalingReason.HOLD_COOLDOWN, "the last removal has not been carried out yet"
    cooled = _cooled_at(request)
    if cooled > request.now:
        return ScalingReason.HOLD_COOLDOWN, f"until {whole_second(cooled)}"
    if highest >= fleet.wanted:
        return ScalingReason.HOLD_STABILIZATION, f"{highest} were needed within it"
    return None


def _unfinished(request: ScalingRequest, fleet: Fleet) -> bool:
    """Whether the Deployment still has more replicas than were decided on, because an operator ended in between."""
    return request.view.exists and request.view.replicas > fleet.wanted


def begins_anew(request: ScalingRequest, fleet: Fleet) -> bool:
    """Whether the cooldown is over before the removal that it follows has been carried out: nothing has cooled."""
    over = _cooled_at(request) <= request.now
    return over and request.autoscaling.cooldown.seconds > 0 and _unfinished(request, fleet)


def _without_surplus(fleet: Fleet, chosen: Step, bounds: Bounds) -> Step:
    """Give up pods without a place, down to a few, whatever cooldown and window say: they carry nothing."""
    if fleet.unschedulable <= PENDING:
        return chosen
    kept = max(fleet.wanted - fleet.unschedulable + PENDING, bounds.lower)
    if kept >= chosen.replicas:
        return chosen
    text = f"{fleet.unschedulable} pods have no place, {PENDING} are kept waiting"
    return Step(kept, ScalingReason.GPU_CAPACITY_EXHAUSTED, "pods", text, text, chosen.plans)


def _bounded(request: ScalingRequest, chosen: Step, bounds: Bounds) -> Step:
    """Bounds win over everything."""
    if chosen.replicas > bounds.upper:
        text = f"maxReplicas is {bounds.upper}"
        return Step(bounds.upper, ScalingReason.SCALED_TO_MAXIMUM, "maxReplicas", text, text)
    if chosen.replicas >= bounds.lower:
        return chosen
    if request.floor > request.minimum:
        text = f"the rollout needs {request.floor}"
        return Step(bounds.lower, ScalingReason.SCALED_TO_FLOOR, "floor", text, text)
    text = f"at least {request.minimum} ({request.minimum_from})"
    signal = request.minimum_from.partition(" ")[0]
    return Step(bounds.lower, ScalingReason.SCALED_TO_MINIMUM, signal, text, text)


def _cooled_at(request: ScalingRequest) -> float:
    """When the cooldown after the last change is over, in seconds since the epoch.

    A change later than a cooldown from now was dated by a wrong clock and says nothing.
    """
    scaled_at, cooldown = parse_time(request.entry.scaled_at), request.autoscaling.cooldown.seconds
    return 0.0 if scaled_at is None or scaled_at > request.now + cooldown else scaled_at + cooldown
