"""Whether a live object already says what we want it to say, seen as the API server would: it normalises quantities,
drops empty values and adds defaults, and lists that are maps may hold entries of others.

What belongs whole to whoever writes it may hold nothing else: a condition or a fault that somebody adds to a route, or
a label to a Service's selector, changes where requests go.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

from slipway.api.scalars import quantity_value

__all__ = ["difference", "projected"]

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
_WRITTEN_OUT = frozenset({"networking.istio.io", "security.istio.io", "gateway.networking.k8s.io"})
"""Groups whose objects we write with all defaults: what else stands in an entry of a list there is somebody's."""


class _Share(Enum):
    """What others may add to a part of an object without our noticing."""

    FIELDS = auto()
    """Fields, as defaults are: of a Deployment, say."""
    NO_ENTRIES = auto()
    """Fields beside ours, but nothing within a list, which is ours as a whole."""
    NOTHING = auto()


Path = tuple[str, ...]
_SELECTORS = frozenset({("spec", "selector"), ("spec", "workloadSelector")})
"""Which pods an object is for: one label more, and a policy protects none of them."""


def difference(live: Any, wanted: Any) -> str:
    """Path of the first place where ``live`` says something else than what is wanted; empty when there is none."""
    path = _missing(live, wanted, (), _share(wanted))
    return "" if path is None else ".".join(path) or "."


def _share(wanted: Any) -> _Share:
    version = str(wanted.get("apiVersion", "")) if isinstance(wanted, Mapping) else ""
    return _Share.NO_ENTRIES if version.partition("/")[0] in _WRITTEN_OUT else _Share.FIELDS


def _missing(live: Any, wanted: Any, path: Path, share: _Share) -> Path | None:
    if isinstance(wanted, Mapping):
        return _in_mapping(live, wanted, path, share)
    if isinstance(wanted, list | tuple):
        return _in_list(live, wanted, path, share)
    if live == wanted and isinstance(live, bool) == isinstance(wanted, bool):
        return None
    # The API server drops empty values of built-in kinds; a number, such as a weight of 0, it keeps.
    if live is None and (wanted is None or wanted is False or wanted == ""):
        return None
    if _is_quantity(path) and _same_quantity(live, wanted):
        return None
    return path


def projected(live: Any, wanted: Any) -> Any:
    """What ``live`` says about all that ``wanted`` speaks of, and about nothing else; None where it is silent.

    What is ours as a whole is taken as a whole.
    """
    return _projected(live, wanted, (), _share(wanted))


def _projected(live: Any, wanted: Any, path: Path, share: _Share) -> Any:
    if isinstance(wanted, Mapping) and isinstance(live, Mapping) and not _is_whole(path, share):
        return {
            key: _projected(live.get(key), value, (*path, str(key)), _below(path, key, share))
            for key, value in wanted.items()
        }
    if not isinstance(wanted, list | tuple) or not isinstance(live, list | tuple) or share is _Share.NO_ENTRIES:
        return live
    keys = _merge_keys(path, wanted)
    if keys and all(isinstance(entry, Mapping) for entry in wanted):
        by_key = {_identity(entry, keys): entry for entry in live if isinstance(entry, Mapping)}
        pairs = [(by_key.get(_identity(entry, keys)), entry) for entry in wanted]
        return [_projected(one, other, (*path, ""), share) for one, other in pairs if one is not None]
    if len(live) != len(wanted):
        return live
    return [_projected(one, other, (*path, ""), share) for one, other in zip(live, wanted, strict=True)]


def _is_quantity(path: Path) -> bool:
    return bool(path) and (path[-1] in _QUANTITY_FIELDS or (len(path) > 1 and path[-2] in _QUANTITIES))


def _is_whole(path: Path, share: _Share) -> bool:
    return share is _Share.NOTHING or path in _SELECTORS


def _below(path: Path, key: str, share: _Share) -> _Share:
    """Metadata is everybody's: other owners and labels."""
    return _Share.FIELDS if not path and key == "metadata" else share


def _in_mapping(live: Any, wanted: Mapping[str, Any], path: Path, share: _Share) -> Path | None:
    if live is None:
        live = {}
    if not isinstance(live, Mapping):
        return path
    if _is_whole(path, share):
        share = _Share.NOTHING
        added = next((key for key, value in live.items() if key not in wanted and value is not None), None)
        if added is not None:
            return (*path, str(added))
    for key, value in wanted.items():
        one = live.get(key)
        if type(one) is str and one == value:
            continue  # the rule, and cheap to tell
        found = _missing(one, value, (*path, str(key)), _below(path, key, share))
        if found is not None:
            return found
    return None


def _in_list(live: Any, wanted: Sequence[Any], path: Path, share: _Share) -> Path | None:
    if live is None:
        live = []
    if not isinstance(live, list | tuple):
        return path
    keys = _merge_keys(path, wanted)
    if share is _Share.FIELDS and keys and all(isinstance(entry, Mapping) for entry in wanted):
        return _in_map_list(live, wanted, path, keys)
    if len(live) != len(wanted):
        return path
    inside = _Share.FIELDS if share is _Share.FIELDS else _Share.NOTHING
    for index, (one, other) in enumerate(zip(live, wanted, strict=True)):
        if type(one) is str and one == other:
            continue
        found = _missing(one, other, (*path, str(index)), inside)
        if found is not None:
            return found
    return None


def _in_map_list(live: Sequence[Any], wanted: Sequence[Any], path: Path, keys: tuple[str, ...]) -> Path | None:
    by_key = {_identity(entry, keys): entry for entry in live if isinstance(entry, Mapping)}
    for entry in wanted:
        identity = _identity(entry, keys)
        place = (*path, "/".join(identity))
        if identity not in by_key:
            return place
        found = _missing(by_key[identity], entry, place, _Share.FIELDS)
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
        return quantity_value(str(live)) == quantity_value(str(wanted))
    except ValueError:
        return False
