"""What happens next to a ModelDeployment, and when, in words. Pure: status, spec and the time are given."""

from collections.abc import Iterator

from slipway.api.reasons import REASONS
from slipway.api.rollout import Strategy
from slipway.api.scalars import format_duration
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Phase, Role, RolloutStatus, Stage, Verdict
from slipway.api.timestamps import parse_time
from slipway.cli.columns import until

__all__ = ["next_lines"]


def next_lines(
    name: str, spec: ModelDeploymentSpec | None, status: ModelDeploymentStatus, generation: int, now: float
) -> list[str]:
    """One line per thing that is due, the nearest first; ``spec`` is None where it is not valid."""
    if generation > status.observed_generation:
        return ["the operator looks at the newest spec"]
    rollout = status.rollout
    if status.phase is Phase.SUSPENDED:
        return ["nothing, until spec.suspend is removed"]
    if rollout is not None and rollout.stage is not Stage.FINISHED:
        lines = list(_of_rollout(name, spec, status, rollout, now))
    else:
        lines = list(_at_rest(name, status))
    lines += _retirements(status, now)
    return lines or ["nothing: everything is as the spec wants it"]


def _at_rest(name: str, status: ModelDeploymentStatus) -> Iterator[str]:
    if status.phase is Phase.STALLED:
        known = REASONS.get(next((item.reason for item in status.conditions if item.type == "Stalled"), ""))
        yield (known.remedy if known is not None else "") or "nothing, until the spec is changed"
        if status.rollout is not None and status.rollout.outcome is not None:
            yield f"to try the same version again: slipway retry {name}"
    elif status.phase is Phase.DEGRADED:
        yield f"traffic is answered again once a pod of {status.stable} is ready"
    elif status.phase is Phase.PENDING:
        yield "the first version starts"


def _of_rollout(
    name: str, spec: ModelDeploymentSpec | None, status: ModelDeploymentStatus, rollout: RolloutStatus, now: float
) -> Iterator[str]:
    if rollout.outcome is not None or rollout.stage is Stage.RETURNING:
        yield f"all traffic returns to {rollout.from_ or 'stable'}; then the pods of {rollout.to} go"
        return
    if rollout.paused:
        yield f"nothing moves up until: slipway resume {name}; harm is still acted on"
        return
    if rollout.reason in ("AwaitingPromotion", "Inconclusive"):
        yield f"waits for: slipway promote {name} (or abort)"
    after = _after(spec, rollout)
    match rollout.stage:
        case Stage.STARTING:
            yield f"once the pods of {rollout.to} are ready, warm and right: {after}"
        case Stage.EXPOSING:
            yield f"once the router knows {rollout.to}: {after}"
        case Stage.SHIFTING:
            yield f"once the router holds {status.weight} %: requests are compared"
        case Stage.OBSERVING:
            yield from _observing(spec, status, rollout, after, now)
        case Stage.PROMOTING:
            yield f"all traffic goes to {rollout.to}; {rollout.from_ or 'the old version'} is kept for a while"
    if rollout.deadline and rollout.reason != "Holding":
        yield f"this wait is given up or stalls {until(rollout.deadline, now)}"


def _observing(
    spec: ModelDeploymentSpec | None, status: ModelDeploymentStatus, rollout: RolloutStatus, after: str, now: float
) -> Iterator[str]:
    started = parse_time(rollout.step_started_at)
    if spec is not None and started is not None and 0 < rollout.step <= len(spec.rollout.steps):
        step = spec.rollout.steps[rollout.step - 1]
        hold = step.hold.seconds
        if step.pause is None and started + hold > now:
            yield f"the hold of step {rollout.step} ends in {format_duration(started + hold - now)}"
    waiting = [check for check in status.analysis if check.verdict is not Verdict.SAFE]
    for check in waiting:
        if check.requests_needed is not None:
            needed, time = check.requests_needed, _duration_of(status, check.requests_needed)
            yield f"check {check.name} needs about {needed} more requests{time}"
        else:
            yield f"check {check.name} is {check.verdict}: {check.reason}"
    yield f"then: {after}"


def _duration_of(status: ModelDeploymentStatus, requests: int) -> str:
    """How long so many requests of the candidate take at its present rate."""
    candidate = status.in_role(Role.CANDIDATE)
    rate = float(candidate.qps) if candidate is not None and candidate.qps is not None else 0.0
    return f", {format_duration(requests / rate)} at its present rate" if rate > 0 and requests > 0 else ""


def _after(spec: ModelDeploymentSpec | None, rollout: RolloutStatus) -> str:
    """What the step that comes next does."""
    if not rollout.from_:
        return f"{rollout.to} gets all traffic"
    if rollout.full or spec is None or spec.rollout.strategy is not Strategy.CANARY:
        return f"{rollout.to} gets all traffic"
    following = spec.rollout.steps[rollout.step :]
    if not following:
        return f"{rollout.to} is promoted"
    return f"step {rollout.step + 1} of {rollout.steps}, {following[0].weight} % to {rollout.to}"


def _retirements(status: ModelDeploymentStatus, now: float) -> list[str]:
    lines = []
    for entry in status.versions:
        at = parse_time(entry.retire_at)
        if at is not None:
            lines.append(
                f"the pods of {entry.name} {'are going' if at <= now else f'go {until(entry.retire_at, now)}'}"
            )
    return lines
