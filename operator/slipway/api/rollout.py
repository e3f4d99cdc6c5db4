"""``spec.rollout``: the way from the served version to the new one."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from slipway.api.scalars import DecimalString, Duration
from slipway.api.wire import WireModel, keyed_by

__all__ = [
    "Analysis",
    "Check",
    "Comparator",
    "MetricKind",
    "OnHarm",
    "OnInconclusive",
    "Pause",
    "Promotion",
    "Rollout",
    "Shadow",
    "Step",
    "Strategy",
]


class Strategy(StrEnum):
    """How traffic moves to a new version."""

    CANARY = "Canary"
    BLUE_GREEN = "BlueGreen"
    SHADOW = "Shadow"
    RECREATE = "Recreate"


class Promotion(StrEnum):
    """Whether the last step leads to promotion by itself."""

    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class OnInconclusive(StrEnum):
    """What happens when maxDuration has passed without a verdict."""

    HOLD = "Hold"
    PROMOTE = "Promote"
    ROLLBACK = "Rollback"


class OnHarm(StrEnum):
    """What happens when the candidate is found harmful."""

    ROLLBACK = "Rollback"
    STEP_DOWN = "StepDown"
    PAUSE = "Pause"


class MetricKind(StrEnum):
    """Metrics that a check can compare."""

    ERROR_RATE = "errorRate"
    LATENCY = "latency"
    SHADOW_AGREEMENT = "shadowAgreement"


class Comparator(StrEnum):
    """How the answers of a repeated request are compared."""

    AUTO = "Auto"
    EXACT = "Exact"
    ALL_CLOSE = "AllClose"
    ARG_MAX = "ArgMax"
    TOP_K = "TopK"


class Pause(WireModel):
    """A wait for a Promote action."""


class Step(WireModel):
    """One step of a rollout: a weight, then a hold or a pause."""

    weight: int = Field(ge=1, le=100)
    """The candidate's share of traffic, in per cent."""
    hold: Duration = Duration("5m")
    """Shortest time at this weight before the next step."""
    pause: Pause | None = None
    """Wait here for a Promote action."""


class Check(WireModel):
    """One comparison of the candidate with the live stable version."""

    name: Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the check."""
    metric: MetricKind | None = None
    """What is compared."""
    query: str = Field(default="", max_length=4096)
    """A PromQL expression instead of a metric, with one value; {{namespace}}, {{name}}, {{version}} and {{revision}}
    stand for the candidate's. Judged by min and max, which is a threshold and not error-controlled."""
    threshold: Duration | None = None
    """latency: a request slower than this is a bad one; rounded up to the server's next histogram bound."""
    quantile: DecimalString = DecimalString("0.99")
    """latency: the share of requests that must be faster than the threshold."""
    max_ratio: float | None = Field(default=None, ge=1, le=100)
    """Tolerated ratio of the candidate's bad rate to stable's; above it the candidate is harmful. Default 1.5 for
    errors, 1.1 for latency."""
    max_value: DecimalString | None = None
    """Tolerated absolute bad rate of the candidate; a candidate below it is safe whatever stable does. Default
    0.001 for errors, 1 - quantile for latency."""
    min_value: DecimalString | None = None
    """shadowAgreement: smallest tolerated share of equal answers, less the share in which stable contradicts itself.
    Default 0.99."""
    min: DecimalString | None = None
    """query: smallest tolerated value."""
    max: DecimalString | None = None
    """query: largest tolerated value."""
    min_samples: int = Field(default=0, ge=0, le=1_000_000)
    """Requests of the candidate below which the check is never decided."""


DEFAULT_CHECKS = (
    Check(name="errors", metric=MetricKind.ERROR_RATE, max_ratio=1.5, max_value=DecimalString("0.001")),
    Check(
        name="latency",
        metric=MetricKind.LATENCY,
        threshold=Duration("300ms"),
        quantile=DecimalString("0.99"),
        max_ratio=1.1,
    ),
)


class Analysis(WireModel):
    """The comparison with the live stable version."""

    interval: Duration = Duration("30s")
    """Length of an evidence window; windows lie on a fixed grid and each counts once."""
    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Chance that a healthy candidate is ever rolled back, over the whole rollout and all checks."""
    max_duration: Duration = Duration("24h")
    """Time without a verdict after which onInconclusive decides."""
    on_inconclusive: OnInconclusive = OnInconclusive.HOLD
    """What happens when maxDuration has passed without a verdict."""
    on_harm: OnHarm = OnHarm.ROLLBACK
    """What happens when the candidate is found harmful. StepDown goes one step back once, with fresh evidence, and
    rolls back when the candidate is found harmful again or is still as bad ten intervals later."""
    checks: tuple[Check, ...] = Field(default=DEFAULT_CHECKS, max_length=8, json_schema_extra=keyed_by("name"))
    """What is compared; an empty list turns the comparison off, hard breakers stay. Unset: errors and latency
    above 300ms."""


class Shadow(WireModel):
    """Requests repeated to the candidate to compare its answers."""

    percent: int = Field(default=0, ge=0, le=100)
    """Share of stable's requests that is repeated to the candidate, in per cent; a quarter as many are repeated to
    stable itself, to know how far it agrees with itself."""
    compare: Comparator = Comparator.AUTO
    """How the answers are compared."""


class Rollout(WireModel):
    """The way from the served version to the new one."""

    strategy: Strategy = Strategy.CANARY
    """How traffic moves to a new version: Canary by steps; BlueGreen at once, when as many pods are ready as stable
    has; Shadow at once, when repeated requests were answered alike; Recreate stops stable first, so that requests fail
    until the new version is ready. Steps are Canary's."""
    steps: tuple[Step, ...] = Field(
        default=(Step(weight=5), Step(weight=25), Step(weight=50)), min_length=1, max_length=20
    )
    """Steps of a canary, weights ascending. Unset: 5, 25 and 50 per cent for 5m each."""
    promotion: Promotion = Promotion.AUTOMATIC
    """Automatic promotes after the last step; Manual waits there for a Promote action or approvedVersion."""
    approved_version: str = Field(default="", max_length=40)
    """Promotion by Git: with promotion Manual, naming the candidate here approves it."""
    analysis: Analysis = Analysis()
    """The comparison with the live stable version."""
    shadow: Shadow = Shadow()
    """Requests repeated to the candidate to compare its answers."""
    progress_deadline: Duration = Duration("30m")
    """Longest wait on pods, capacity or the mesh."""
    max_surge_gpus: int = Field(default=-1, ge=-1, le=1024, alias="maxSurgeGPUs")
    """GPUs that a rollout may use beyond those of stable; -1 sets no limit, 0 swaps pods in place."""
    keep_previous: Duration = Duration("10m")
    """How long the old version stays warm after promotion: a rollback without a cold start."""
    revision_history_limit: int = Field(default=10, ge=1, le=100)
    """Revisions kept that are not live."""
