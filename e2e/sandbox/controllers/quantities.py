"""Kubernetes quantities ("500m", "2Gi") and what pods ask for."""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal

from .client import Obj

_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)")


def parse_quantity(value: str | float) -> Decimal:
    """The number a quantity stands for; raises ValueError for anything else."""
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None or match.group(2) not in _SUFFIXES:
        raise ValueError(f"not a quantity: {value!r}")
    return Decimal(match.group(1)) * _SUFFIXES[match.group(2)]


def container_requests(container: Obj) -> Counter[str]:
    """What a container requests; a limit without a request is a request."""
    resources = container.get("resources") or {}
    wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return Counter({name: parse_quantity(value) for name, value in wanted.items()})


def pod_requests(pod: Obj) -> Counter[str]:
    """What a pod requests of its node: all containers together, or its largest start if that is more."""
    spec = pod["spec"]
    total: Counter[str] = Counter()
    for container in spec.get("containers") or ():
        total.update(container_requests(container))
    sidecars: Counter[str] = Counter()
    largest_start: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars.update(container_requests(container))
        else:
            largest_start |= container_requests(container) + sidecars
    total = (total + sidecars) | largest_start
    total.update({name: parse_quantity(value) for name, value in (spec.get("overhead") or {}).items()})
    total["pods"] += 1
    return total


def quality_of_service(pod: Obj) -> str:
    """Guaranteed, Burstable or BestEffort."""
    containers = [*(pod["spec"].get("containers") or ()), *(pod["spec"].get("initContainers") or ())]
    guaranteed = True
    anything = False
    for container in containers:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            anything = anything or name in limits or name in requests
            limit = limits.get(name)
            if limit is None or parse_quantity(requests.get(name, limit)) != parse_quantity(limit):
                guaranteed = False
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"
