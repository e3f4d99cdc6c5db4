"""A rollout in progress with everything that its stages look at, and how they say what they wait for."""

from collections.abc import Mapping
from dataclasses import dataclass

from slipway.api.judgement import Judgement
from slipway.api.observed import Observed, RevisionView
from slipway.api.rollout import Step, Strategy
from slipway.api.scalars import format_duration
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import Outcome, Role, RolloutStatus, Stage, VersionStatus
from slipway.api.timestamps import parse_time
from slipway.rollout.capacity import Capacity
from slipway.rollout.draft import Draft
from slipway.rollout.surge import Surge

__all__ = ["StageContext", "fail", "wait_for_mesh", "wait_or_fail"]


@dataclass(frozen=True)
class StageContext:
    """A draft in progress with everything its stages look at."""

    draft: Draft
    spec: ModelDeploymentSpec
    observed: Observed
    capacity: Mapping[str, Capacity]
    judgement: Judgement
    breaker: Judgement | None
    surge: Surge | None = None
    """The bound on GPUs, where there is one and the candidate has any."""
    step_downs: int = 0
    """Steps back that the judgement already knows of."""

    @property
    def rollout(self) -> RolloutStatus:
        """The rollout as it stands in the draft."""
        return self.draft.set_rollout()

    @property
    def candidate(self) -> VersionStatus | None:
        """The candidate's entry."""
        return self.draft.entries.get(self.rollout.to_revision)

    @property
    def stable(self) -> VersionStatus | None:
        """Stable's entry; none before the first version serves."""
        return self.draft.in_role(Role.STABLE)

    @property
    def settle(self) -> float:
        """Seconds that the mesh is given to converge."""
        return self.spec.traffic.settle.seconds

    @property
    def strategy(self) -> Strategy:
        """How traffic moves in this rollout."""
        return self.rollout.strategy

    @property
    def switches(self) -> bool:
        """Whether all traffic moves at once, so that the candidate is sized for all of it before."""
        return self.strategy is Strategy.BLUE_GREEN or (self.strategy is Strategy.SHADOW and self.surge is None)

    @property
    def step(self) -> Step:
        """The present step; the last one when the user has shortened the list."""
        steps = self.spec.rollout.steps
        return steps[min(max(self.rollout.step, 1), len(steps)) - 1]

    @property
    def goal(self) -> int:
        """The weight that the rollout is on its way to, in per cent of all traffic."""
        rollout, room = self.rollout, self.draft.room
        if self.stable is None or rollout.full or rollout.stage is Stage.PROMOTING:
            return room
        return min(self.step.weight, room) if self.strategy is Strategy.CANARY else 0

    @property
    def sized_for(self) -> int:
        """The weight that the candidate's pods are made for."""
        match self.strategy:
            case Strategy.BLUE_GREEN | Strategy.RECREATE:
                return self.draft.room
            case Strategy.SHADOW:
                return max(self.goal, self.spec.rollout.shadow.percent)
            case Strategy.CANARY:
                return self.goal

    @property
    def deadline(self) -> float:
        """When the present wait is given up, in seconds since the epoch."""
        begun = parse_time(self.rollout.stage_at)
        return (self.draft.now if begun is None else begun) + self.spec.rollout.progress_deadline.seconds

    @property
    def pause_deadline(self) -> float:
        """A pause has a deadline as well: past it the object counts as stalled, nothing else happens."""
        begun = parse_time(self.rollout.step_started_at) or parse_time(self.rollout.stage_at)
        return (self.draft.now if begun is None else begun) + self.spec.rollout.analysis.max_duration.seconds

    def sized(self, revision: str) -> Capacity:
        """The capacity of a revision; by stable's replicas where none was measured."""
        return self.capacity.get(revision) or Capacity(
            None, None, self.rollout.reference, self.spec.autoscaling.max_replicas
        )

    def view(self, entry: VersionStatus) -> RevisionView:
        """What is observed of an entry."""
        return self.observed.of(entry.revision)

    def present(self, entry: VersionStatus) -> int:
        """Pods that an entry has or is to have, whichever are more: a pod that ends still holds its GPUs."""
        return max(entry.replicas, len(self.view(entry).pods))


def fail(context: StageContext, reason: str, message: str) -> None:
    """Give the rollout up. Without a stable version there is nothing to go back to: it waits, and says why."""
    if context.stable is None:
        context.draft.wait(reason, message, context.deadline)
        return
    context.draft.enter(Stage.RETURNING, reason, message, outcome=Outcome.FAILED, by="operator")
    context.draft.emit("RolloutFailed", f"{context.rollout.to}: {reason}: {message}", warning=True)


def wait_or_fail(context: StageContext, reason: str, message: str) -> None:
    """Say what the present stage waits for; past the deadline the rollout is given up."""
    deadline = context.deadline
    if context.draft.now >= deadline:
        waited = format_duration(context.spec.rollout.progress_deadline.seconds)
        fail(context, "ProgressDeadlineExceeded", f"{reason} for {waited}: {message}")
        return
    context.draft.wait(reason, message, deadline)


def wait_for_mesh(context: StageContext, reason: str, message: str) -> None:
    """Wait for the router, which may not be there at all."""
    if context.observed.mesh_missing:
        reason, message = "MeshMissing", f"{message}, but the API server does not know the kinds that move traffic"
    elif context.observed.traffic.refusal:
        reason, message = "RouteRefused", f"{message}, but {context.observed.traffic.refusal}"
    wait_or_fail(context, reason, message)
