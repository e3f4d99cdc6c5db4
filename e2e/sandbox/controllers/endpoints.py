"""The EndpointSlice controller: where each Service's pods are and whether they may be called."""

from __future__ import annotations

import hashlib
from collections import defaultdict

import orjson

from . import pods
from .client import ENDPOINT_SLICES, ApiClient, ApiError, Obj
from .control_loop import ControlLoop
from .informer import Informer, Key, key_of
from .ownership import reference_to
from .selectors import matches

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
MAX_ENDPOINTS = 100

Ports = tuple[tuple[str, int, str, str], ...]


class EndpointSliceController:
    """Writes the EndpointSlices of every Service that has a selector."""

    def __init__(self, client: ApiClient, services: Informer, pod_cache: Informer, slices: Informer) -> None:
        self._client = client
        self._services = services
        self._pods = pod_cache
        self._slices = slices
        self.loop: ControlLoop[Key] = ControlLoop("endpointslice", self.reconcile)
        services.add_handler(lambda old, new: self.loop.queue.add(key_of(new or old or {})))
        pod_cache.add_handler(self._pod_changed)
        slices.add_handler(self._slice_changed)

    def _pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        pod = new or old or {}
        if old is not None and new is not None and _relevant(old) == _relevant(new):
            return
        label_sets = [(item["metadata"].get("labels") or {}) for item in (old, new) if item is not None]
        for service in self._services.in_namespace(pod["metadata"]["namespace"]):
            selector = service["spec"].get("selector")
            if selector and any(matches({"matchLabels": selector}, labels) for labels in label_sets):
                self.loop.queue.add(key_of(service))

    def _slice_changed(self, old: Obj | None, new: Obj | None) -> None:
        labels = (new or old or {})["metadata"].get("labels") or {}
        if labels.get(MANAGED_BY) == MANAGER and labels.get(SERVICE_NAME):
            self.loop.queue.add(((new or old or {})["metadata"]["namespace"], labels[SERVICE_NAME]))

    async def reconcile(self, key: Key) -> None:
        """Write the slices of one Service; those of a Service that is gone are removed by their owner reference."""
        service = self._services.get(*key)
        if service is None or service["metadata"].get("deletionTimestamp"):
            return
        if not service["spec"].get("selector") or service["spec"].get("type") == "ExternalName":
            return
        wanted = {item["metadata"]["name"]: item for item in self._wanted(service)}
        known = {item["metadata"]["name"]: item for item in self._mine(service)}
        for name, item in wanted.items():
            await self._put(item, known.get(name))
        for name, item in known.items():
            if name not in wanted:
                await self._remove(item)

    def _mine(self, service: Obj) -> list[Obj]:
        return [
            item
            for item in self._slices.in_namespace(service["metadata"]["namespace"])
            if (item["metadata"].get("labels") or {}).get(SERVICE_NAME) == service["metadata"]["name"]
            and item["metadata"]["labels"].get(MANAGED_BY) == MANAGER
            and not item["metadata"].get("deletionTimestamp")
        ]

    def _wanted(self, service: Obj) -> list[Obj]:
        by_ports: dict[Ports, list[Obj]] = defaultdict(list)
        for pod in self._pods.in_namespace(service["metadata"]["namespace"]):
            status = pod.get("status") or {}
            selected = matches({"matchLabels": service["spec"]["selector"]}, pod["metadata"].get("labels"))
            if selected and status.get("podIP") and not pods.is_finished(pod):
                by_ports[_ports(service, pod)].append(_endpoint(service, pod))
        if not by_ports:
            by_ports[()] = []
        return [
            _slice(service, ports, number, endpoints[start : start + MAX_ENDPOINTS])
            for ports, endpoints in by_ports.items()
            for number, start in enumerate(range(0, max(len(endpoints), 1), MAX_ENDPOINTS))
        ]

    async def _put(self, wanted: Obj, known: Obj | None) -> None:
        if known is None:
            try:
                self._slices.observe(await self._client.create(ENDPOINT_SLICES, wanted))
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                found = await self._client.get(
                    ENDPOINT_SLICES, wanted["metadata"]["namespace"], wanted["metadata"]["name"]
                )
                await self._put(wanted, found)
            return
        labels = known["metadata"].get("labels") or {}
        same = all(known.get(field) == wanted[field] for field in ("endpoints", "ports")) and all(
            labels.get(name) == value for name, value in wanted["metadata"]["labels"].items()
        )
        if not same:
            meta = {**wanted["metadata"], "resourceVersion": known["metadata"]["resourceVersion"]}
            self._slices.observe(await self._client.replace(ENDPOINT_SLICES, {**wanted, "metadata": meta}))

    async def _remove(self, item: Obj) -> None:
        try:
            await self._client.delete(ENDPOINT_SLICES, item)
        except ApiError as error:
            if not error.not_found:
                raise


def _relevant(pod: Obj) -> tuple[object, ...]:
    meta = pod["metadata"]
    status = pod.get("status") or {}
    return (
        meta.get("labels"),
        bool(meta.get("deletionTimestamp")),
        status.get("podIP"),
        pods.is_ready(pod),
        pods.is_finished(pod),
        pod["spec"].get("nodeName"),
    )


def _ports(service: Obj, pod: Obj) -> Ports:
    found = []
    for port in service["spec"].get("ports") or ():
        number = _target_port(port, pod)
        if number is not None:
            protocol = port.get("protocol", "TCP")
            found.append((port.get("name", ""), number, protocol, port.get("appProtocol", "")))
    return tuple(found)


def _target_port(port: Obj, pod: Obj) -> int | None:
    target = port.get("targetPort", port["port"])
    if isinstance(target, int):
        return target
    for container in pod["spec"]["containers"]:
        for candidate in container.get("ports") or ():
            same_protocol = candidate.get("protocol", "TCP") == port.get("protocol", "TCP")
            if candidate.get("name") == target and same_protocol:
                return int(candidate["containerPort"])
    return None


def _endpoint(service: Obj, pod: Obj) -> Obj:
    meta = pod["metadata"]
    serving = pods.is_ready(pod)
    terminating = pods.is_terminating(pod)
    always = bool(service["spec"].get("publishNotReadyAddresses"))
    endpoint: Obj = {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {
            "ready": always or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "targetRef": {"kind": "Pod", "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
    }
    if pod["spec"].get("nodeName"):
        endpoint["nodeName"] = pod["spec"]["nodeName"]
    return endpoint


def _slice(service: Obj, ports: Ports, number: int, endpoints: list[Obj]) -> Obj:
    meta = service["metadata"]
    digest = hashlib.sha256(orjson.dumps([meta["uid"], ports, number])).hexdigest()[:5]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{meta['name']}-{digest}",
            "namespace": meta["namespace"],
            "labels": {**(meta.get("labels") or {}), SERVICE_NAME: meta["name"], MANAGED_BY: MANAGER},
            "ownerReferences": [reference_to(service)],
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [
            {"name": name, "port": port, "protocol": protocol, **({"appProtocol": app} if app else {})}
            for name, port, protocol, app in ports
        ],
    }
