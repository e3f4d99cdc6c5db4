"""Parts of a spec whose schema is Kubernetes' own: what of their shape is relied on before Kubernetes looks at them.

The CRD takes any object there. What is wrong beyond this, the API server says when the pods' Deployment is applied.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from slipway.api.problems import Problem
from slipway.api.spec import ModelDeploymentSpec

__all__ = ["MERGE_KEYS", "containers_of", "key_of", "misshapen"]

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists of a pod template that merge item by item, with the key that tells their items apart."""


def key_of(item: Any, key: str) -> str | int | None:
    """What tells an item of a list from the others; None for what has no such key, or nonsense there."""
    found = item.get(key) if isinstance(item, Mapping) else None
    return found if isinstance(found, str | int) else None


def containers_of(template: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The containers of a ``podTemplate``, of whatever shape it is: old revisions may hold any."""
    spec = (template or {}).get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    return [item for item in containers if isinstance(item, Mapping)] if isinstance(containers, list) else []


def misshapen(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    """Problems of every ``podTemplate``, each with the path down to the part that has no such shape."""
    yield from _template(spec.runtime.pod_template, "spec.runtime.podTemplate")
    for index, version in enumerate(spec.versions):
        yield from _template(version.runtime.pod_template or {}, f"spec.versions[{index}].runtime.podTemplate")


def _template(template: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for part in ("metadata", "spec"):
        if not isinstance(template.get(part), Mapping | None):
            yield Problem(f"{path}.{part}", "InvalidSpec", "must be an object, as in a Pod")
    metadata = template.get("metadata")
    described = metadata if isinstance(metadata, Mapping) else {}
    for part in ("labels", "annotations"):
        if not _is_map_of_texts(described.get(part)):
            yield Problem(f"{path}.metadata.{part}", "InvalidSpec", "must be an object of texts, as in a Pod")
    yield from _lists(template, path)


def _is_map_of_texts(value: Any) -> bool:
    return value is None or (
        isinstance(value, Mapping) and all(isinstance(text, str | None) for text in value.values())
    )


def _lists(below: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for name, value in below.items():
        here = f"{path}.{name}"
        if isinstance(value, Mapping):
            yield from _lists(value, here)
        elif name in MERGE_KEYS and not isinstance(value, list | None):
            yield Problem(here, "InvalidSpec", "must be a list, as in a Pod")
        elif isinstance(value, list) and name in MERGE_KEYS:
            for index, item in enumerate(value):
                if key_of(item, MERGE_KEYS[name]) is None:
                    text = f"must be an object with {MERGE_KEYS[name]}, as in a Pod"
                    yield Problem(f"{here}[{index}]", "InvalidSpec", text)
                else:
                    yield from _lists(item, f"{here}[{index}]")
