"""A real Envoy with two local pods behind one Service, as in the recorded scenes."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from e2e.sandbox.mesh.proxy import EnvoyProxy
from e2e.sandbox.mesh.translation import MeshConfig, MeshObjects, translate

SCENES = Path(__file__).parent / "scenes"
HOST = "sentiment.nlp.svc.cluster.local"
REVISIONS = {"10.244.0.1": "v1-aaaa", "10.244.0.2": "v2-bbbb"}
"""The recording's pods; here each is the same address within 127.0.0.0/8."""


@dataclass
class Pod:
    """A local HTTP server in place of a pod: answers its recorded address, or what a test tells it to."""

    name: str
    recorded_address: str
    labels: dict[str, str]
    status: int = 200
    delay: float = 0.0
    requests: list[web.BaseRequest] = field(default_factory=list)
    port: int = 0
    ready: bool = True
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def address(self) -> str:
        return self.recorded_address.replace("10.", "127.", 1)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        async with self.arrived:
            self.requests.append(request)
            self.arrived.notify_all()
        if self.delay:
            await asyncio.sleep(self.delay)
        return web.Response(status=self.status, text=self.recorded_address)

    async def received(self, count: int) -> None:
        """Wait for that many requests, counted from the last reset."""
        async with asyncio.timeout(60), self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= count)

    async def start(self) -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(self.answer), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, self.address, 0).start()
        self.port = runner.addresses[0][1]
        return runner

    def reset(self) -> None:
        self.status, self.delay, self.ready = 200, 0.0, True
        self.requests.clear()


@dataclass
class Bench:
    """The proxy under test with its pods; `show` puts objects in effect, `send` sends requests."""

    proxy: EnvoyProxy
    pods: list[Pod]
    session: aiohttp.ClientSession

    def translate(self, objects: list[dict[str, Any]], pods: list[Pod] | None = None) -> MeshConfig:
        return translate(mesh_objects(objects, self.pods if pods is None else pods))

    async def show(self, objects: list[dict[str, Any]], pods: list[Pod] | None = None) -> None:
        await self.proxy.apply(self.translate(objects, pods))

    async def send(
        self, count: int = 1, host: str = HOST, path: str = "/", method: str = "GET", **headers: str
    ) -> Counter[str]:
        answers: Counter[str] = Counter()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for _ in range(count):
            async with self.session.request(method, self.proxy.url + path, headers={"Host": host, **named}) as response:
                text = await response.text()
                answers[f"200 {text}" if response.status == 200 else str(response.status)] += 1
        return answers


def mesh_objects(objects: list[dict[str, Any]], pods: list[Pod]) -> MeshObjects:
    def of_kind(kind: str) -> tuple[dict[str, Any], ...]:
        return tuple(item for item in objects if item["kind"] == kind)

    return MeshObjects(
        virtual_services=of_kind("VirtualService"),
        destination_rules=of_kind("DestinationRule"),
        services=(service("sentiment", {"http": 80, "grpc": 9000}), *of_kind("Service")),
        endpoint_slices=tuple(endpoint_slice("sentiment", pod) for pod in pods),
        pods=tuple(
            {"kind": "Pod", "metadata": {"name": pod.name, "namespace": "nlp", "labels": pod.labels}} for pod in pods
        ),
    )


def service(name: str, ports: dict[str, int]) -> dict[str, Any]:
    listed = [{"name": port, "port": number} for port, number in ports.items()]
    return {"kind": "Service", "metadata": {"name": name, "namespace": "nlp"}, "spec": {"ports": listed}}


def endpoint_slice(owner: str, pod: Pod) -> dict[str, Any]:
    return {
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{owner}-{pod.name}",
            "namespace": "nlp",
            "labels": {"kubernetes.io/service-name": owner},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": pod.port}, {"name": "grpc", "port": pod.port}],
        "endpoints": [
            {
                "addresses": [pod.address],
                "conditions": {"ready": pod.ready},
                "targetRef": {"kind": "Pod", "name": pod.name, "namespace": "nlp"},
            }
        ],
    }


def scene(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((SCENES / f"{name}.json").read_text())
    return content
