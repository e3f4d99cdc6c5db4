"""Every manifest of the pages, and what `slipway convert` prints, applied to the API server as a dry run."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from slipway.conversion import convert

from e2e.sandbox.binaries import kubectl_path
from e2e.sandbox.controllers.client import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, ApiError
from tests import published
from tests.docs.blocks import ROOT, manifests
from tests.docs.test_yaml import with_real_digests

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

THIRD_PARTY = sorted((ROOT / "tests/docs/third_party").glob("*.json"))
SAMPLES = {path.stem: path.read_text() for path in sorted((ROOT / "tests/conversion/samples").glob("*.yaml"))}
BY_SCHEMA = {"Job", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
"""Kinds that the sandbox does not serve; they are compared with the schemas of Kubernetes."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def karmada(a_cluster) -> AsyncIterator[None]:
    """The kinds of Karmada."""
    definitions = [json.loads(path.read_text()) for path in THIRD_PARTY]
    async with a_cluster.client("tests") as client:
        for definition in definitions:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        yield
        for definition in definitions:
            name = definition["metadata"]["name"]
            await client.request("DELETE", CUSTOM_RESOURCE_DEFINITIONS.path(name=name))


async def applied(bench, objects) -> str:
    """What kubectl says to a dry run of all objects; their namespaces are made before."""
    for name in {obj["metadata"].get("namespace") for obj in objects} - {None}:
        try:
            await bench.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        except ApiError as error:
            assert error.reason == "AlreadyExists"
    arguments = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
    process = await asyncio.create_subprocess_exec(
        *(str(kubectl_path()), "--kubeconfig", str(bench.cluster.kubeconfig), *arguments),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate(yaml.safe_dump_all(objects).encode())
    assert process.returncode == 0, output.decode()
    return output.decode()


@pytest.mark.parametrize("page", manifests(), ids=lambda page: str(page.relative_to(ROOT)))
async def test_manifests_of_a_page(bench, karmada, page: Path) -> None:
    objects = [dict(obj) for _, obj in manifests()[page]]
    for obj in objects:
        if obj["kind"] in BY_SCHEMA:
            published.validate(obj, "1.33")
    served = [
        with_real_digests(obj) if obj["kind"] == "ModelDeployment" else obj
        for obj in objects
        if obj["kind"] not in BY_SCHEMA
    ]
    text = await applied(bench, served)
    assert text.count("serverside-applied (server dry run)") == len(served)


@pytest.mark.parametrize("sample", SAMPLES)
async def test_converted_objects(bench, sample: str) -> None:
    objects = [dict(made) for made in convert(yaml.safe_load_all(SAMPLES[sample])).objects]
    text = await applied(bench, objects)
    assert text.count("serverside-applied (server dry run)") == len(objects) > 0
