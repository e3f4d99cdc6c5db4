"""One cluster and one operator for all tests of this folder, a namespace for each test."""

import contextlib
import secrets
from pathlib import Path

import pytest
import pytest_asyncio

from e2e.sandbox.cluster import Cluster, Sandbox, User, cluster
from e2e.sandbox.controllers.client import APPLY_PATCH, NAMESPACES, ApiClient, Resource
from tests.integration.bench import Bench
from tests.integration.models import build
from tests.integration.operators import Operator
from tests.integration.role import OPERATOR, objects

GPUS = 8
LOG_CHARACTERS = 8000
NO_RIGHT = "is forbidden: User "
"""In the API server's refusal of what a role does not allow; a quota's or a dying namespace's reads otherwise."""
_KINDS = {
    "Namespace": NAMESPACES,
    "ClusterRole": Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
    "ClusterRoleBinding": Resource(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    ),
}


@pytest.fixture(scope="session")
def models():
    """Artefacts by name."""
    return build()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def a_cluster():
    """The sandbox, or what KUBECONFIG or KUBEBUILDER_ASSETS give."""
    async with cluster(gpus=GPUS, restart_backoff=0.5, users=(User(OPERATOR),)) as running:
        async with running.client("tests") as client:
            for obj in objects():
                await _apply(client, obj)
        yield running


async def _apply(client: ApiClient, obj):
    params = {"fieldManager": "tests", "force": "true"}
    await client.request("PATCH", _KINDS[obj["kind"]].path_of(obj), obj, params=params, content_type=APPLY_PATCH)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def operator(a_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory):
    """The operator with no more rights than it needs; a test that ends it starts it again."""
    running = Operator(a_cluster, tmp_path_factory.mktemp("operator"))
    await running.start()
    yield running
    await running.stop()
    assert NO_RIGHT not in running.log()


@pytest_asyncio.fixture(loop_scope="session")
async def bench(a_cluster: Cluster, operator: Operator, models):
    """An empty namespace, removed afterwards, with the operator at work."""
    async with a_cluster.client("tests") as client, namespace(client) as name:
        yield Bench(a_cluster, client, name, models)


@contextlib.asynccontextmanager
async def namespace(client: ApiClient):
    """A namespace that is there while the block runs."""
    name = f"it-{secrets.token_hex(3)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await client.request("POST", NAMESPACES.path(), body)
    try:
        yield name
    finally:
        await client.request("DELETE", NAMESPACES.path(name=name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Show the end of the operator's and the sandbox's logs beside a failure."""
    report = yield
    found = getattr(item, "funcargs", {})
    folders = [Path(found["operator"].folder)] if "operator" in found else []
    if isinstance(found.get("a_cluster"), Sandbox):
        folders.append(found["a_cluster"].kubeconfig.parent)
    if report.when == "call" and report.failed:
        for folder in folders:
            for path in sorted((folder / "logs").glob("*.log")):
                report.sections.append((f"log {path.name}", path.read_text()[-LOG_CHARACTERS:]))
    return report
