"""The pure decision of one reconcile: validate, judge, roll out, scale, sum up.

``(object, observed, metrics, now) -> Decision``. Nothing here does I/O or reads a clock; the same inputs give the same
decision, so a restarted operator goes on as if it had never stopped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from slipway.analysis import Subject, assess, expressions, still_asked, tripped, with_agreement
from slipway.api.events import EventRecord
from slipway.api.judgement import NO_JUDGEMENT, Judgement
from slipway.api.observed import Observed
from slipway.api.revisions import Revision, revision_of
from slipway.api.rollout import Strategy
from slipway.api.samples import MetricsView
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import (
    CheckStatus,
    ModelDeploymentStatus,
    Role,
    Stage,
    Verdict,
)
from slipway.api.timestamps import parse_time
from slipway.engine.clock import with_past_moments
from slipway.engine.coherence import coherent
from slipway.engine.definitions import (
    experiment_targets,
    gpus_per_pod,
    lost_revisions,
    revisions_to_keep,
    with_losses,
)
from slipway.engine.display import with_display
from slipway.engine.examined import Examined
from slipway.engine.relapse import evidence_id, relapse
from slipway.engine.sizing import capacities, scale
from slipway.engine.standstill import at_standstill
from slipway.engine.summary import Blocked, summarise
from slipway.rollout import RolloutRequest, Target, advance

__all__ = ["Decision", "Options", "decide"]

_validate = Examined()


@dataclass(frozen=True, slots=True)
class Options:
    """What the installation decides."""

    cluster_domain: str = "cluster.local"
    runtime_image: str = "slipway-runtime:0.1.0"
    """Image of pods whose runtime names none. A revision keeps the one it was made with."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be written, and what is to be done once it is written."""

    status: ModelDeploymentStatus
    spec: ModelDeploymentSpec | None = None
    revisions: Mapping[str, Revision] = field(default_factory=dict)
    """Live revisions and those kept as history, by name."""
    requeue_after: float | None = None
    """Seconds until the next look, if nothing happens before."""
    events: tuple[EventRecord, ...] = ()
    apply: bool = False
    """Whether children may be touched at all."""
    lost: frozenset[str] = frozenset()
    """Live revisions that cannot be rebuilt: what is there of them stays untouched."""
    queries: tuple[str, ...] = ()
    """The user's own expressions that Prometheus is to be asked from now on."""


def decide(raw: Mapping[str, Any], observed: Observed, metrics: MetricsView, options: Options, now: float) -> Decision:
    """Decide everything about one ModelDeployment at one moment.

    ``raw`` is the object as the API server returned it. A spec that is invalid, not supported yet, suspended or in
    conflict leads to a status that says so and to ``apply=False``: what runs goes on running as it is.
    """
    status, broken = _read_status(raw)
    status, moved = with_past_moments(status, now)
    broken += moved
    validated = _validate(raw)
    if validated.spec is None:
        blocked = Blocked(validated.reason, validated.message)
        still = at_standstill(status, observed, metrics, blocked, now)
        return Decision(summarise(still, None, observed, options.cluster_domain, now, blocked), events=broken)
    spec = validated.spec
    blocked_by = _blocked(spec, observed)
    if blocked_by is not None:
        still = at_standstill(status, observed, metrics, blocked_by, now)
        return Decision(summarise(still, spec, observed, options.cluster_domain, now, blocked_by), spec, events=broken)
    return _proceed(raw, spec, status, observed, metrics, options, now, broken)


def _read_status(raw: Mapping[str, Any]) -> tuple[ModelDeploymentStatus, tuple[EventRecord, ...]]:
    """The status as written; one that somebody broke counts as lost and is rebuilt from what runs."""
    try:
        status = ModelDeploymentStatus.from_wire(raw.get("status"))
    except ValidationError as error:
        return _rebuilt(error.errors()[0]["msg"])
    name = raw["metadata"]["name"]
    strange = next((entry for entry in status.versions if not entry.revision.startswith(f"{name}-{entry.name}-")), None)
    if strange is not None:
        return _rebuilt(f"{strange.revision[:63]!r} is no revision of {name}'s version {strange.name[:63]!r}")
    return status, ()


def _rebuilt(why: str) -> tuple[ModelDeploymentStatus, tuple[EventRecord, ...]]:
    text = f"status was unreadable and is rebuilt: {why}"
    return ModelDeploymentStatus(), (EventRecord("StatusUnreadable", text, "Warning"),)


def _blocked(spec: ModelDeploymentSpec, observed: Observed) -> Blocked | None:
    if spec.suspend:
        return Blocked("Suspended", "spec.suspend is set: nothing is changed")
    if observed.conflict:
        return Blocked("Conflict", observed.conflict)
    return None


def _proceed(
    raw: Mapping[str, Any],
    spec: ModelDeploymentSpec,
    status: ModelDeploymentStatus,
    observed: Observed,
    metrics: MetricsView,
    options: Options,
    now: float,
    events: tuple[EventRecord, ...],
) -> Decision:
    described = {version.name: revision_of(observed.name, raw["spec"], version.name) for version in spec.versions}
    target = described[spec.served]
    status, contradicted = coherent(status, observed, {revision.name for revision in described.values()})
    sizes = capacities(spec, status, metrics)
    checks, judgement, breaker = _judge(spec, status, observed, metrics, now)
    moved = advance(
        RolloutRequest(
            spec=spec,
            status=status,
            observed=observed,
            target=Target(spec.served, target.name),
            capacity=sizes,
            now=now,
            judgement=judgement,
            breaker=breaker,
            experiments=experiment_targets(observed.name, raw["spec"], spec),
            gpus=gpus_per_pod(observed, target),
            asked=_asked(status, metrics, now),
        )
    )
    looked = with_display(moved.status.model_copy(update={"analysis": checks}), observed, metrics)
    scaled = scale(spec, looked, observed, metrics, moved.floors, now, moved.caps)
    revisions = revisions_to_keep(raw["spec"], spec, scaled.status, observed, options.runtime_image)
    lost = lost_revisions(scaled.status, revisions)
    summed = summarise(
        with_losses(scaled.status, lost),
        spec,
        observed,
        options.cluster_domain,
        now,
        target=Target(spec.served, target.name),
        judgement=judgement,
        scaling=scaled.state,
    )
    return Decision(
        status=summed,
        spec=spec,
        revisions=revisions,
        requeue_after=moved.requeue_after,
        events=(*events, *contradicted, *moved.events, *scaled.events),
        apply=True,
        lost=lost,
        queries=_queries(spec, summed, observed),
    )


def _asked(status: ModelDeploymentStatus, metrics: MetricsView, now: float) -> frozenset[str]:
    """Revisions without weight that still get requests, since they were to get none."""
    silent = (entry for entry in status.versions if entry.weight.intended == 0 and entry.role is not Role.STABLE)
    since = {
        entry.revision: (parse_time(entry.retire_at) or now) if entry.role is Role.RETIRING else now for entry in silent
    }
    return frozenset(revision for revision, begun in since.items() if still_asked(metrics, revision, begun))


def _queries(spec: ModelDeploymentSpec, status: ModelDeploymentStatus, observed: Observed) -> tuple[str, ...]:
    """What has to be known of a candidate at the next look."""
    candidate, rollout = status.in_role(Role.CANDIDATE), status.rollout
    if candidate is None or rollout is None or rollout.outcome is not None:
        return ()
    subject = Subject(observed.namespace, observed.name, candidate.name, candidate.revision)
    return tuple(expressions(spec.rollout.analysis, subject))


def _judge(
    spec: ModelDeploymentSpec,
    status: ModelDeploymentStatus,
    observed: Observed,
    metrics: MetricsView,
    now: float,
) -> tuple[tuple[CheckStatus, ...], Judgement, Judgement | None]:
    """What evidence and breakers say of the candidate.

    Evidence is counted while it has confirmed weight, or is compared on repeated requests before it has any.
    """
    rollout = status.rollout
    candidate = status.in_role(Role.CANDIDATE)
    stable = status.in_role(Role.STABLE)
    if rollout is None or rollout.stage is Stage.FINISHED or candidate is None or stable is None:
        return status.analysis, NO_JUDGEMENT, None
    view = observed.of(candidate.revision)
    has_weight = candidate.weight.intended > 0
    shadowing = rollout.strategy is Strategy.SHADOW
    observed_now = rollout.outcome is None and (has_weight or shadowing)
    assessment = assess(
        with_agreement(spec.rollout.analysis) if shadowing else spec.rollout.analysis,
        status.analysis,
        rollout_id=evidence_id(rollout),
        candidate=candidate.revision,
        stable=stable.revision,
        metrics=metrics,
        counting_from=parse_time(rollout.evidence_from) if observed_now else None,
        now=now,
        subject=Subject(observed.namespace, observed.name, candidate.name, candidate.revision),
        served=has_weight,
    )
    judgement = Judgement(assessment.verdict, assessment.reason, assessment.message, assessment.harmful)
    if judgement.verdict is not Verdict.HARMFUL:
        judgement = relapse(spec.rollout.analysis, rollout, assessment.checks, now) or judgement
    since = parse_time(rollout.evidence_from)
    breaker = tripped(view, metrics.of(candidate.revision), since=since, now=now)
    return assessment.checks, judgement, breaker
