"""The prober against Slipway's own server with a real TorchScript model."""

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from slipway.api.observed import PodView, ProbeView
from slipway.api.revisions import Revision, revision_of
from slipway.engine.prober import Prober

from e2e.sandbox.ports import free_port
from tests.runtime.programs import Doubler, script

POD = PodView(name="p", created_at=1.0, ready=True, ip="127.0.0.1")
DECLARED = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "doubler.pt"
    script(Doubler().eval(), path)
    yield path


def revision(model: Path, **version: Any) -> Revision:
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    entry = {
        "name": "v1",
        "uri": model.as_uri(),
        "sha256": digest,
        "goldens": {"configMap": "g"},
        **DECLARED,
        **version,
    }
    return revision_of("m", {"versions": [entry]}, "v1")


def goldens(answer: list[float]) -> dict[str, str]:
    request = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.5]}]}
    response = {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": answer}]}
    return {"smoke.json": json.dumps([{"request": request, "response": response}])}


@asynccontextmanager
async def serving(model: Path) -> AsyncIterator[int]:
    """The server in a process of its own; gives its port."""
    port = free_port()
    arguments = [
        *("serve", "--model-name", "m", "--model-version", "v1", "--revision", "m-v1-0", "--uri", model.as_uri()),
        *("--inputs", json.dumps(DECLARED["inputs"]), "--outputs", json.dumps(DECLARED["outputs"])),
        *("--host", "127.0.0.1", "--http-port", str(port), "--grpc-port", str(free_port())),
        *("--pre-stop", "0s", "--grace", "5s"),
    ]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "slipway_runtime", *arguments)
    try:
        yield port
    finally:
        process.terminate()
        await process.wait()


async def verdict(prober: Prober, wanted: Revision, texts: dict[str, str]) -> ProbeView:
    """What the prober finds once the server is up."""
    async with asyncio.timeout(120):
        while True:
            view = await prober.probe(wanted, [POD], texts, "m")
            if view.passed is not None:
                return view
            await asyncio.sleep(0.1)


async def test_digest_signature_and_goldens_are_checked_on_a_real_server(model: Path) -> None:
    async with serving(model) as port:
        prober = Prober(port=port)
        good = await verdict(prober, revision(model), goldens([2.0, 5.0]))
        assert good.passed is True, good.message
        assert good.loaded_digest in ("", f"sha256:{revision(model).version.sha256}")
        assert (await verdict(prober, revision(model), goldens([2.0, 5.1]))).reason == "GoldensFailed"
        other = [{"name": "x", "datatype": "INT64", "shape": [-1, 2]}]
        assert (await verdict(prober, revision(model, inputs=other), goldens([2.0, 5.0]))).reason == "SignatureMismatch"
