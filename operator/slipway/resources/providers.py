"""What each provider of traffic wants to exist: the one place that knows them all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import VersionStatus
from slipway.api.traffic import Provider
from slipway.resources import gateway_api, istio, policies
from slipway.resources.identity import Identity, RenderOptions
from slipway.resources.services import revision_service, service
from slipway.resources.shares import weights

__all__ = ["TrafficProvider", "provider_of"]

Object = dict[str, Any]
Live = Sequence[VersionStatus]


@dataclass(frozen=True, slots=True)
class TrafficProvider:
    """How a provider is told where requests go; both functions are pure and take all live revisions."""

    services: Callable[[Identity, Live], list[Object]]
    """Services, which come before pods."""
    routes: Callable[[Identity, ModelDeploymentSpec, Live, RenderOptions], list[Object]]
    """Everything else, which comes after pods, in the order it may be applied."""


def provider_of(spec: ModelDeploymentSpec) -> TrafficProvider:
    """The provider that a spec asks for."""
    return _PROVIDERS[spec.traffic.provider]


def _one_service(identity: Identity, _: Live) -> list[Object]:
    return [service(identity)]


def _service_per_revision(identity: Identity, live: Live) -> list[Object]:
    """The Service of the ModelDeployment leads to the revision with most weight, for clients that no route knows."""
    routed = _routed(live)
    return [service(identity, _receiver(live)), *(revision_service(identity, entry) for entry in routed)]


def _receiver(live: Live) -> VersionStatus | None:
    routed = _routed(live)
    if not routed:
        return live[0] if live else None
    shares = weights(routed)
    return max(routed, key=lambda entry: shares[entry.revision])


def _istio_routes(identity: Identity, spec: ModelDeploymentSpec, live: Live, options: RenderOptions) -> list[Object]:
    if not live:
        return []
    routed = _routed(live)
    objects = [*policies.policies(identity, spec, options), istio.destination_rule(identity, spec, routed, options)]
    return [*objects, istio.virtual_service(identity, spec, routed, options)] if routed else objects


def _gateway_api_routes(identity: Identity, spec: ModelDeploymentSpec, live: Live, _: RenderOptions) -> list[Object]:
    routed = _routed(live)
    return gateway_api.http_routes(identity, spec, routed) if routed else []


def _no_routes(identity: Identity, spec: ModelDeploymentSpec, live: Live, options: RenderOptions) -> list[Object]:
    return []


def _routed(live: Live) -> list[VersionStatus]:
    return [entry for entry in live if entry.subset]


_PROVIDERS: Mapping[Provider, TrafficProvider] = {
    Provider.ISTIO: TrafficProvider(_one_service, _istio_routes),
    Provider.GATEWAY_API: TrafficProvider(_service_per_revision, _gateway_api_routes),
    Provider.NONE: TrafficProvider(_service_per_revision, _no_routes),
}
