"""What is in effect in Envoy, for tests and people to read."""

import dataclasses
import math

from e2e.sandbox.mesh.names import Json
from e2e.sandbox.mesh.routes import CONFIG_PREFIX
from e2e.sandbox.mesh.translation import MeshConfig


def config_report(config: MeshConfig, version: int, refusal: str, delay: float) -> Json:
    """The whole configuration: version, hosts, clusters with the number of their endpoints, what was left out."""
    return {
        "version": version,
        "propagationDelay": None if math.isinf(delay) else delay,
        "refusal": refusal,
        "rejected": [dataclasses.asdict(rejection) for rejection in config.rejections],
        "virtualServices": config.sources,
        "virtualHosts": list(config.virtual_hosts),
        "clusters": {
            name: sum(len(group["lb_endpoints"]) for group in assignment["endpoints"])
            for name, assignment in config.endpoints.items()
        },
    }


def weight_report(config: MeshConfig) -> list[Json]:
    """One entry a route: its host, VirtualService (with the resourceVersion in effect) and the weights by subset.

    A route with one destination counts as weight 100, whatever was written. Where no subset is named, as in HTTPRoutes,
    weights are by Service. An HTTPRoute stands in the place of the VirtualService.
    """
    return [
        _route_weights(host, route, config)
        for host in config.virtual_hosts
        for route in host["routes"]
        if "route" in route
    ]


def _route_weights(host: Json, route: Json, config: MeshConfig) -> Json:
    action = route["route"]
    if "weighted_clusters" in action:
        weights = {item["name"]: item["weight"] for item in action["weighted_clusters"]["clusters"]}
    else:
        weights = {action["cluster"]: 100}
    source = route.get("metadata", {}).get("filter_metadata", {}).get("istio", {}).get("config", "")
    owner = source.removeprefix(f"{CONFIG_PREFIX}/").replace("/virtual-service/", "/")
    by_subset: dict[str, int] = {}
    for name, weight in weights.items():
        _, _, subset, service = name.split("|")
        group = subset or service.partition(".")[0]
        by_subset[group] = by_subset.get(group, 0) + weight
    return {
        "host": host["name"].rsplit(":", 1)[0],
        "virtualHost": host["name"],
        "virtualService": owner,
        "resourceVersion": config.sources.get(owner, ""),
        "route": route.get("name", ""),
        "match": route["match"],
        "weights": by_subset,
        "clusters": weights,
        "mirrors": [item["cluster"].split("|")[2] for item in action.get("request_mirror_policies", [])],
    }
