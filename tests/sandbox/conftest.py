"""One sandbox for all tests of this folder, a namespace for each test."""

import secrets

import pytest_asyncio

from e2e.sandbox.cluster import Sandbox
from tests.sandbox.bench import Bench

GPUS = 4


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sandbox():
    """A running sandbox with quick restarts and four simulated GPUs."""
    async with Sandbox(gpus=GPUS, restart_backoff=1.0) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def bench(sandbox):
    """A client and an empty namespace, removed afterwards."""
    name = f"test-{secrets.token_hex(4)}"
    async with sandbox.client("tests") as client:
        await client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        yield Bench(client, name, sandbox)
        await client.request("DELETE", f"/api/v1/namespaces/{name}")
