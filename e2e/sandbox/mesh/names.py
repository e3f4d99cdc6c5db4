"""Names as istiod makes them: full host names, cluster names, and durations in Envoy's notation."""

import re
from typing import Any

Json = dict[str, Any]

DOMAIN = "svc.cluster.local"

_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)")


def full_host(host: str, namespace: str) -> str:
    """The host a rule means: a name without a dot is a Service of the rule's own namespace."""
    if "." in host or "*" in host:
        return host
    return f"{host}.{namespace}.{DOMAIN}"


def service_host(name: str, namespace: str) -> str:
    """The full host name of a Service."""
    return f"{name}.{namespace}.{DOMAIN}"


def cluster_name(port: int, subset: str, host: str) -> str:
    """Envoy's name of the pods behind one port of a host, or of one subset of them (empty: all)."""
    return f"outbound|{port}|{subset}|{host}"


def object_key(item: Json) -> tuple[str, str]:
    """Namespace and name of an object."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def seconds(duration: str) -> float:
    """The seconds in a duration such as ``1m30s`` or ``100ms``.

    Raises ValueError when the text is not a duration.
    """
    parts = _DURATION_PART.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise ValueError(f"not a duration: {duration!r}")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def envoy_duration(duration: str) -> str:
    """A duration in the one notation Envoy takes: seconds, with a fraction where there is one."""
    exact = f"{seconds(duration):.9f}".rstrip("0").rstrip(".")
    return f"{exact}s"
