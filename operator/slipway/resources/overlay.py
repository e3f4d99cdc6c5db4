"""``runtime.podTemplate`` laid over the pod template that Slipway renders, by the rules of a strategic merge.

Objects merge key by key and ``null`` removes a key. The lists below merge item by item on the key named, an item
that is new being appended; every other list (``tolerations``, ``args``, ``command``...) replaces ours.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["lay_over"]

_MERGE_KEYS = {
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


def lay_over(below: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """The object ``below`` with ``overlay`` merged over it; neither is changed."""
    merged = dict(below)
    for key, value in overlay.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            beneath = merged.get(key)
            merged[key] = lay_over(beneath if isinstance(beneath, Mapping) else {}, value)
        elif isinstance(value, list) and key in _MERGE_KEYS:
            merged[key] = _merge_items(merged.get(key) or [], value, _MERGE_KEYS[key])
        else:
            merged[key] = value
    return merged


def _merge_items(below: list[Any], overlay: list[Any], key: str) -> list[Any]:
    merged = list(below)
    positions = {item[key]: index for index, item in enumerate(merged) if key in item}
    for item in overlay:
        position = positions.get(item.get(key)) if isinstance(item, Mapping) else None
        if position is None:
            merged.append(lay_over({}, item) if isinstance(item, Mapping) else item)
        else:
            merged[position] = lay_over(merged[position], item)
    return merged
