"""What stands in the cells of built-in kinds' tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from .ages import age
from .kinds import dig
from .schema import JsonDict

NONE = "<none>"


def at(*path: str, default: Any = NONE) -> Callable[[JsonDict, datetime], Any]:
    """A reader of the value at a path; `default` where there is none."""

    def cell(obj: JsonDict, _: datetime) -> Any:
        found = dig(obj, *path)
        return default if found in (None, "") else found

    return cell


def age_of(obj: JsonDict, now: datetime) -> str:
    """How long ago an object was made."""
    return age(obj["metadata"].get("creationTimestamp"), now)


def listed(values: list[str]) -> str:
    """Values with commas, or `<none>`."""
    return ",".join(values) if values else NONE


def containers(obj: JsonDict, key: str, *path: str) -> str:
    """One field of all containers at a path."""
    return listed([container.get(key, "") for container in dig(obj, *path) or ()])


def ready(obj: JsonDict, _: datetime) -> str:
    """Ready replicas of those wanted."""
    return f"{dig(obj, 'status', 'readyReplicas') or 0}/{dig(obj, 'spec', 'replicas') or 0}"


def pod_ready(pod: JsonDict, _: datetime) -> str:
    """Ready containers of all."""
    statuses = dig(pod, "status", "containerStatuses") or []
    return f"{sum(bool(status.get('ready')) for status in statuses)}/{len(dig(pod, 'spec', 'containers') or [])}"


def pod_status(pod: JsonDict, _: datetime) -> str:
    """A pod's state in one word: its phase, or why a container waits or ended."""
    status = pod.get("status", {})
    reason = status.get("reason") or status.get("phase", "")
    for container in reversed(status.get("containerStatuses") or []):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            signal = ended.get("signal")
            reason = ended.get("reason") or (f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}")
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(reason)


def pod_restarts(pod: JsonDict, now: datetime) -> str:
    """How often containers restarted, and when last."""
    statuses = dig(pod, "status", "containerStatuses") or []
    count = sum(status.get("restartCount", 0) for status in statuses)
    ends = [dig(status, "lastState", "terminated", "finishedAt") for status in statuses]
    last = max((end for end in ends if end), default=None)
    return f"{count} ({age(last, now)} ago)" if count and last else str(count)


def service_ports(service: JsonDict, _: datetime) -> str:
    """Ports as port[:nodePort]/protocol."""
    parts = []
    for port in dig(service, "spec", "ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        parts.append(f"{port.get('port')}{node}/{port.get('protocol')}")
    return listed(parts)


def external_address(service: JsonDict, _: datetime) -> str:
    """Addresses from outside."""
    ingress = dig(service, "status", "loadBalancer", "ingress") or []
    found = [entry.get("ip") or entry.get("hostname", "") for entry in ingress] + (
        dig(service, "spec", "externalIPs") or []
    )
    if not found and dig(service, "spec", "type") == "LoadBalancer":
        return "<pending>"
    return listed(found)


def node_status(node: JsonDict, _: datetime) -> str:
    """Ready or not, and whether pods may be placed."""
    ready = next((c for c in dig(node, "status", "conditions") or () if c.get("type") == "Ready"), None)
    text = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return text + (",SchedulingDisabled" if dig(node, "spec", "unschedulable") else "")


def budget_amount(key: str) -> Callable[[JsonDict, datetime], Any]:
    """A reader of one bound of a disruption budget."""

    def cell(budget: JsonDict, _: datetime) -> str:
        found = dig(budget, "spec", key)
        return "N/A" if found is None else str(found)

    return cell


def event_seen(event: JsonDict, now: datetime) -> str:
    """When an event was last seen."""
    return age(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp"), now)


def slice_ports(endpoint_slice: JsonDict, _: datetime) -> str:
    """The port numbers of a slice."""
    return listed([str(port.get("port")) for port in endpoint_slice.get("ports") or ()])


def slice_addresses(endpoint_slice: JsonDict, _: datetime) -> str:
    """The addresses of a slice."""
    return listed([address for endpoint in endpoint_slice.get("endpoints") or () for address in endpoint["addresses"]])


def reference(autoscaler: JsonDict, _: datetime) -> str:
    """What an autoscaler scales."""
    target = dig(autoscaler, "spec", "scaleTargetRef") or {}
    return f"{target.get('kind')}/{target.get('name')}"


def data_count(*keys: str) -> Callable[[JsonDict, datetime], int]:
    """A reader of how many entries some fields have."""
    return lambda obj, _: sum(len(obj.get(key) or ()) for key in keys)


def role_reference(binding: JsonDict, _: datetime) -> str:
    """The role a binding grants."""
    return f"{binding['roleRef']['kind']}/{binding['roleRef']['name']}"


def metric_targets(autoscaler: JsonDict, _: datetime) -> str:
    """Current and wanted values of an autoscaler's metrics."""
    current = dig(autoscaler, "status", "currentMetrics") or []
    parts = []
    for index, metric in enumerate(dig(autoscaler, "spec", "metrics") or ()):
        source: JsonDict = next((value for key, value in metric.items() if key != "type"), {})
        found: JsonDict = next(
            (v for k, v in (current[index] if index < len(current) else {}).items() if k != "type"), {}
        )
        parts.append(_metric_target(source, found))
    return listed(parts).replace(",", ", ")


def _metric_target(source: JsonDict, current: JsonDict) -> str:
    name = source.get("name") or dig(source, "metric", "name") or ""
    target, value = source.get("target") or {}, current.get("current") or {}
    for key, unit in (("averageUtilization", "%"), ("averageValue", ""), ("value", "")):
        if target.get(key) is not None:
            now = f"{value[key]}{unit}" if value.get(key) is not None else "<unknown>"
            average = " (avg)" if key == "averageValue" and "metric" in source else ""
            prefix = f"{name}: " if key == "averageUtilization" or "metric" not in source else ""
            return f"{prefix}{now}/{target[key]}{unit}{average}"
    return "<unknown>"


def subjects(kind: str) -> Callable[[JsonDict, datetime], str]:
    """A reader of a binding's subjects of one kind."""

    def cell(binding: JsonDict, _: datetime) -> str:
        found = [subject for subject in binding.get("subjects") or () if subject.get("kind") == kind]
        names = [f"{s.get('namespace')}/{s['name']}" if kind == "ServiceAccount" else s["name"] for s in found]
        return ", ".join(names)

    return cell


def controller(obj: JsonDict, _: datetime) -> str:
    """The controlling owner."""
    owner = next((entry for entry in obj["metadata"].get("ownerReferences") or () if entry.get("controller")), None)
    if owner is None:
        return NONE
    group = owner["apiVersion"].rpartition("/")[0]
    return f"{owner['kind'].lower()}{'.' + group if group else ''}/{owner['name']}"


def endpoint_addresses(endpoints: JsonDict, _: datetime) -> str:
    """Addresses with their ports."""
    found = []
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            found += [f"{address['ip']}:{port['port']}" for address in subset.get("addresses") or ()]
    return listed(found)


def node_address(kind: str) -> Callable[[JsonDict, datetime], str]:
    """A reader of a node's address of one kind."""

    def cell(node: JsonDict, _: datetime) -> str:
        addresses = dig(node, "status", "addresses") or ()
        return next((entry["address"] for entry in addresses if entry.get("type") == kind), NONE)

    return cell


def event_source(event: JsonDict, _: datetime) -> str:
    """Who told of an event, and from which host."""
    source = event.get("source") or {}
    parts = [source.get("component") or event.get("reportingComponent") or "", source.get("host") or ""]
    return ", ".join(part for part in parts if part)


def event_first_seen(event: JsonDict, now: datetime) -> str:
    """When an event was first seen."""
    return age(event.get("firstTimestamp") or event.get("eventTime"), now)
