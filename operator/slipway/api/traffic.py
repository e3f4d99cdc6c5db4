"""``spec.traffic``: how requests reach a version."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from slipway.api.scalars import Duration
from slipway.api.wire import SET, WireModel, keyed_by

__all__ = [
    "Auth",
    "Experiment",
    "Jwt",
    "Mirror",
    "OutlierDetection",
    "Provider",
    "RateLimit",
    "Resilience",
    "Retries",
    "SessionAffinity",
    "Traffic",
    "VirtualServiceOptions",
]


class Provider(StrEnum):
    """What moves the traffic."""

    ISTIO = "istio"
    GATEWAY_API = "gateway-api"
    NONE = "none"


Condition = Annotated[dict[str, Any], Field(min_length=1)]
"""Istio's HTTPMatchRequest. An empty one would match every request."""


class Experiment(WireModel):
    """A long-lived extra version beside the served one."""

    version: str = Field(min_length=1, max_length=40)
    """Name of the version."""
    weight: int = Field(default=0, ge=0, le=100)
    """Share of all unpinned traffic, in per cent."""
    match: tuple[Condition, ...] = Field(default=(), max_length=16)
    """Requests (Istio's HTTPMatchRequest) that go to this version whole."""


class SessionAffinity(WireModel):
    """A cookie that keeps a user on the version drawn first."""

    cookie: str = Field(default="", max_length=128, pattern=r"^[A-Za-z0-9_-]*$")
    """Name of the cookie; empty turns affinity off."""
    ttl: Duration = Duration("1h")
    """How long the cookie holds."""


class Mirror(WireModel):
    """A copy of a share of requests, whose answers are dropped."""

    version: str = Field(default="", max_length=40)
    """Version that gets the copies; empty turns mirroring off."""
    percent: int = Field(default=0, ge=0, le=100)
    """Share of requests copied, in per cent."""


class Retries(WireModel):
    """Retries by the mesh."""

    attempts: int = Field(default=0, ge=0, le=10)
    """Retries after the first try; 0 turns the mesh's own retries off as well."""
    per_try_timeout: Duration = Duration("10s")
    """Longest time of one try; 0s sets no limit."""
    on: tuple[Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9][a-z0-9-]*$")], ...] = Field(
        default=("connect-failure", "refused-stream", "unavailable"),
        min_length=1,
        max_length=16,
        json_schema_extra=SET,
    )
    """Failures that are retried, in Envoy's terms. Quote the name (``"on"``) in YAML, which reads a bare on as true."""


class OutlierDetection(WireModel):
    """When the mesh takes a pod out of the rotation for a while."""

    consecutive_errors: int = Field(default=5, ge=0, le=1000)
    """Consecutive 5xx answers of a pod before it is ejected; 0 turns ejection off."""
    interval: Duration = Duration("10s")
    """How often pods are looked at."""
    ejection_time: Duration = Duration("30s")
    """Shortest time of an ejection."""


class RateLimit(WireModel):
    """Local rate limit at each server's proxy."""

    requests_per_second: float = Field(default=0, ge=0, le=1_000_000)
    """Requests per second and pod; 0 sets no limit."""


class Resilience(WireModel):
    """Time-outs, retries and ejection in the mesh."""

    timeout: Duration = Duration("30s")
    """Longest time of a request, retries included; 0s sets no limit."""
    retries: Retries = Retries()
    """Retries by the mesh."""
    outlier_detection: OutlierDetection = OutlierDetection()
    """Ejection of failing pods."""
    rate_limit: RateLimit = RateLimit()
    """Local rate limit."""


class Jwt(WireModel):
    """A JSON Web Token that every request must carry."""

    issuer: str = Field(default="", max_length=2048)
    """Issuer of the tokens; empty asks for none."""
    jwks_uri: str = Field(default="", max_length=2048)
    """Where the issuer's keys lie."""
    audiences: tuple[Annotated[str, Field(min_length=1, max_length=2048)], ...] = Field(
        default=(), max_length=16, json_schema_extra=SET
    )
    """Accepted audiences; none accepts any."""


class Auth(WireModel):
    """Who may send requests."""

    jwt: Jwt = Jwt()
    """A JSON Web Token that every request must carry."""


class VirtualServiceOptions(WireModel):
    """How the VirtualService is written."""

    delegate: bool = False
    """Write only a delegate; the root VirtualService stays the user's."""


class Traffic(WireModel):
    """How requests reach a version."""

    provider: Provider = Provider.ISTIO
    """What moves the traffic."""
    hosts: tuple[Annotated[str, Field(min_length=1, max_length=253)], ...] = Field(
        default=(), max_length=32, json_schema_extra=SET
    )
    """Hosts beside the in-mesh name of the Service, which is always one."""
    gateways: tuple[Annotated[str, Field(min_length=1, max_length=317)], ...] = Field(
        default=(), max_length=16, json_schema_extra=SET
    )
    """Istio gateways, as namespace/name, that the hosts are served on; in-mesh clients are always served."""
    version_header: str = Field(default="x-model-version", max_length=128, pattern=r"^[a-z0-9-]*$")
    """A request carrying a live version's name in this header is sent to it; empty turns that off."""
    experiments: tuple[Experiment, ...] = Field(default=(), max_length=8, json_schema_extra=keyed_by("version"))
    """Long-lived extra versions beside the served one."""
    session_affinity: SessionAffinity = SessionAffinity()
    """A cookie that keeps a user on one version."""
    mirror: Mirror = Mirror()
    """A copy of a share of requests to a version."""
    resilience: Resilience = Resilience()
    """Time-outs, retries and ejection in the mesh."""
    auth: Auth = Auth()
    """Who may send requests."""
    settle: Duration = Duration("5s")
    """Time the mesh is given to converge before a weight counts as applied."""
    virtual_service: VirtualServiceOptions = VirtualServiceOptions()
    """How the VirtualService is written."""
