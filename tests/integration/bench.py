"""What the integration tests work with: a namespace, ModelDeployments in it, load on them, and things to wait for."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np

from e2e.demo.load import Answer, LoadGenerator
from e2e.demo.timeline import Timeline
from e2e.sandbox.binaries import kubectl_path
from e2e.sandbox.cluster import Cluster
from e2e.sandbox.controllers.client import APPLY_PATCH, MERGE_PATCH, ApiClient, ApiError, Resource
from tests.integration.models import SCANS, Model

MODEL_DEPLOYMENTS = Resource("slipway.dev", "v1alpha1", "modeldeployments", "ModelDeployment")
VIRTUAL_SERVICES = Resource("networking.istio.io", "v1", "virtualservices", "VirtualService")
DESTINATION_RULES = Resource("networking.istio.io", "v1", "destinationrules", "DestinationRule")
CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")

PATIENCE = 180.0
"""Seconds; a busy machine starts a Python process with torch in ten of them, a slow one in a minute."""
POLL = 0.1
GONE = 410

Status = dict[str, Any]


def _merged(under: Any, over: Any) -> Any:
    """Objects merged field by field, everything else replaced."""
    if isinstance(under, dict) and isinstance(over, dict):
        return under | {name: _merged(under.get(name), value) for name, value in over.items()}
    return over


@dataclass
class Bench:
    """One namespace and what can be done in it."""

    cluster: Cluster
    client: ApiClient
    namespace: str
    models: dict[str, Model]

    def version(self, name: str, model: str = "good-1", **more: Any) -> dict[str, Any]:
        """An entry of spec.versions."""
        artefact = self.models[model]
        return {
            "name": name,
            "uri": artefact.uri,
            "sha256": artefact.sha256,
            "inputs": [{"name": "pixels", "datatype": "FP32", "shape": [-1, 64]}],
            "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, 10]}],
        } | more

    def declare(self, name: str, *versions: dict[str, Any], serve: str = "", **spec: Any) -> dict[str, Any]:
        """A ModelDeployment whose rollouts take seconds and are not held up by evidence; ``spec`` is merged into it."""
        plain = {
            "versions": list(versions or [self.version("v1")]),
            "runtime": {"resources": {"requests": {"cpu": "100m"}}, "terminationGracePeriod": "15s"},
            "traffic": {"settle": "1s"},
            "rollout": {
                "steps": [{"weight": 50, "hold": "1s"}],
                "analysis": {"interval": "2s", "checks": []},
                "keepPrevious": "2s",
                "progressDeadline": "2m",
            },
            "autoscaling": {"minReplicas": 1, "maxReplicas": 1},
        }
        if serve:
            plain["serve"] = serve
        metadata = {"name": name, "namespace": self.namespace}
        return {
            "apiVersion": MODEL_DEPLOYMENTS.api_version,
            "kind": MODEL_DEPLOYMENTS.kind,
            "metadata": metadata,
            "spec": _merged(plain, spec),
        }

    async def apply(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Server-side apply by a user."""
        path = MODEL_DEPLOYMENTS.path_of(obj)
        params = {"fieldManager": "user", "force": "true"}
        return await self.client.request("PATCH", path, obj, params=params, content_type=APPLY_PATCH)

    async def patch(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        """Merge patch of the spec."""
        path = MODEL_DEPLOYMENTS.path(self.namespace, name)
        return await self.client.request("PATCH", path, {"spec": spec}, content_type=MERGE_PATCH)

    async def get(self, resource: Resource, name: str) -> dict[str, Any]:
        """One object of the namespace; raises ApiError."""
        return await self.client.get(resource, self.namespace, name)

    async def items(self, resource: Resource) -> list[dict[str, Any]]:
        """All objects of a kind in the namespace."""
        return list((await self.client.list_all(resource, namespace=self.namespace))["items"])

    async def delete(self, resource: Resource, name: str) -> None:
        """Delete an object, its dependants in the background."""
        await self.client.delete(resource, await self.get(resource, name))

    async def states(self, name: str) -> AsyncGenerator[dict[str, Any], None]:
        """A ModelDeployment as it is, then every state that is stored, however short it lasts; ApiError at its end."""
        while True:
            obj = await self.get(MODEL_DEPLOYMENTS, name)
            yield obj
            version, selector = obj["metadata"]["resourceVersion"], f"metadata.name={name}"
            try:
                async for event in self.client.watch(
                    MODEL_DEPLOYMENTS, version, namespace=self.namespace, field_selector=selector
                ):
                    if event["type"] in ("ADDED", "MODIFIED"):
                        yield event["object"]
                    elif event["type"] == "DELETED":
                        break
            except ApiError as error:
                if error.code != GONE:
                    raise
            except aiohttp.ClientError:
                await asyncio.sleep(POLL)

    async def status(self, name: str) -> Status:
        """The status; empty before there is one."""
        return dict((await self.get(MODEL_DEPLOYMENTS, name)).get("status") or {})

    async def act(self, name: str, verb: str, **more: str) -> dict[str, Any]:
        """Write status.action as a pipeline does and wait for the operator's answer."""
        identity = uuid.uuid4().hex
        action = {"id": identity, "verb": verb, "by": "tests"} | more
        path = MODEL_DEPLOYMENTS.path(self.namespace, name, "status")
        await self.client.request("PATCH", path, {"status": {"action": action}}, content_type=MERGE_PATCH)
        seen = await self.until(name, f"an answer to {verb}", lambda s: s.get("lastAction", {}).get("id") == identity)
        return dict(seen["lastAction"])

    async def until(self, name: str, what: str, holds: Callable[[Status], Any], seconds: float = PATIENCE) -> Status:
        """Wait for a status as wanted, be it for a moment; the failure tells what it was in the end."""
        status: Status = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), contextlib.aclosing(self.states(name)) as states:
                async for obj in states:
                    status = dict(obj.get("status") or {})
                    if holds(status):
                        return status
        raise AssertionError(f"{what}: not within {seconds:g} s; status: {json.dumps(status, indent=1)}")

    async def eventually(self, what: str, read: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """Wait until ``read`` gives something true."""
        found: Any = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        found = await read()
                    except ApiError as error:
                        found = None
                        if not error.not_found:
                            raise
                    if found:
                        return found
                    await asyncio.sleep(POLL)
        raise AssertionError(f"{what}: not within {seconds:g} s; last: {found!r}")

    async def serving(self, name: str, version: str = "v1", seconds: float = PATIENCE) -> Status:
        """Wait until a version serves all traffic and the object is at rest."""
        return await self.until(
            name, f"{version} serves", lambda s: (s.get("phase"), s.get("stable")) == ("Ready", version), seconds
        )

    async def finished(self, name: str, version: str, outcome: str, seconds: float = 240.0) -> Status:
        """Wait for the end of a version's rollout; the outcome must be this one."""

        def over(status: Status) -> bool:
            rollout = status.get("rollout") or {}
            return rollout.get("to") == version and rollout.get("stage") == "Finished"

        status = await self.until(name, f"{outcome} of {version}", over, seconds)
        assert status["rollout"]["outcome"] == outcome, status["rollout"]
        return status

    def host(self, name: str) -> str:
        """The in-mesh name of the Service."""
        return f"{name}.{self.namespace}.svc.cluster.local"

    async def infer(self, name: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """One request through the gateway: HTTP status and the version that answered."""
        body = {"inputs": [{"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [0.1] * 64}]}
        url = f"{self.cluster.gateway_url}/v2/models/{name}/infer"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=body, headers={"Host": self.host(name)} | (headers or {})) as response,
        ):
            return response.status, response.headers.get("x-model-version", "")

    @contextlib.asynccontextmanager
    async def load(self, name: str, rate: float = 20.0) -> AsyncIterator[list[Answer]]:
        """Requests at a constant rate through the gateway; the list grows as they are answered."""
        answers: list[Answer] = []
        labels = np.zeros(len(SCANS), dtype=np.int64)
        generator = LoadGenerator(
            self.cluster.gateway_url, self.host(name), name, lambda _: rate, SCANS, labels, answers
        )
        stop = asyncio.Event()
        sending = asyncio.create_task(generator.run(stop))
        try:
            yield answers
        finally:
            stop.set()
            await sending
        assert generator.sent == len(answers)

    @contextlib.asynccontextmanager
    async def timeline(self, name: str) -> AsyncIterator[Timeline]:
        """All states of the object from the beginning of the block to its end."""
        timeline = Timeline(self.client, MODEL_DEPLOYMENTS.path(self.namespace, name))
        newest = 0

        async def follow() -> None:
            nonlocal newest
            async with contextlib.aclosing(self.states(name)) as states:
                async for obj in states:
                    newest = int(obj["metadata"]["resourceVersion"])
                    await timeline.see(obj)

        async def seen(version: int) -> None:
            async with asyncio.timeout(PATIENCE), timeline.changed:
                await timeline.changed.wait_for(lambda: newest >= version)

        following = asyncio.create_task(follow())
        try:
            await seen(1)
            yield timeline
            await seen(int((await self.get(MODEL_DEPLOYMENTS, name))["metadata"]["resourceVersion"]))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def kubectl(self, *arguments: str, stdin: str = "") -> tuple[int, str]:
        """The real kubectl in this namespace: its exit status and everything that it printed."""
        process = await self.start_kubectl(*arguments)
        output, _ = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def start_kubectl(self, *arguments: str) -> asyncio.subprocess.Process:
        """The same, for what goes on until it is killed."""
        return await asyncio.create_subprocess_exec(
            str(kubectl_path()),
            *("--kubeconfig", str(self.cluster.kubeconfig), "-n", self.namespace, *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )


def failures(answers: list[Answer]) -> list[Answer]:
    """Requests that were not answered with 200."""
    return [answer for answer in answers if answer.code != 200]


def condition(status: Status, kind: str) -> dict[str, Any]:
    """One condition; empty where it is absent."""
    return next((dict(item) for item in status.get("conditions", ()) if item["type"] == kind), {})
