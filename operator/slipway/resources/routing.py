"""Which requests go to which revisions, in words of no provider: an ordered list of routes, the first match wins.

Pins come before a user's cookie, and the weighted default route, which takes everything, comes last. Conditions are
written as Istio's ``HTTPMatchRequest``; a provider that speaks another language translates them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import Role, VersionStatus
from slipway.api.traffic import SessionAffinity
from slipway.resources.affinity import cookie_pattern
from slipway.resources.shares import pinned, weights

__all__ = ["DEFAULT_ROUTE", "SHADOW_HEADER", "VERSION_HEADER", "Copies", "Route", "Target", "routes"]

VERSION_HEADER = "x-model-version"
"""Header by which every answer tells its version."""
SHADOW_HEADER = "x-slipway-shadow"
"""Header of requests that servers repeat or the operator makes, and do not count; users' requests are cleared of it."""
DEFAULT_ROUTE = "default"
"""Name of the weighted route that requests without a pin take."""


@dataclass(frozen=True, slots=True)
class Target:
    """A revision with its share of a route, in per cent."""

    entry: VersionStatus
    weight: int


@dataclass(frozen=True, slots=True)
class Copies:
    """A share of a route's requests, in per cent, that is sent to a revision as well."""

    entry: VersionStatus
    percent: int


@dataclass(frozen=True, slots=True)
class Route:
    """Requests that meet one of the conditions, and where they go; without a condition, all that are left."""

    name: str
    targets: tuple[Target, ...]
    matches: tuple[Mapping[str, Any], ...] = ()
    draws: bool = False
    """Whether the target is drawn, so that an affinity cookie has to remember it."""
    copies: Copies | None = None


def routes(spec: ModelDeploymentSpec, routed: Sequence[VersionStatus]) -> tuple[Route, ...]:
    """The routes of one port, by precedence; ``routed`` are the entries with a subset (not none)."""
    pins = _pins(spec.traffic.version_header, routed)
    return (*pins, *_experiments(spec, routed), *_kept_users(spec, routed), _default(spec, routed))


def _pins(header: str, routed: Sequence[VersionStatus]) -> list[Route]:
    if not header:
        return []
    return [
        Route(f"pin-{entry.name}", _only(entry), ({"headers": {header: {"exact": entry.name}}},))
        for entry in pinned(routed)
    ]


def _experiments(spec: ModelDeploymentSpec, routed: Sequence[VersionStatus]) -> list[Route]:
    """Requests that an experiment's matches describe go to it whole, while it has ready pods to answer them."""
    matches = {item.version: item.match for item in spec.traffic.experiments if item.match}
    return [
        Route(f"experiment-{entry.name}", _only(entry), matches[entry.name])
        for entry in routed
        if entry.matched and entry.role is Role.EXPERIMENT and entry.name in matches
    ]


def _kept_users(spec: ModelDeploymentSpec, routed: Sequence[VersionStatus]) -> list[Route]:
    """Routes by cookie. A revision that has no weight any more keeps no user: they are drawn again."""
    affinity = spec.traffic.session_affinity
    if not affinity.cookie:
        return []
    shares = weights(routed)
    return [
        Route(
            f"user-{entry.revision}",
            _only(entry),
            (_cookie_match(affinity, entry),),
            copies=_copies(spec, routed, beside=entry),
        )
        for entry in routed
        if shares[entry.revision] > 0 and entry.ready_replicas > 0
    ]


def _cookie_match(affinity: SessionAffinity, entry: VersionStatus) -> dict[str, Any]:
    return {"headers": {"cookie": {"regex": cookie_pattern(affinity, entry.revision)}}}


def _default(spec: ModelDeploymentSpec, routed: Sequence[VersionStatus]) -> Route:
    shares = weights(routed)
    return Route(
        DEFAULT_ROUTE,
        tuple(Target(entry, shares[entry.revision]) for entry in routed),
        draws=bool(spec.traffic.session_affinity.cookie),
        copies=_copies(spec, routed),
    )


def _copies(
    spec: ModelDeploymentSpec, routed: Sequence[VersionStatus], beside: VersionStatus | None = None
) -> Copies | None:
    """Copies to the mirrored version while it has ready pods, unless it gets these requests anyway."""
    mirror = spec.traffic.mirror
    if not mirror.version or not mirror.percent:
        return None
    for entry in pinned(routed):
        if entry.name == mirror.version and entry.role is not Role.STABLE and entry != beside:
            return Copies(entry, mirror.percent)
    return None


def _only(entry: VersionStatus) -> tuple[Target, ...]:
    return (Target(entry, 100),)
