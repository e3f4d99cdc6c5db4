"""Services, Endpoints and EndpointSlices: the rules of each kind, and the addresses Services get."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

from .failures import DUPLICATE, INVALID, NOT_SUPPORTED, REQUIRED, Cause, invalid
from .kinds import Rules
from .schema import JsonDict
from .values import shown

SERVICE_NETWORK = ipaddress.IPv4Network("10.96.0.0/16")
_NODE_PORTS = range(30000, 32768)
_PORTS = range(1, 65536)
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


class ServiceAddresses:
    """Hands out cluster addresses and node ports. What is in use is asked of `services`, so nothing leaks."""

    def __init__(self, services: Callable[[], list[JsonDict]]) -> None:
        self._services = services
        self._next = 10

    def address(self) -> str:
        """A cluster address no Service has."""
        used = self.used()
        for _ in range(SERVICE_NETWORK.num_addresses):
            self._next = self._next % (SERVICE_NETWORK.num_addresses - 2) + 1
            found = str(SERVICE_NETWORK[self._next])
            if found not in used:
                return found
        raise RuntimeError("no cluster address is left")

    def used(self) -> set[str]:
        """The addresses Services have."""
        return {service["spec"].get("clusterIP") for service in self._services()}

    def refuse(self, service: JsonDict) -> None:
        """Raise ApiError 422 for an address asked for that is outside the network or taken."""
        asked = service["spec"].get("clusterIP")
        if not asked or asked == "None" or not _is_address(asked):
            return
        why = ""
        if ipaddress.ip_address(asked) not in SERVICE_NETWORK:
            why = f"the provided IP ({asked}) is not in the valid range. The range of valid IPs is {SERVICE_NETWORK}"
        elif asked in self.used():
            why = "provided IP is already allocated"
        if why:
            words = f"Invalid value: {shown([asked])}: failed to allocate IP {asked}: {why}"
            name = service["metadata"].get("name", "")
            raise invalid("", "Service", name, [Cause(INVALID, "spec.clusterIPs", words)])

    def node_port(self) -> int:
        """A node port no Service has."""
        used = {port.get("nodePort") for service in self._services() for port in service["spec"].get("ports") or ()}
        return next(port for port in _NODE_PORTS if port not in used)


def _default_service(service: JsonDict) -> None:
    spec = service["spec"]
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": 10800}})


def _allocate(service: JsonDict, addresses: ServiceAddresses) -> None:
    spec = service["spec"]
    if spec["type"] == "ExternalName":
        return
    if not spec.get("clusterIP"):
        spec["clusterIP"] = (spec.get("clusterIPs") or [addresses.address()])[0]
    spec["clusterIPs"] = [spec["clusterIP"]]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        for port in spec.get("ports") or ():
            if not port.get("nodePort"):
                port["nodePort"] = addresses.node_port()


def _check_service(service: JsonDict) -> list[Cause]:
    spec, causes = service["spec"], []
    kind = spec.get("type")
    if kind not in _SERVICE_TYPES:
        listed = ", ".join(f'"{name}"' for name in _SERVICE_TYPES)
        causes.append(
            Cause(NOT_SUPPORTED, "spec.type", f"Unsupported value: {shown(kind)}: supported values: {listed}")
        )
    headless = spec.get("clusterIP") == "None"
    if not spec.get("ports") and not headless and kind != "ExternalName":
        causes.append(Cause(REQUIRED, "spec.ports", "Required value"))
    causes += _check_ports(spec.get("ports") or [])
    address = spec.get("clusterIP")
    if address and not headless and not _is_address(address):
        causes.append(
            Cause(INVALID, "spec.clusterIPs[0]", f"Invalid value: {shown(address)}: must be a valid IP address")
        )
    if kind == "ExternalName" and not spec.get("externalName"):
        causes.append(Cause(REQUIRED, "spec.externalName", "Required value"))
    if spec.get("sessionAffinity") not in ("ClientIP", "None"):
        words = f'Unsupported value: {shown(spec.get("sessionAffinity"))}: supported values: "ClientIP", "None"'
        causes.append(Cause(NOT_SUPPORTED, "spec.sessionAffinity", words))
    return causes


def _check_ports(ports: list[JsonDict]) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    numbers: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        where, name, number = f"spec.ports[{index}]", port.get("name"), port.get("port", 0)
        if len(ports) > 1 and not name:
            causes.append(Cause(REQUIRED, f"{where}.name", "Required value"))
        if name and name in names:
            causes.append(Cause(DUPLICATE, f"{where}.name", f"Duplicate value: {shown(name)}"))
        names.add(name or "")
        if number not in _PORTS:
            causes.append(
                Cause(INVALID, f"{where}.port", f"Invalid value: {number}: must be between 1 and 65535, inclusive")
            )
        target = port.get("targetPort")
        if isinstance(target, int) and target not in _PORTS:
            words = f"Invalid value: {target}: must be between 1 and 65535, inclusive"
            causes.append(Cause(INVALID, f"{where}.targetPort", words))
        if (number, port.get("protocol")) in numbers:
            words = f"Duplicate value: {shown({'port': number, 'protocol': port.get('protocol')})}"
            causes.append(Cause(DUPLICATE, where, words))
        numbers.add((number, port.get("protocol")))
    return causes


def _check_service_update(new: JsonDict, old: JsonDict) -> list[Cause]:
    before, after = old["spec"].get("clusterIP"), new["spec"].get("clusterIP")
    if old["spec"].get("type") == "ExternalName" or new["spec"].get("type") == "ExternalName" or before == after:
        return []
    return [Cause(INVALID, "spec.clusterIPs[0]", f"Invalid value: {shown([after])}: may not change once set")]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def service_rules(addresses: ServiceAddresses) -> Rules:
    """The rules of Services, with where their addresses come from."""

    def prepare(service: JsonDict) -> None:
        if service["spec"]["type"] != "ExternalName":
            addresses.refuse(service)
        _allocate(service, addresses)

    def prepare_update(new: JsonDict, old: JsonDict) -> None:
        if new["spec"]["type"] != "ExternalName" and old["spec"].get("clusterIP"):
            for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                if not new["spec"].get(key) and old["spec"].get(key):
                    new["spec"][key] = old["spec"][key]
        _keep_node_ports(new["spec"], old["spec"])
        _allocate(new, addresses)

    return Rules(
        defaults=_default_service,
        prepare=prepare,
        prepare_update=prepare_update,
        check=_check_service,
        check_update=_check_service_update,
        name_pattern="label1035",
        fields=("spec.clusterIP", "spec.type"),
        create_on_update=True,
        returns_deleted=True,
    )


def _keep_node_ports(new: JsonDict, old: JsonDict) -> None:
    if new["type"] not in ("NodePort", "LoadBalancer"):
        return
    known = {(port.get("port"), port.get("protocol")): port.get("nodePort") for port in old.get("ports") or ()}
    for port in new.get("ports") or ():
        found = known.get((port.get("port"), port.get("protocol")))
        if found and not port.get("nodePort"):
            port["nodePort"] = found


def _default_slice(endpoint_slice: JsonDict) -> None:
    for port in endpoint_slice.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _start_slice(endpoint_slice: JsonDict) -> None:
    endpoint_slice["metadata"]["generation"] = 1


def _slice_changed(new: JsonDict, old: JsonDict) -> bool:
    keys = ("endpoints", "ports", "addressType")
    return any(new.get(key) != old.get(key) for key in keys) or any(
        new["metadata"].get(key) != old["metadata"].get(key) for key in ("labels", "annotations", "ownerReferences")
    )


def slice_rules(allow_loopback: bool) -> Rules:
    """The rules of EndpointSlices. A real server refuses loopback addresses; `allow_loopback` lets them pass."""

    def check(endpoint_slice: JsonDict) -> list[Cause]:
        causes = []
        kind = endpoint_slice.get("addressType")
        if not kind:
            causes.append(Cause(REQUIRED, "addressType", "Required value"))
        elif kind not in ("IPv4", "IPv6", "FQDN"):
            words = f'Unsupported value: {shown(kind)}: supported values: "FQDN", "IPv4", "IPv6"'
            causes.append(Cause(NOT_SUPPORTED, "addressType", words))
        for index, endpoint in enumerate(endpoint_slice.get("endpoints") or ()):
            causes += _check_endpoint(endpoint, f"endpoints[{index}]", kind or "", allow_loopback)
        return causes

    def check_update(new: JsonDict, old: JsonDict) -> list[Cause]:
        if new.get("addressType") == old.get("addressType"):
            return []
        return [Cause(INVALID, "addressType", f"Invalid value: {shown(new.get('addressType'))}: field is immutable")]

    return Rules(
        defaults=_default_slice, prepare=_start_slice, check=check, check_update=check_update, counts=_slice_changed
    )


def _check_endpoint(endpoint: JsonDict, path: str, kind: str, allow_loopback: bool) -> list[Cause]:
    addresses, causes = endpoint.get("addresses") or [], []
    if not addresses:
        causes.append(Cause(REQUIRED, f"{path}.addresses", "Required value: must contain at least 1 address"))
    for index, text in enumerate(addresses):
        where = f"{path}.addresses[{index}]"
        if kind == "FQDN":
            continue
        if not _is_address(text) or ipaddress.ip_address(text).version != (6 if kind == "IPv6" else 4):
            causes.append(Cause(INVALID, where, f"Invalid value: {shown(text)}: must be a valid {kind} address"))
        elif ipaddress.ip_address(text).is_loopback and not allow_loopback:
            words = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
            causes.append(Cause(INVALID, where, f"Invalid value: {shown(text)}: {words}"))
    return causes


def _default_endpoints(endpoints: JsonDict) -> None:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            port.setdefault("protocol", "TCP")


ENDPOINTS = Rules(defaults=_default_endpoints, create_on_update=True)
