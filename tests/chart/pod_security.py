"""Kubernetes' Pod Security standard `restricted`, as far as a pod's definition can break it."""

from collections.abc import Iterator, Mapping
from typing import Any

ALLOWED_VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"),
}


def violations(spec: Mapping[str, Any]) -> Iterator[str]:
    """What the admission controller would say of a pod's spec."""
    pod = spec.get("securityContext") or {}
    for flag in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(flag):
            yield flag
    for volume in spec.get("volumes") or ():
        kinds = set(volume) - {"name"}
        if not kinds <= ALLOWED_VOLUMES:
            yield f"volume {volume['name']} of type {kinds}"
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        yield from _of_container(container, pod)


def _of_container(container: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[str]:
    name = container["name"]
    own = container.get("securityContext") or {}
    merged = {**pod, **own}
    capabilities = own.get("capabilities") or {}
    if own.get("privileged"):
        yield f"{name}: privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation != false"
    if "ALL" not in capabilities.get("drop", ()):
        yield f"{name}: unrestricted capabilities"
    if set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield f"{name}: capabilities added"
    if merged.get("runAsNonRoot") is not True:
        yield f"{name}: runAsNonRoot != true"
    if merged.get("runAsUser") == 0:
        yield f"{name}: runAsUser=0"
    if (merged.get("seccompProfile") or {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield f"{name}: seccompProfile"
    if any(port.get("hostPort") for port in container.get("ports") or ()):
        yield f"{name}: hostPort"
