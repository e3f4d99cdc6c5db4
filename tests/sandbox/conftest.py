"""One sandbox for all tests of this folder, a namespace for each test."""

import secrets

import pytest
import pytest_asyncio

from e2e.sandbox.cluster import Sandbox, User
from tests.sandbox.bench import Bench

GPUS = 4
LIMITED = "limited"
ROBOT = "robot"
LOG_CHARACTERS = 6000
USERS = (User(LIMITED), User.service_account("default", ROBOT))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sandbox():
    """A running sandbox with quick restarts and four simulated GPUs."""
    async with Sandbox(gpus=GPUS, restart_backoff=1.0, users=USERS) as running:
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Show the end of the sandbox's logs beside a failure."""
    report = yield
    running = getattr(item, "funcargs", {}).get("sandbox")
    if report.when == "call" and report.failed and running is not None:
        for path in sorted((running.kubeconfig.parent / "logs").glob("*.log")):
            report.sections.append((f"sandbox log {path.name}", path.read_text()[-LOG_CHARACTERS:]))
    return report


@pytest_asyncio.fixture(loop_scope="session")
async def bench(sandbox):
    """A client and an empty namespace, removed afterwards."""
    name = f"test-{secrets.token_hex(4)}"
    async with sandbox.client("tests") as client:
        await client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        yield Bench(client, name, sandbox)
        await client.request("DELETE", f"/api/v1/namespaces/{name}")
