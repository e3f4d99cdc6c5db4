"""Arithmetic of a Deployment's rolling update, free of any I/O."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Fences:
    """How far an update may go: pods above and pods below the wanted number."""

    surge: int
    unavailable: int


@dataclass(frozen=True)
class Replicas:
    """One ReplicaSet's numbers; `created` orders them."""

    uid: str
    wanted: int
    available: int
    created: str


def share_of(value: int | str | None, total: int, *, round_up: bool) -> int:
    """An integer or a percentage of `total`."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    exact = int(value.removesuffix("%")) * total / 100
    return math.ceil(exact) if round_up else math.floor(exact)


def fences(max_surge: int | str | None, max_unavailable: int | str | None, wanted: int) -> Fences:
    """Resolve percentages; an update that could go nowhere may take one pod away."""
    surge = share_of(max_surge, wanted, round_up=True)
    unavailable = min(share_of(max_unavailable, wanted, round_up=False), wanted)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return Fences(surge, unavailable)


def new_size(wanted: int, limits: Fences, current: int, all_replicas: int) -> int:
    """The new ReplicaSet's next size: as many as the surge leaves room for."""
    if current == wanted:
        return current
    if current > wanted:
        return wanted
    room = wanted + limits.surge - all_replicas
    return current + max(0, min(room, wanted - current))


def shrink_old(wanted: int, limits: Fences, new: Replicas | None, old: list[Replicas]) -> dict[str, int]:
    """Next sizes of the old ReplicaSets, by uid, for those that shrink: unhealthy pods first, then oldest first."""
    minimum = wanted - limits.unavailable
    new_unavailable = (new.wanted - new.available) if new is not None else 0
    new_wanted = new.wanted if new is not None else 0
    removable = sum(item.wanted for item in old) + new_wanted - minimum - new_unavailable
    if removable <= 0:
        return {}
    sizes = {item.uid: item.wanted for item in old}
    ordered = sorted(old, key=lambda item: item.created)
    for item in ordered:
        unhealthy = min(removable, item.wanted - item.available)
        if unhealthy > 0:
            sizes[item.uid] -= unhealthy
            removable -= unhealthy
    available = sum(item.available for item in old) + (new.available if new is not None else 0)
    spare = available - minimum
    for item in ordered:
        cut = min(spare, sizes[item.uid])
        if cut > 0:
            sizes[item.uid] -= cut
            spare -= cut
    return {item.uid: sizes[item.uid] for item in old if sizes[item.uid] != item.wanted}


def proportional_sizes(allowed: int, sets: list[Replicas], shares: dict[str, int]) -> dict[str, int]:
    """Spread a change of scale in the middle of an update over the ReplicaSets in proportion to their sizes.

    `shares` maps a uid to what its size should be by proportion; leftovers go to the largest set.
    """
    to_add = allowed - sum(item.wanted for item in sets)
    growing = to_add > 0
    ordered = sorted(sets, key=lambda item: (item.wanted, item.created), reverse=True)
    sizes: dict[str, int] = {}
    added = 0
    for item in ordered:
        part = 0
        if item.wanted and to_add:
            part = shares[item.uid] - item.wanted
            rest = to_add - added
            part = min(max(part, 0), rest) if growing else max(min(part, 0), rest)
        sizes[item.uid] = item.wanted + part
        added += part
    if ordered and to_add != added:
        largest = ordered[0].uid
        sizes[largest] = max(0, sizes[largest] + to_add - added)
    return sizes
