"""Environment variables of a pod's containers."""

from collections.abc import Mapping
from typing import Any

from slipway.api.versions import Runtime

__all__ = ["environment"]

_FIELDS = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_IP": "status.podIP",
    "NODE_NAME": "spec.nodeName",
}


def environment(runtime: Runtime, more: Mapping[str, str]) -> list[dict[str, Any]]:
    """Our variables, an engine's and then the user's; one of the same name takes the place of ours."""
    variables: dict[str, dict[str, Any]] = {
        name: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _FIELDS.items()
    }
    # Caches of libraries go below HOME, and only /tmp can be written.
    variables["HOME"] = {"name": "HOME", "value": "/tmp"}  # noqa: S108
    variables |= {name: {"name": name, "value": value} for name, value in more.items()}
    for variable in runtime.env:
        source = {"value": variable.value} if variable.value_from is None else {"valueFrom": variable.value_from}
        variables[variable.name] = {"name": variable.name, **source}
    return list(variables.values())
