"""``spec.autoscaling``: how many replicas each live version has."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from slipway.api.scalars import Duration
from slipway.api.wire import WireModel

__all__ = [
    "Autoscaling",
    "Concurrency",
    "CooldownAppliesTo",
    "Forecast",
    "GpuMemory",
    "GpuUtilization",
    "OnMissingMetrics",
    "Qps",
    "QueueTime",
    "ScaleDown",
    "ScaleUp",
    "ScalingMode",
    "ScalingStrategy",
    "Schedule",
]

Percent = Annotated[float, Field(ge=0, le=100)]


class ScalingMode(StrEnum):
    """Who decides the number of replicas."""

    OPERATOR = "Operator"
    HPA = "HPA"
    EXTERNAL = "External"
    NONE = "None"


class ScalingStrategy(StrEnum):
    """How the operator decides the number of replicas."""

    TARGET = "Target"
    THRESHOLD = "Threshold"


class CooldownAppliesTo(StrEnum):
    """Which changes wait for the cooldown."""

    DOWN = "Down"
    BOTH = "Both"


class OnMissingMetrics(StrEnum):
    """What happens while demand is unknown."""

    HOLD = "Hold"
    AT_LEAST = "AtLeast"


class Forecast(StrEnum):
    """Whether a rising trend is followed ahead of time."""

    AUTO = "Auto"
    OFF = "Off"


class Qps(WireModel):
    """Requests per second and replica."""

    target: float | None = Field(default=None, gt=0)
    """Load of a replica that Target aims at; unset, Target does not scale on QPS."""
    upper: float = Field(default=80, gt=0)
    """Threshold: up at or above this, when the GPU is above its upper value too."""
    lower: float = Field(default=40, ge=0)
    """Threshold: down below this, when the GPU is below its lower value too."""


class GpuUtilization(WireModel):
    """GPU utilisation in per cent, or the server's executor-busy share where no GPU metric belongs to the pod."""

    target: Percent = 70
    """Utilisation above which Target adds replicas; 0 turns the guard off."""
    upper: Percent = 70
    """Threshold: up at or above this, when QPS is above its upper value too."""
    lower: Percent = 20
    """Threshold: down below this, when QPS is below its lower value too."""


class GpuMemory(WireModel):
    """GPU memory in use."""

    upper: Percent = 90
    """Per cent above which no replica is removed and one is added; 0 turns the guard off."""


class QueueTime(WireModel):
    """Time that requests wait in the server."""

    upper: Duration = Duration("100ms")
    """Mean wait above which replicas are added; 0s turns the guard off."""


class Concurrency(WireModel):
    """Requests in flight per replica."""

    target: float = Field(default=0, ge=0)
    """Requests in flight that a replica is given; 0 does not scale on it."""


class ScaleUp(WireModel):
    """Limits of one step up."""

    max_percent: int = Field(default=100, ge=1, le=10_000)
    """Largest step in per cent of the present replicas."""
    max_replicas: int = Field(default=4, ge=1, le=10_000)
    """Largest step in replicas; the larger of the two counts."""


class ScaleDown(WireModel):
    """Limits of one step down."""

    max_percent: int = Field(default=25, ge=1, le=100)
    """Largest step in per cent of the present replicas, at least one."""


class Schedule(WireModel):
    """A minimum of replicas from a point in time on."""

    cron: str = Field(min_length=1, max_length=128)
    """When it starts, as five cron fields."""
    timezone: str = Field(default="UTC", max_length=64)
    """IANA time zone of the cron fields."""
    min_replicas: int = Field(ge=0, le=10_000)
    """Minimum of replicas until the next entry starts."""


class Autoscaling(WireModel):
    """How many replicas each live version has."""

    mode: ScalingMode = ScalingMode.OPERATOR
    """Who decides: Operator; HPA; External (spec.replicas through /scale); None (spec.replicas)."""
    min_replicas: int = Field(default=1, ge=1, le=10_000)
    """Fewest replicas of the stable version."""
    max_replicas: int = Field(default=8, ge=1, le=10_000)
    """Most replicas of one version."""
    strategy: ScalingStrategy = ScalingStrategy.TARGET
    """Target: enough replicas for the load. Threshold: up when both are high, down when both are low."""
    qps: Qps = Qps()
    """Requests per second and replica."""
    gpu_utilization: GpuUtilization = GpuUtilization()
    """GPU utilisation in per cent."""
    gpu_memory: GpuMemory = GpuMemory()
    """GPU memory in use."""
    queue_time: QueueTime = QueueTime()
    """Time that requests wait in the server."""
    concurrency: Concurrency = Concurrency()
    """Requests in flight per replica."""
    tolerance: float = Field(default=0.1, ge=0, le=1)
    """Deviation from the target, as a share, that changes nothing."""
    cooldown: Duration = Duration("5m")
    """Time after a change before replicas are removed (or, with Both, changed at all)."""
    cooldown_applies_to: CooldownAppliesTo = CooldownAppliesTo.DOWN
    """Which changes wait for the cooldown."""
    stabilization_window: Duration = Duration("5m")
    """A replica is removed only when every plan of this window allows it; the window is at least twice the learned
    p90 start."""
    scale_up: ScaleUp = ScaleUp()
    """Limits of one step up."""
    scale_down: ScaleDown = ScaleDown()
    """Limits of one step down."""
    on_missing_metrics: OnMissingMetrics = OnMissingMetrics.HOLD
    """What happens while demand is unknown."""
    fallback_replicas: int = Field(default=0, ge=0, le=10_000)
    """AtLeast: the floor while demand is unknown."""
    forecast: Forecast = Forecast.AUTO
    """Whether a rising trend is followed ahead of time, when starts are slow."""
    dry_run: bool = False
    """Decide and explain in status, change nothing."""
    schedule: tuple[Schedule, ...] = Field(default=(), max_length=16)
    """Minima by time of day; the entry that started last counts where it asks for more than minReplicas."""
