"""Whether a live object already says what we want it to say, seen as the API server would: it normalises quantities,
drops empty values and adds defaults, and lists that are maps may hold entries of others.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from slipway.api.scalars import Quantity

__all__ = ["contains", "difference", "projected"]

_QUANTITIES = frozenset({"requests", "limits", "capacity", "hard"})
"""Maps whose values are quantities."""
_QUANTITY_FIELDS = frozenset({"averageValue", "tolerance", "sizeLimit", "divisor"})
"""Fields of built-in kinds that are quantities: the API server answers 1000 as 1k."""
_MAP_LISTS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "containerPorts": ("containerPort", "protocol"),
    "servicePorts": ("port", "protocol"),
}
"""Lists that the API server merges by key; all others belong whole to whoever writes them."""


Path = tuple[str, ...]


def contains(live: Any, wanted: Any) -> bool:
    """Whether ``live`` has everything that ``wanted`` says."""
    return _missing(live, wanted, ()) is None


def difference(live: Any, wanted: Any) -> str:
    """Path of the first place where ``live`` lacks something wanted; empty when there is none."""
    path = _missing(live, wanted, ())
    return "" if path is None else ".".join(path) or "."


def _missing(live: Any, wanted: Any, path: Path) -> Path | None:
    if isinstance(wanted, Mapping):
        return _in_mapping(live, wanted, path)
    if isinstance(wanted, list | tuple):
        return _in_list(live, wanted, path)
    if live == wanted and isinstance(live, bool) == isinstance(wanted, bool):
        return None
    # The API server drops empty values of built-in kinds; a number, such as a weight of 0, it keeps.
    if live is None and (wanted is None or wanted is False or wanted == ""):
        return None
    if _is_quantity(path) and _same_quantity(live, wanted):
        return None
    return path


def projected(live: Any, wanted: Any) -> Any:
    """What ``live`` says about all that ``wanted`` speaks of, and about nothing else; None where it is silent."""
    return _projected(live, wanted, ())


def _projected(live: Any, wanted: Any, path: Path) -> Any:
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        return {key: _projected(live.get(key), value, (*path, str(key))) for key, value in wanted.items()}
    if not isinstance(wanted, list | tuple) or not isinstance(live, list | tuple):
        return live
    keys = _merge_keys(path, wanted)
    if keys and all(isinstance(entry, Mapping) for entry in wanted):
        by_key = {_identity(entry, keys): entry for entry in live if isinstance(entry, Mapping)}
        pairs = [(by_key.get(_identity(entry, keys)), entry) for entry in wanted]
        return [_projected(one, other, (*path, "")) for one, other in pairs if one is not None]
    if len(live) != len(wanted):
        return live
    return [_projected(one, other, (*path, "")) for one, other in zip(live, wanted, strict=True)]


def _is_quantity(path: Path) -> bool:
    return bool(path) and (path[-1] in _QUANTITY_FIELDS or (len(path) > 1 and path[-2] in _QUANTITIES))


def _in_mapping(live: Any, wanted: Mapping[str, Any], path: Path) -> Path | None:
    if live is None:
        live = {}
    if not isinstance(live, Mapping):
        return path
    found = (_missing(live.get(key), value, (*path, str(key))) for key, value in wanted.items())
    return next((place for place in found if place is not None), None)


def _in_list(live: Any, wanted: Sequence[Any], path: Path) -> Path | None:
    if live is None:
        live = []
    if not isinstance(live, list | tuple):
        return path
    keys = _merge_keys(path, wanted)
    if keys and all(isinstance(entry, Mapping) for entry in wanted):
        return _in_map_list(live, wanted, path, keys)
    if len(live) != len(wanted):
        return path
    pairs = enumerate(zip(live, wanted, strict=True))
    found = (_missing(one, other, (*path, str(index))) for index, (one, other) in pairs)
    return next((place for place in found if place is not None), None)


def _in_map_list(live: Sequence[Any], wanted: Sequence[Any], path: Path, keys: tuple[str, ...]) -> Path | None:
    by_key = {_identity(entry, keys): entry for entry in live if isinstance(entry, Mapping)}
    for entry in wanted:
        identity = _identity(entry, keys)
        place = (*path, "/".join(identity))
        if identity not in by_key:
            return place
        found = _missing(by_key[identity], entry, place)
        if found is not None:
            return found
    return None


def _merge_keys(path: Path, wanted: Sequence[Any]) -> tuple[str, ...]:
    """Keys by which the API server merges a list; none for a list that is replaced whole."""
    field = path[-1] if path else ""
    if field == "ports" and wanted and isinstance(wanted[0], Mapping):
        field = "containerPorts" if "containerPort" in wanted[0] else "servicePorts"
    return _MAP_LISTS.get(field, ())


def _identity(entry: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(entry.get(key, "TCP" if key == "protocol" else None)) for key in keys)


def _same_quantity(live: Any, wanted: Any) -> bool:
    try:
        return Quantity(str(live)).value == Quantity(str(wanted)).value
    except ValueError:
        return False
