"""What one reconcile sees of the cluster, as plain values: the snapshot that every pure decision is made on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Definition", "Observed", "PodView", "ProbeView", "RevisionView", "TrafficView"]


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of a revision."""

    name: str
    created_at: float
    """Seconds since the epoch."""
    ready: bool = False
    ready_at: float | None = None
    """When the pod last became ready."""
    unready_since: float | None = None
    """When a pod that is not ready stopped being so, or started: the Ready condition's last transition."""
    terminating: bool = False
    restarts: int = 0
    waiting_reason: str = ""
    """Why the server container waits, such as CrashLoopBackOff or ImagePullBackOff."""
    terminated_reason: str = ""
    """Why the server container last ended, such as OOMKilled or Error."""
    exit_code: int | None = None
    message: str = ""
    """The container's termination message, or the scheduler's."""
    unschedulable: bool = False
    unschedulable_since: float | None = None
    scheduled_at: float | None = None
    """When it got its place in the cluster."""
    gpus: int = 0
    ip: str = ""
    node: str = ""
    fetched_digest: str = ""
    """Digest of the model that an init container brought and verified, ``sha256:<hex>``; empty without one."""

    @property
    def failing(self) -> bool:
        """Whether the server keeps ending, or cannot start at all."""
        return self.waiting_reason in {
            "CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName",
            "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
        }  # fmt: skip

    @property
    def out_of_memory(self) -> bool:
        """Whether the server was last ended for its memory."""
        return self.terminated_reason == "OOMKilled"


@dataclass(frozen=True, slots=True)
class ProbeView:
    """What the operator's own requests to a revision's servers found."""

    passed: bool | None = None
    """None while it has not been checked, or could not be."""
    reason: str = ""
    """SignatureMismatch, GoldensFailed, ProbeFailed… when it did not pass."""
    message: str = ""
    loaded_digest: str = ""


@dataclass(frozen=True, slots=True)
class RevisionView:
    """A revision's Deployment and pods."""

    revision: str
    version: str
    exists: bool = False
    """Whether its Deployment exists and is ours."""
    replicas: int = 0
    """Replicas in the Deployment's spec."""
    pods: tuple[PodView, ...] = ()
    """Without those that are over for good, which stay as objects: they hold no device and never run again."""
    ended: str = ""
    """Of the newest pod that is over for good, which and why; empty when there is none."""
    probe: ProbeView = ProbeView()
    failure: str = ""
    """The Deployment's ReplicaFailure message, such as an exceeded quota."""
    scaler: str = ""
    """Somebody else's scaler that sets the Deployment's replicas, as kind and name; empty when there is none."""

    @property
    def ready(self) -> int:
        """Pods that take requests: ready and not terminating."""
        return sum(1 for pod in self.pods if pod.ready and not pod.terminating)


@dataclass(frozen=True, slots=True)
class TrafficView:
    """What the router holds, read back from the API server."""

    exists: bool = False
    """Whether a VirtualService of ours exists."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """Weight per revision in the default route."""
    subsets: frozenset[str] = frozenset()
    """Subsets that the DestinationRule holds."""
    drifted: bool = False
    """Whether somebody else has changed our objects since we wrote them."""
    foreign_manager: str = ""
    """Field manager that changed them."""
    refusal: str = ""
    """Why a gateway does not take the route, or the API server an object that leads traffic, in their own words."""
    leaving: str = ""
    """An object of ours that has to be gone before anything else is written: what it is, and what keeps it."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A revision's definition as kept in its ControllerRevision: enough to rebuild its pods."""

    version: str
    revision: str
    number: int
    """Order of creation."""
    data: Mapping[str, Any]
    """``{"version": …, "runtime": …}`` as the user wrote them; see :mod:`slipway.api.revisions`."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything a decision may look at, besides spec, status, metrics and the time."""

    name: str
    namespace: str
    uid: str
    generation: int
    revisions: Mapping[str, RevisionView] = field(default_factory=dict)
    """By revision name."""
    definitions: Mapping[str, Definition] = field(default_factory=dict)
    """By revision name, from ControllerRevisions."""
    traffic: TrafficView = TrafficView()
    conflict: str = ""
    """Why an object or host we need belongs to somebody else; empty when none does."""
    mesh_missing: bool = False
    """Whether the API server does not know a kind that moving traffic needs."""
    missing_kinds: tuple[str, ...] = ()
    """Names of these kinds."""

    def of(self, revision: str) -> RevisionView:
        """The view of a revision; an empty one when nothing of it exists."""
        return self.revisions.get(revision) or RevisionView(revision, version="")
