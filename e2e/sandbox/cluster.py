"""A cluster for tests, demos and trials: the sandbox, a real control plane, or one that exists already."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
import yaml

from .children import REPOSITORY_ROOT, Child, ChildFailedError
from .control_plane import ApiEndpoint, resume_sandbox_api, start_envtest, start_sandbox_api
from .controllers.client import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Access, ApiClient, ApiError, Obj
from .controllers.pods import condition
from .node.addresses import LoopbackRange
from .node.namespace import POD_RANGE, is_inside
from .node.pod_context import SIDECAR_FILE
from .tokens import ADMIN, TOKENS_FILE, User, write_kubeconfig

NAMESPACE_NAMES = ("default", "kube-system", "kube-public", "istio-system")
CRD_FOLDERS = ("e2e/sandbox/mesh/crds", "crds")
STATE_FILE = "sandbox.json"
ESTABLISHED_SECONDS = 60.0


@dataclass
class Cluster:
    """Where everything of a running cluster is. Strings are empty for what the cluster does not have."""

    kind: str
    """`sandbox`, `envtest` (a real control plane with the sandbox's nodes and mesh) or `attached`."""
    kubeconfig: Path
    api_url: str
    ca_file: str
    admin_token: str
    gateway_url: str = ""
    prometheus_url: str = ""
    dcgm_url: str = ""
    mesh_admin_url: str = ""
    data_dir: Path | None = None
    control_url: str = ""
    user_tokens: Mapping[str, str] = field(default_factory=dict)

    @property
    def access(self) -> Access:
        """Access as the administrator."""
        return Access.from_kubeconfig(self.kubeconfig)

    def client(self, field_manager: str = "sandbox") -> ApiClient:
        """A client with the administrator's rights; close it after use."""
        return ApiClient(self.access, field_manager)

    async def set_propagation_delay(self, seconds: float | None) -> None:
        """How long Envoy lags behind the API server; None stops it from learning anything."""
        await self._patch(f"{self.control_url}/settings", {"propagation_delay": seconds})

    async def set_node_settings(self, **changes: float) -> None:
        """Change `start_delay`, `restart_backoff` or `restart_backoff_cap` of the node agent, in seconds."""
        async with self.client() as client:
            nodes = (await client.request("GET", "/api/v1/nodes"))["items"]
        status = next(node["status"] for node in nodes if node["metadata"]["name"].startswith("sandbox-node-"))
        address = next(entry["address"] for entry in status["addresses"] if entry["type"] == "InternalIP")
        port = status["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        scheme = "https" if self.kind == "envtest" else "http"
        await self._patch(f"{scheme}://{address}:{port}/sandbox/settings", dict(changes))

    @staticmethod
    async def _patch(url: str, changes: dict[str, Any]) -> None:
        async with aiohttp.ClientSession() as session, session.patch(url, json=changes, ssl=False) as response:
            if response.status != 200:
                raise ValueError(await response.text())


class Sandbox(Cluster):
    """A cluster on this machine. `await start()`, use the attributes, `await stop()`; or `async with`."""

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        gpus: int = 8,
        nodes: int = 1,
        scrape_interval: float = 1.0,
        propagation_delay: float = 0.1,
        pod_range: str | None = None,
        start_delay: float = 0.0,
        restart_backoff: float = 2.0,
        restart_backoff_cap: float = 60.0,
        images: Path | None = None,
        users: tuple[User, ...] = (),
        mesh: bool = True,
        telemetry: bool = True,
        gateway_port: int = 0,
        assets: Path | None = None,
    ) -> None:
        self._own_folder = data_dir is None
        folder = data_dir or Path(tempfile.mkdtemp(prefix="slipway-sandbox-"))
        kubeconfig = folder / "kubeconfig"
        kind = "envtest" if assets else "sandbox"
        super().__init__(kind, kubeconfig, "", "", secrets.token_hex(16), data_dir=folder)
        self._folder = folder
        self._assets = assets
        self._users = users
        self._mesh = mesh
        self._node_options = {
            "gpus": gpus,
            "nodes": nodes,
            "start-delay": start_delay,
            "restart-backoff": restart_backoff,
            "restart-backoff-cap": restart_backoff_cap,
            **({"images": images} if images else {}),
        }
        self._plane_options = {
            "listen-port": gateway_port,
            "propagation-delay": propagation_delay,
            "scrape-interval": scrape_interval,
        }
        self._telemetry = telemetry
        self._pod_range = pod_range
        self._range: LoopbackRange | None = None
        self._children: list[Child] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    async def start(self) -> Self:
        """Start everything and wait until it is ready; raises ChildFailedError with the log of what failed."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._choose_range()
        users = (User(ADMIN, ("system:masters",), self.admin_token), *self._users)
        self.user_tokens = {user.name: user.token for user in users}
        begin = start_envtest if self._assets else start_sandbox_api
        endpoint: ApiEndpoint = await begin(self._folder, users, self._children, self._assets)
        self.api_url, self.ca_file = endpoint.url, str(endpoint.ca_file)
        write_kubeconfig(self.kubeconfig, endpoint.url, endpoint.ca_file, users[0])
        async with self.client() as client:
            await install(client)
        await asyncio.gather(self._start_controllers(), self._start_node(), self._start_plane())
        (self._folder / STATE_FILE).write_text(json.dumps(self.description(), indent=2))

    def _choose_range(self) -> None:
        if self._pod_range is not None:
            return
        if self._assets is None:
            self._range = LoopbackRange()
            self._pod_range = self._range.cidr
            return
        if not is_inside():
            raise RuntimeError(
                "a real API server refuses pods on 127.0.0.0/8: run everything in a network namespace with "
                "`python -m e2e.sandbox.node.namespace COMMAND ...` (as root)"
            )
        self._pod_range = POD_RANGE

    async def _module(self, name: str, *options: str) -> dict[str, Any]:
        argv = (sys.executable, "-m", f"e2e.sandbox.{name}", "--kubeconfig", str(self.kubeconfig), *options)
        child = await Child.start(name, argv, self._folder / "logs")
        self._children.append(child)
        return await child.ready_line()

    async def _start_controllers(self) -> None:
        await self._module("controllers")

    async def _start_node(self) -> None:
        options = {
            **self._node_options,
            "pod-range": self._pod_range,
            "data-dir": self._folder / "node",
            "tokens": self._folder / TOKENS_FILE,
        }
        flags = ["--tls"] if self._assets else []
        await self._module("node", *_flags(options), *flags)

    async def _start_plane(self) -> None:
        if not self._mesh:
            return
        options = {**self._plane_options, "work-dir": self._folder / "dataplane"}
        flags = [] if self._telemetry else ["--no-telemetry"]
        answer = await self._module("dataplane", *_flags(options), *flags)
        self.gateway_url = answer["gateway_url"]
        (self._folder / "node").mkdir(exist_ok=True)
        (self._folder / "node" / SIDECAR_FILE).write_text(self.gateway_url)
        self.mesh_admin_url = answer["mesh_admin_url"]
        self.control_url = answer["control_url"]
        self.prometheus_url = answer["prometheus_url"]
        self.dcgm_url = answer["dcgm_url"]

    async def stop(self) -> None:
        """End everything, last started first; a data folder made by `Sandbox` itself is removed."""
        (self._folder / STATE_FILE).unlink(missing_ok=True)
        children, self._children = self._children[::-1], []
        # The API server goes last, so that nobody's end is delayed by a missing server.
        await asyncio.gather(*(child.stop() for child in children if child.name not in ("apiserver", "etcd")))
        for child in children:
            if child.name in ("apiserver", "etcd"):
                await child.stop()
        if self._range is not None:
            self._range.release()
            self._range = None
            self._pod_range = None
        if self._own_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    @staticmethod
    def attach(kubeconfig: Path) -> Cluster:
        """A cluster that exists already; see `attach`."""
        return attach(kubeconfig)

    def kubeconfig_for(self, name: str) -> Path:
        """A kubeconfig of one of `users`, by user name."""
        path = self._folder / "kubeconfigs" / name.replace(":", "-")
        path.parent.mkdir(exist_ok=True)
        write_kubeconfig(path, self.api_url, Path(self.ca_file), User(name, (), self.user_tokens[name]))
        return path

    async def restart(self, name: str) -> None:
        """Start a process again after it has ended, or end it first: `controllers`, `node`, `dataplane` or `apiserver`.

        The API server, which must be the sandbox's own, keeps its address, and its objects if it was not killed.
        """
        child = self.child(name)
        self._children.remove(child)
        await child.stop()
        if name == "apiserver":
            port = urlsplit(self.api_url).port or 0
            await resume_sandbox_api(self._folder, self._children, port=port)
            return
        begin = {"controllers": self._start_controllers, "node": self._start_node, "dataplane": self._start_plane}
        await begin[name]()

    def child(self, name: str) -> Child:
        """The process of that name (`apiserver`, `controllers`, `node`, `dataplane`), for tests that hurt it."""
        return next(child for child in self._children if child.name == name)

    def description(self) -> dict[str, Any]:
        """What `python -m e2e.sandbox status` shows."""
        names = {
            field_: value for field_, value in asdict(self).items() if field_ not in ("user_tokens", "admin_token")
        }
        return {**{name: str(value) for name, value in names.items()}, "pid": os.getpid()}


def _flags(options: Mapping[str, object]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


async def install(client: ApiClient) -> None:
    """Create the namespaces and the CustomResourceDefinitions of Istio and of Slipway, and wait for the latter."""
    for name in NAMESPACE_NAMES:
        await _create(client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    definitions = [
        document
        for folder in CRD_FOLDERS
        for path in sorted((REPOSITORY_ROOT / folder).glob("*.yaml"))
        for document in yaml.load_all(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if document and document.get("kind") == "CustomResourceDefinition"
    ]
    for definition in definitions:
        await _create(client, definition)
    async with asyncio.timeout(ESTABLISHED_SECONDS):
        for definition in definitions:
            await _await_established(client, definition["metadata"]["name"])


async def _create(client: ApiClient, obj: Obj) -> None:
    resource = NAMESPACES if obj["kind"] == "Namespace" else CUSTOM_RESOURCE_DEFINITIONS
    known = await client.find(resource, None, obj["metadata"]["name"])
    try:
        if known is None:
            await client.create(resource, obj)
        elif obj["kind"] != "Namespace":
            meta = {**obj["metadata"], "resourceVersion": known["metadata"]["resourceVersion"]}
            await client.replace(resource, {**obj, "metadata": meta})
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


async def _await_established(client: ApiClient, name: str) -> None:
    while True:
        established = condition(await client.get(CUSTOM_RESOURCE_DEFINITIONS, None, name), "Established")
        if established is not None and established["status"] == "True":
            return
        await asyncio.sleep(0.05)


def attach(kubeconfig: Path) -> Cluster:
    """A cluster that exists already; nothing is started. `SLIPWAY_GATEWAY_URL` and `SLIPWAY_PROMETHEUS_URL` may say
    where its gateway and its Prometheus are."""
    access = Access.from_kubeconfig(kubeconfig)
    return Cluster(
        kind="attached",
        kubeconfig=kubeconfig,
        api_url=access.url,
        ca_file=access.ca_file or "",
        admin_token=access.token or "",
        gateway_url=os.environ.get("SLIPWAY_GATEWAY_URL", ""),
        prometheus_url=os.environ.get("SLIPWAY_PROMETHEUS_URL", ""),
    )


@contextlib.asynccontextmanager
async def cluster(**settings: Any) -> AsyncIterator[Cluster]:
    """The cluster to test on: `KUBECONFIG`'s, else a real control plane from `KUBEBUILDER_ASSETS`, else the sandbox.

    `settings` are those of `Sandbox`; a cluster that exists already takes none of them.
    """
    kubeconfig, assets = os.environ.get("KUBECONFIG"), os.environ.get("KUBEBUILDER_ASSETS")
    if kubeconfig:
        yield attach(Path(kubeconfig))
        return
    async with Sandbox(assets=Path(assets) if assets else None, **settings) as sandbox:
        yield sandbox


__all__ = ["ChildFailedError", "Cluster", "Sandbox", "User", "attach", "cluster", "install"]
