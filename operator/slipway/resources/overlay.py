"""``runtime.podTemplate`` laid over the pod template that Slipway renders, by the rules of a strategic merge.

Objects merge key by key and ``null`` removes a key. The lists below merge item by item on the key named, an item
that is new being appended; every other list (``tolerations``, ``args``, ``command``...) replaces ours.
"""

from collections.abc import Mapping
from typing import Any

from slipway.api.open_parts import MERGE_KEYS, key_of

__all__ = ["lay_over"]


def lay_over(below: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """The object ``below`` with ``overlay`` merged over it; neither is changed."""
    merged = dict(below)
    for key, value in overlay.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            beneath = merged.get(key)
            merged[key] = lay_over(beneath if isinstance(beneath, Mapping) else {}, value)
        elif isinstance(value, list) and key in MERGE_KEYS:
            beneath = merged.get(key)
            merged[key] = _merge_items(beneath if isinstance(beneath, list) else [], value, MERGE_KEYS[key])
        else:
            merged[key] = value
    return merged


def _merge_items(below: list[Any], overlay: list[Any], key: str) -> list[Any]:
    merged = list(below)
    positions = {name: index for index, item in enumerate(merged) if (name := key_of(item, key)) is not None}
    for item in overlay:
        found = key_of(item, key)
        position = None if found is None else positions.get(found)
        if position is None:
            merged.append(lay_over({}, item) if isinstance(item, Mapping) else item)
        else:
            merged[position] = lay_over(merged[position], item)
    return merged
