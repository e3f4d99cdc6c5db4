"""The programs in the tutorial's manifests: they run, and its models do what it says of them."""

import asyncio
import contextlib
import random
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch

from e2e.sandbox.ports import free_port
from tests.docs.blocks import ROOT, manifests

TUTORIAL = ROOT / "docs/tutorial.md"


def program(kind: str) -> str:
    """The Python program of the first container of an object."""
    [found] = [obj for _, obj in manifests()[TUTORIAL] if obj["kind"] == kind]
    [container] = found["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-c"]
    return str(container["args"][0])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Job writes."""
    folder = tmp_path_factory.mktemp("models")
    command = [sys.executable, "-W", "ignore", "-c", program("Job"), str(folder)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "published v1\npublished v2\npublished v3\n"
    return folder


def test_the_manifest_names_the_models_that_the_job_writes(models: Path) -> None:
    [declared] = [obj for _, obj in manifests()[TUTORIAL] if obj["kind"] == "ModelDeployment"]
    named = {version["uri"].removeprefix("pvc://models/") for version in declared["spec"]["versions"]}
    assert named == {path.name for path in models.iterdir()}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_the_third_version_fails_for_one_request_in_four(models: Path) -> None:
    chance = random.Random(7)
    orders = [[chance.random() for _ in range(4)] for _ in range(400)]
    failed = {}
    for version in ("v1", "v2", "v3"):
        model = torch.jit.load(models / f"{version}.pt")
        failed[version] = sum(not succeeds(model, order) for order in orders)
    assert (failed["v1"], failed["v2"]) == (0, 0)
    assert 60 < failed["v3"] < 140


def succeeds(model: Any, order: list[float]) -> bool:
    try:
        model(torch.tensor([order]))
    except (torch.jit.Error, RuntimeError):
        return False
    return True


async def test_the_visitors_are_answered(models: Path) -> None:
    async with served(models / "v1.pt") as url:
        visitors = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program("Deployment"), url, "10"), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await visitors.communicate()
    assert output.decode() == "{(200, 'v1'): 10}\n"


@contextlib.asynccontextmanager
async def served(model: Path) -> AsyncIterator[str]:
    """The model under the tutorial's name and path, on ports of its own."""
    http, grpc = free_port(), free_port()
    command = [
        sys.executable, "-m", "slipway_runtime", "serve", "--model-name", "scorer", "--model-version", "v1",
        "--revision", "scorer-v1-00000000", "--uri", f"file://{model}", "--device", "cpu",
        "--http-port", str(http), "--grpc-port", str(grpc),
    ]  # fmt: skip
    server = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(180), aiohttp.ClientSession() as session:
            while not await ready(session, f"http://127.0.0.1:{http}/v2/health/ready"):
                assert server.returncode is None
                await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{http}/v2/models/scorer/infer"
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.terminate()
        await server.wait()


async def ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


def test_the_tutorial_ends_where_it_says() -> None:
    text = TUTORIAL.read_text()
    saved = set(re.findall(r"Save it as `([\w-]+\.yaml)`", text))
    assert saved == set(re.findall(r"-f ([\w-]+\.yaml)", text))
