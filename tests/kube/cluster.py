"""An API server for integration tests: that of KUBECONFIG, the real one of KUBEBUILDER_ASSETS, or the sandbox's."""

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from slipway.kube.client import Client
from slipway.kube.kinds import Kind
from slipway.kube.transport import ApiTransport, load_configuration

from e2e.sandbox.children import Child
from e2e.sandbox.cluster import attach, install
from e2e.sandbox.control_plane import start_envtest, start_sandbox_api
from e2e.sandbox.tokens import User, write_kubeconfig

NAMESPACE = Kind("", "v1", "namespaces", "Namespace")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """A kubeconfig of an administrator; the CustomResourceDefinitions are installed."""
    children: list[Child] = []
    folder = tmp_path_factory.mktemp("cluster")
    path = Path(os.environ.get("KUBECONFIG") or folder / "kubeconfig")
    try:
        if not os.environ.get("KUBECONFIG"):
            user = User("tests", ("system:masters",))
            assets = os.environ.get("KUBEBUILDER_ASSETS")
            start = start_envtest if assets else start_sandbox_api
            endpoint = await start(folder, (user,), children, Path(assets) if assets else None)
            write_kubeconfig(path, endpoint.url, endpoint.ca_file, user)
        async with attach(path).client("tests") as client:
            await install(client)
        yield path
    finally:
        for child in reversed(children):
            await child.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def cluster_client(kubeconfig: Path) -> AsyncIterator[Client]:
    """The operator's own client."""
    transport = ApiTransport(await load_configuration({"KUBECONFIG": str(kubeconfig)}))
    async with Client(transport) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(cluster_client: Client) -> AsyncIterator[str]:
    """A namespace of its own for each test."""
    name = f"test-{secrets.token_hex(4)}"
    await cluster_client.apply(
        NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "namespace": ""}}
    )
    yield name
