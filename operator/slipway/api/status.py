"""The status of a ModelDeployment: what is true, what was decided and why.

Status is written before any effect, so it also is the journal from which a restarted operator goes on: the stage of
the rollout, the weights intended, the evidence in exact form. Fields that exist for that purpose say so.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from slipway.api.rollout import Strategy
from slipway.api.states import ActionResult, ConditionType, Outcome, Phase, Role, Stage, Verb, Verdict
from slipway.api.status_values import Number, Timestamp, cut
from slipway.api.wire import WireModel, keyed_by

__all__ = [
    "Action",
    "ActionResult",
    "CheckStatus",
    "ColdStart",
    "Condition",
    "ConditionType",
    "Counts",
    "DemandTrend",
    "HistoryEntry",
    "LastAction",
    "LearnedCapacity",
    "ModelDeploymentStatus",
    "Outcome",
    "Phase",
    "PlanSample",
    "Role",
    "RolloutStatus",
    "ScalingDecision",
    "SignalStatus",
    "Stage",
    "Verb",
    "Verdict",
    "VersionStatus",
    "VersionWeight",
]


class VersionWeight(WireModel):
    """A revision's share of traffic, in per cent."""

    intended: int = Field(default=0, ge=0, le=100)
    """What the operator wants."""
    applied: int = Field(default=0, ge=0, le=100)
    """What the router holds, read back."""
    observed: Number | None = None
    """What request counts show."""


class ColdStart(WireModel):
    """Learned time from a pod's creation to warm."""

    p50: str = ""
    """Median."""
    p90: str = ""
    """90th percentile."""
    samples: tuple[float, ...] = Field(default=(), max_length=20)
    """The last starts in seconds, from which the percentiles come."""
    counted: tuple[str, ...] = Field(default=(), max_length=256)
    """Last parts of the names of pods whose start is among the samples, while they exist: none is counted twice."""


class DemandTrend(WireModel):
    """Smoothed demand and its slope, kept for the forecast while starts are slow."""

    level: Number | None = None
    """Requests per second."""
    slope: Number | None = None
    """Requests per second gained in each second."""
    at: Timestamp = ""
    """When they were last brought up to date."""


class LearnedCapacity(WireModel):
    """What a replica was seen to do when all were saturated; stands in where qps.target is unset."""

    qps_per_replica: Number | None = None
    """Requests per second answered by one replica."""
    intervals: int = 0
    """Saturated intervals seen, up to the three that are needed."""
    at: Timestamp = ""
    """When it was last brought up to date."""


class PlanSample(WireModel):
    """A plan remembered for the stabilisation window, so that a restarted operator decides the same."""

    at: Timestamp
    """When it was made."""
    replicas: int
    """Replicas it asked for."""


class SignalStatus(WireModel):
    """A signal that metrics have told of a revision's pods; from then on its absence is a fault."""

    name: str
    """requests, inFlight, queueDepth, queueTime, gpuUtilization or gpuMemory."""
    lost_at: Timestamp = ""
    """Since when it is gone; no replica is removed until it is back."""


class VersionStatus(WireModel):
    """A revision that has pods or weight."""

    name: str
    """Name of the version."""
    revision: str
    """Name of the revision: its Deployment, its subset, its metric label."""
    role: Role = Role.CANDIDATE
    """What the revision is there for."""
    replicas: int = 0
    """Replicas the operator wants."""
    ready_replicas: int = 0
    """Replicas that are ready and warm."""
    loaded_digest: str = ""
    """Digest of the artefact as the server reports it."""
    weight: VersionWeight = VersionWeight()
    """Share of traffic."""
    subset: bool = False
    """Whether the router is to know the revision's subset."""
    subset_at: Timestamp = ""
    """When the router was first seen to agree with subset."""
    matched: bool = False
    """Whether the router is to send requests that an experiment's match describes to the revision."""
    verified: str = ""
    """Passed or Failed once signature and goldens were checked."""
    retire_at: Timestamp = ""
    """When a revision that is no longer served loses its pods."""
    qps: Number | None = None
    """Requests per second."""
    latency_p99: str = Field(default="", alias="latencyP99")
    """99th percentile of the duration of requests, an estimate from the histogram."""
    error_rate: Number | None = None
    """Share of requests answered with 5xx."""
    gpu_utilization: Number | None = None
    """Mean utilisation of the pods' GPUs in per cent."""
    gpu_source: str = ""
    """Where gpuUtilization comes from: dcgm, or executor-busy where no GPU metric belongs to the pods."""
    gpu_exported: bool = False
    """Whether a GPU exporter has measured the pods; from then on its silence is a fault that keeps every replica."""
    signals: tuple[SignalStatus, ...] = Field(default=(), max_length=8, json_schema_extra=keyed_by("name"))
    """Signals that metrics have told of the pods."""
    cold_start: ColdStart = ColdStart()
    """Learned time from a pod's creation to warm."""
    gpu_hours: Number | None = None
    """GPU hours that the revision's pods have used."""
    gpu_hours_at: Timestamp = ""
    """Up to when gpuHours is counted."""
    plans: tuple[PlanSample, ...] = Field(default=(), max_length=128)
    """Plans of the stabilisation window."""
    scaled_at: Timestamp = ""
    """When the number of replicas was last changed by scaling."""
    proposed: int | None = None
    """Replicas that scaling would have chosen, in a dry run."""
    floor: int = 0
    """Fewest replicas that the revision's HorizontalPodAutoscaler may set (mode HPA)."""
    capacity: LearnedCapacity = LearnedCapacity()
    """What a replica can do, learned under saturation."""
    trend: DemandTrend = DemandTrend()
    """Smoothed demand, kept for the forecast."""
    reason: str = ""
    """Why the revision is not as wanted."""
    message: str = ""
    """The same in words."""


class RolloutStatus(WireModel):
    """The present rollout, or the last one until another begins."""

    id: str
    """Identity of the rollout; evidence belongs to it."""
    from_: str = Field(default="", alias="from")
    """Version that was stable."""
    to: str
    """Version that is rolled out."""
    from_revision: str = ""
    """Revision that was stable."""
    to_revision: str = ""
    """Revision that is rolled out."""
    strategy: Strategy = Strategy.CANARY
    """How traffic moves in this rollout; an edit of the spec holds for the next one."""
    step: int = 0
    """Step, counted from 1; 0 before the first weight."""
    steps: int = 0
    """Number of steps."""
    stage: Stage = Stage.STARTING
    """What the step waits for."""
    stage_at: Timestamp = ""
    """Start of the stage, or of its last progress: the present wait is measured from here."""
    reference: int = 0
    """Stable's replicas at the start: what all traffic needs while no measured capacity says better."""
    started_at: Timestamp = ""
    """Start of the rollout."""
    step_started_at: Timestamp = ""
    """Start of the step."""
    weight_written_at: Timestamp = ""
    """When the present weight was decided."""
    weight_seen_at: Timestamp = ""
    """When the present weight was first read back from the router."""
    weight_applied_at: Timestamp = ""
    """When the present weight was confirmed: read back and settled. Evidence counts from here."""
    evidence_from: Timestamp = ""
    """When the first weight was confirmed: no request before it is evidence."""
    deadline: Timestamp = ""
    """When the present wait is given up."""
    paused: bool = False
    """Whether somebody paused the rollout."""
    approved: bool = False
    """Whether the present step was promoted by hand."""
    full: bool = False
    """Whether the remaining steps are skipped (PromoteFull)."""
    by: str = ""
    """Who asked for the last change of course."""
    outcome: Outcome | None = None
    """How the rollout ended, or is ending."""
    harm_at: Timestamp = ""
    """When harm was found."""
    step_downs: int = 0
    """How often the rollout went one step back; each time its evidence begins anew."""
    stepped_down_for: str = ""
    """Name of the check that asked for the last step back."""
    reason: str = ""
    """What the rollout waits for, or why it ended."""
    message: str = ""
    """The same in words."""


class Counts(WireModel):
    """Requests counted as evidence."""

    requests: int = 0
    """All requests."""
    bad: int = 0
    """Bad ones among them."""


class CheckStatus(WireModel):
    """The evidence of one check."""

    name: str
    """Name of the check."""
    rollout: str = ""
    """Rollout that the evidence belongs to."""
    verdict: Verdict = Verdict.UNDECIDED
    """What the evidence says."""
    reason: str = ""
    """Why it says so."""
    message: str = ""
    """The same in words."""
    evidence: Number | None = None
    """The e-value against the candidate; harm is found at checks / alpha."""
    candidate: Counts = Counts()
    """The candidate's requests."""
    stable: Counts = Counts()
    """Stable's requests in the same windows."""
    requests_needed: int | None = None
    """Requests of the candidate that a verdict is expected to need still."""
    window: Timestamp = ""
    """End of the last window counted; none is counted twice."""
    windows: int = 0
    """Windows with requests of the candidate."""
    harm_log: tuple[Number, ...] = Field(default=(), max_length=16)
    """Logarithms of the e-values against the candidate, one per alternative."""
    safe_log: tuple[Number, ...] = Field(default=(), max_length=16)
    """Logarithms of the e-values for the candidate, one per alternative."""
    silent_windows: int = 0
    """Consecutive windows without a request of the candidate while stable had some."""
    definition: str = ""
    """What counts as bad and which margins hold; another definition starts new evidence."""
    bad_windows: int = 0
    """Windows with bad requests of the candidate; harm needs two."""
    pods: tuple[str, ...] = Field(default=(), max_length=2)
    """The first two pods of the candidate that answered requests."""
    bad_pods: tuple[str, ...] = Field(default=(), max_length=2)
    """The first two pods of the candidate with bad requests; where several pods answer, harm needs two."""


class ScalingDecision(WireModel):
    """Why a number of replicas was chosen."""

    at: Timestamp
    """When."""
    version: str
    """For which version."""
    from_: int = Field(alias="from")
    """Replicas before."""
    to: int
    """Replicas after."""
    reason: str
    """Reason code."""
    signal: str = ""
    """The signal that decided."""
    message: str = ""
    """The numbers in words."""


class HistoryEntry(WireModel):
    """A finished rollout."""

    id: str
    """Identity of the rollout."""
    from_: str = Field(default="", alias="from")
    """Version that was stable."""
    to: str
    """Version that was rolled out."""
    outcome: Outcome
    """How it ended."""
    started_at: Timestamp = ""
    """Start."""
    finished_at: Timestamp = ""
    """End."""
    by: str = ""
    """Who or what ended it."""
    evidence: str = ""
    """The deciding evidence in words."""


class Action(WireModel):
    """A request to the operator, written by people and pipelines through the status subresource."""

    id: str = Field(default="", max_length=128)
    """Identity of the request; each is answered once."""
    verb: str = Field(default="", max_length=32)
    """Promote, PromoteFull, Pause, Resume, Abort or Retry."""
    by: str = Field(default="", max_length=253)
    """Who asks."""
    reason: str = Field(default="", max_length=1024)
    """Why."""
    rollout: str = Field(default="", max_length=64)
    """The rollout that is meant; a request that reaches another one is refused. Empty means whichever is under way."""


class LastAction(WireModel):
    """The operator's answer to an action."""

    id: str = ""
    """Identity of the request."""
    verb: str = ""
    """What was asked."""
    result: str = ""
    """Accepted, Ignored or Refused."""
    message: str = ""
    """Why."""
    at: Timestamp = ""
    """When it was answered."""


class Condition(WireModel):
    """A condition as in Kubernetes' own kinds."""

    type: ConditionType
    """Type of the condition."""
    status: str = Field(pattern="^(True|False|Unknown)$")
    """True, False or Unknown."""
    reason: str = Field(min_length=1, max_length=128)
    """CamelCase word for the cause."""
    message: str = Field(default="", max_length=32768)
    """The cause in words, and what to do."""
    last_transition_time: Timestamp
    """When status last changed."""
    observed_generation: int = 0
    """Generation of the spec that the condition speaks of."""


class ModelDeploymentStatus(WireModel):
    """What is true of a ModelDeployment, what was decided and why."""

    observed_generation: int = 0
    """Generation of the spec that the status speaks of."""
    phase: Phase = Phase.PENDING
    """One word for the whole object."""
    url: str = ""
    """Where requests inside the cluster go."""
    stable: str = ""
    """Version that production gets now."""
    candidate: str = ""
    """Version that is being rolled out."""
    weight: int = 0
    """The candidate's weight in per cent."""
    replicas: int = 0
    """Pods of all live revisions."""
    selector: str = ""
    """Label selector of the pods, for the scale subresource."""
    versions: tuple[VersionStatus, ...] = Field(default=(), max_length=32, json_schema_extra=keyed_by("revision"))
    """Every revision that has pods or weight."""
    rollout: RolloutStatus | None = None
    """The present rollout, or the last one until another begins."""
    analysis: tuple[CheckStatus, ...] = Field(default=(), max_length=16, json_schema_extra=keyed_by("name"))
    """One entry per check: the evidence, not only the verdict."""
    scaling: tuple[ScalingDecision, ...] = Field(default=(), max_length=20)
    """The last 20 decisions: why this many replicas."""
    history: tuple[HistoryEntry, ...] = Field(default=(), max_length=20)
    """The last finished rollouts, newest last."""
    rollouts: int = 0
    """Number of rollouts begun; makes their identities."""
    action: Action = Action()
    """A request by people or pipelines; never written by the operator."""
    last_action: LastAction = LastAction()
    """The operator's answer, once per id."""
    answered: tuple[str, ...] = Field(default=(), max_length=20)
    """Identities of the last requests answered, so that a late copy of one does nothing."""
    conditions: tuple[Condition, ...] = Field(default=(), max_length=16, json_schema_extra=keyed_by("type"))
    """Conditions with observedGeneration, reason and message."""

    def revision(self, name: str) -> VersionStatus | None:
        """The entry of a revision."""
        return next((entry for entry in self.versions if entry.revision == name), None)

    def in_role(self, role: Role) -> VersionStatus | None:
        """The first entry in a role; Stable and Candidate have at most one."""
        return next((entry for entry in self.versions if entry.role is role), None)

    def to_wire(self) -> dict[str, Any]:
        """The JSON form. Texts are cut to a length that the schema takes and that keeps the whole object small."""
        return {name: cut(value) for name, value in super().to_wire().items()}

    @classmethod
    def from_wire(cls, raw: Mapping[str, Any] | None) -> "ModelDeploymentStatus":
        """Parse the JSON form; raises ``pydantic.ValidationError`` for a status that others broke."""
        return cls.model_validate(raw or {})
