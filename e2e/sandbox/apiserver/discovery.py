"""Discovery: which groups, versions and resources there are, in the old form and the aggregated one."""

from __future__ import annotations

from .kinds import Registry, Resource
from .schema import JsonDict

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
_PART_KINDS: dict[str, tuple[str, str, str]] = {
    "scale": ("autoscaling", "v1", "Scale"),
    "eviction": ("policy", "v1", "Eviction"),
    "binding": ("", "", "Binding"),
}


def wants_aggregated(accept: str) -> bool:
    """Whether a client asks for aggregated discovery, version 2."""
    return any(
        "as=APIGroupDiscoveryList" in part and "v=v2" in part.split(";") for part in accept.replace(" ", "").split(",")
    )


def api_versions(address: str) -> JsonDict:
    """The answer to GET /api."""
    clients = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": clients}


def _group(registry: Registry, group: str) -> JsonDict:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in registry.versions(group)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def group_list(registry: Registry) -> JsonDict:
    """The answer to GET /apis."""
    groups = [_group(registry, group) for group in registry.group_order if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> JsonDict:
    """The answer to GET /apis/GROUP."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(registry, name)}


def _part_kind(resource: Resource, part: str) -> tuple[str, str, str]:
    return _PART_KINDS.get(part, ("", "", resource.kind))


def _parts(resource: Resource) -> list[str]:
    return ["status", "scale"] if resource.custom else sorted(resource.subresources)


def resource_list(registry: Registry, group_name: str, version: str) -> JsonDict:
    """The answer to GET /api/v1 or /apis/GROUP/VERSION."""
    entries = []
    for resource in sorted(_served(registry, group_name, version), key=lambda found: found.plural):
        entries.append(_entry(resource))
        for part in _parts(resource):
            if part not in resource.subresources:
                continue
            kind_group, kind_version, kind = _part_kind(resource, part)
            entry: JsonDict = {
                "name": f"{resource.plural}/{part}",
                "singularName": "",
                "namespaced": resource.namespaced,
            }
            if kind_group:
                entry |= {"group": kind_group, "version": kind_version}
            entries.append({**entry, "kind": kind, "verbs": list(resource.subresources[part])})
    head: JsonDict = {"kind": "APIResourceList"}
    if group_name:
        head["apiVersion"] = "v1"
    return {**head, "groupVersion": f"{group_name}/{version}" if group_name else version, "resources": entries}


def _entry(resource: Resource) -> JsonDict:
    entry: JsonDict = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _CUSTOM_VERBS if resource.custom else list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if "list" in resource.verbs:
        entry["storageVersionHash"] = resource.storage_hash
    return entry


def _served(registry: Registry, group_name: str, version: str) -> list[Resource]:
    return [resource for resource in registry.of_group(group_name) if resource.version == version]


def aggregated(registry: Registry, core: bool) -> JsonDict:
    """The answer to GET /api (core) or /apis with the aggregated media type."""
    items = []
    for group_name in registry.group_order:
        if (group_name == "") is not core:
            continue
        versions = []
        for version in registry.versions(group_name):
            served = sorted(_served(registry, group_name, version), key=lambda found: found.plural)
            resources = [_aggregated_entry(resource) for resource in served]
            versions.append({"version": version, "resources": resources, "freshness": "Current"})
        metadata = {"name": group_name} if group_name else {}
        items.append({"metadata": metadata, "versions": versions})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_entry(resource: Resource) -> JsonDict:
    own_kind = {"group": "", "version": "", "kind": resource.kind}
    if resource.custom:
        own_kind |= {"group": resource.group, "version": resource.version}
    entry: JsonDict = {
        "resource": resource.plural,
        "responseKind": own_kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": _CUSTOM_VERBS if resource.custom else list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    parts = []
    for part in _parts(resource):
        if part in resource.subresources:
            kind_group, kind_version, kind = _part_kind(resource, part)
            kinds = (
                {"group": kind_group, "version": kind_version, "kind": kind}
                if kind_group
                else own_kind | {"kind": kind}
            )
            parts.append({"subresource": part, "responseKind": kinds, "verbs": list(resource.subresources[part])})
    if parts:
        entry["subresources"] = parts
    return entry
