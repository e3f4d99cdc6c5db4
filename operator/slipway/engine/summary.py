"""The top of a status: phase, names, counts and conditions, computed once from everything below them.

Conditions follow kstatus (Ready, Reconciling, Stalled) so that kubectl wait, Flux, Argo CD and Helm read them without
being taught; each carries the generation it speaks of.
"""

from slipway.api.conditions import set_condition
from slipway.api.judgement import NO_JUDGEMENT, Judgement
from slipway.api.observed import Observed
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import (
    Condition,
    ConditionType,
    ModelDeploymentStatus,
    Outcome,
    Phase,
    Role,
    Stage,
    Verdict,
)
from slipway.api.timestamps import whole_second
from slipway.engine.agreement import traffic_verdict
from slipway.engine.phase import Blocked, State, state_of
from slipway.engine.sizing import ScalingState
from slipway.rollout import Target

__all__ = ["Blocked", "summarise"]

_Verdict = tuple[bool | None, str, str]


def summarise(
    status: ModelDeploymentStatus,
    spec: ModelDeploymentSpec | None,
    observed: Observed,
    cluster_domain: str,
    now: float,
    blocked: Blocked | None = None,
    *,
    target: Target | None = None,
    judgement: Judgement = NO_JUDGEMENT,
    scaling: ScalingState | None = None,
) -> ModelDeploymentStatus:
    """Fill in phase, printer columns and conditions."""
    state = state_of(spec, status, observed, target.revision if target else "", now, blocked)
    stable = status.in_role(Role.STABLE)
    rollout = status.rollout
    rolling = rollout is not None and rollout.stage is not Stage.FINISHED
    candidate = status.in_role(Role.CANDIDATE)
    pods = sum(len(observed.of(entry.revision).pods) for entry in status.versions)
    summed = status.model_copy(
        update={
            "observed_generation": observed.generation,
            "phase": state.phase,
            "url": f"http://{observed.name}.{observed.namespace}.svc.{cluster_domain}",
            "stable": stable.name if stable else "",
            "candidate": candidate.name if candidate and rolling else "",
            "weight": candidate.weight.intended if candidate and rolling else 0,
            "replicas": pods,
            "selector": f"slipway.dev/model-deployment={observed.name}",
        }
    )
    verdicts: dict[ConditionType, _Verdict] = {
        ConditionType.READY: (state.phase is Phase.READY, state.reason, state.message),
        ConditionType.RECONCILING: (state.moving, state.reason, state.message),
        ConditionType.STALLED: (state.stalled, state.reason if state.stalled else "NotStalled", _stalled_text(state)),
        ConditionType.AVAILABLE: _available(summed),
        ConditionType.PROGRESSING: _progressing(summed, state),
        ConditionType.ANALYSIS: _analysis(summed, judgement),
        ConditionType.CAPACITY_AVAILABLE: _capacity(summed, observed),
        ConditionType.TRAFFIC_APPLIED: _traffic(summed, spec, observed, now),
    }
    if scaling is not None:
        verdicts[ConditionType.SCALING_ACTIVE] = (scaling.active, scaling.reason, scaling.message)
    conditions = summed.conditions
    for kind, (truth, reason, message) in verdicts.items():
        condition = Condition(
            type=kind,
            status="Unknown" if truth is None else str(truth),
            reason=reason or "Unknown",
            message=message[:1024],
            last_transition_time=whole_second(now),
            observed_generation=observed.generation,
        )
        conditions = set_condition(conditions, condition, now)
    return summed.model_copy(update={"conditions": conditions})


def _stalled_text(state: State) -> str:
    return state.message if state.stalled else "nothing needs a person"


def _available(status: ModelDeploymentStatus) -> _Verdict:
    serving = [entry for entry in status.versions if entry.weight.applied > 0 and entry.ready_replicas > 0]
    if not serving:
        return False, "NothingServes", "no version has both traffic and ready pods"
    silent = [entry.name for entry in status.versions if entry.weight.applied > 0 and entry.ready_replicas == 0]
    if silent:
        return False, "PartlyServing", f"traffic goes to {', '.join(silent)}, which has no ready pod"
    return True, "Serving", ", ".join(sorted({entry.name for entry in serving})) + " answers requests"


def _progressing(status: ModelDeploymentStatus, state: State) -> _Verdict:
    rollout = status.rollout
    if rollout is None:
        return False, "NoRollout", "no rollout was begun"
    if rollout.stage is Stage.FINISHED:
        outcome = rollout.outcome or Outcome.FAILED
        return False, outcome.value, rollout.message or f"rollout {rollout.id} of {rollout.to} has ended"
    return True, state.reason, state.message


def _analysis(status: ModelDeploymentStatus, judgement: Judgement) -> _Verdict:
    rollout = status.rollout
    if rollout is None or rollout.stage is Stage.FINISHED or not rollout.evidence_from:
        return None, "NoRollout", "no candidate has traffic"
    match judgement.verdict:
        case Verdict.HARMFUL:
            return False, judgement.reason, judgement.message
        case Verdict.SAFE:
            return True, judgement.reason, "every check has evidence that the candidate is safe"
        case Verdict.UNDECIDED:
            return None, judgement.reason, "the evidence is not decided yet; see status.analysis"


def _capacity(status: ModelDeploymentStatus, observed: Observed) -> _Verdict:
    for entry in status.versions:
        view = observed.of(entry.revision)
        if view.failure:
            reason = "QuotaExceeded" if "quota" in view.failure else "ReplicaFailure"
            return False, reason, f"{entry.name}: {view.failure}"
        pending = [pod for pod in view.pods if pod.unschedulable]
        if pending:
            return False, "Unschedulable", f"{len(pending)} pods of {entry.name}: {pending[0].message}"
    rollout = status.rollout
    if rollout is not None and rollout.stage is not Stage.FINISHED and rollout.reason == "SurgeDeadlock":
        return False, rollout.reason, rollout.message
    return True, "Scheduled", "every pod has found a place"


def _traffic(
    status: ModelDeploymentStatus, spec: ModelDeploymentSpec | None, observed: Observed, now: float
) -> _Verdict:
    if observed.mesh_missing:
        kinds = " and ".join(observed.missing_kinds) or "the kinds that move traffic"
        return False, "MeshMissing", f"the API server does not know {kinds}, which spec.traffic asks for"
    if observed.traffic.drifted:
        manager = observed.traffic.foreign_manager or "unknown"
        text = f"field manager {manager} keeps changing the routes, so repairs are put off; stop it from writing them"
        return False, "DriftFight", text
    return traffic_verdict(status, spec, observed, now)
