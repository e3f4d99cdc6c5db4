"""A real Triton: a model's version rolled out to the next with goldens, weights, analysis and promotion."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.sandbox.controllers.client import CONFIG_MAPS, PODS
from e2e.sandbox.triton import triton
from tests.integration.bench import Bench, failures
from tests.integration.models import FOLDER, Model
from tests.integration.triton_models import goldens, write

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

RATE = 40.0
ROLLOUT: dict[str, Any] = {
    "runtime": {"engine": "triton", "terminationGracePeriod": "5s"},
    "traffic": {"settle": "1s"},
    "rollout": {
        "steps": [{"weight": weight, "hold": "2s"} for weight in (20, 50)],
        "analysis": {
            "interval": "1s",
            "checks": [
                {"name": "errors", "metric": "errorRate", "maxRatio": 1.5, "maxValue": "0.3"},
                # Triton 2.51 has a histogram for decoupled models only: Envoy's is taken.
                {"name": "latency", "metric": "latency", "threshold": "1s", "maxRatio": 2.0, "maxValue": "0.3"},
            ],
        },
    },
}


@pytest.fixture(scope="module")
def folders() -> Iterator[dict[str, Model]]:
    """Model folders; Triton itself is fetched if need be."""
    triton()
    FOLDER.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(dir=FOLDER))
    yield {
        "one": write(place / "one", seed=1),
        "two": write(place / "two", seed=2),
        "failing": write(place / "failing", seed=3, fails=True),
    }
    shutil.rmtree(place)


def version(bench: Bench, name: str, model: Model, **more):
    return bench.version(name) | {"uri": model.uri, "sha256": model.sha256} | more


async def keep_goldens(bench: Bench, name: str, seed: int) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": bench.namespace}}
    await bench.client.create(CONFIG_MAPS, body | {"data": {"scans.json": goldens(seed)}})
    return {"goldens": {"configMap": name}}


async def test_a_version_is_rolled_out_to_the_next(bench: Bench, folders: dict[str, Model]) -> None:
    one = version(bench, "v1", folders["one"], **await keep_goldens(bench, "one", 1))
    two = version(bench, "v2", folders["two"], **await keep_goldens(bench, "two", 2))
    await bench.apply(bench.declare("m", one, **ROLLOUT))
    await bench.serving("m")
    async with bench.load("m", RATE) as answers, bench.timeline("m") as timeline:
        await bench.apply(bench.declare("m", one, two, serve="v2", **ROLLOUT))
        status = await bench.finished("m", "v2", "Promoted")
        await bench.serving("m", "v2")
    print(f"{len(answers)} requests to Triton, {len(failures(answers))} failed; checks: {status['analysis']}")
    assert failures(answers) == []
    assert {answer.version for answer in answers} == {"v1", "v2"}
    assert answers[-1].version == "v2"
    weights = [look.weight("v2") for look in timeline.looks if look.rollout.get("to") == "v2"]
    assert weights == sorted(weights)
    assert {20, 50} < set(weights)
    loaded = {entry["name"]: entry["loadedDigest"] for entry in status["versions"]}
    assert loaded["v2"] == f"sha256:{folders['two'].sha256}"
    assert [(check["name"], check["verdict"]) for check in status["analysis"]] == [
        ("errors", "Safe"),
        ("latency", "Safe"),
    ]
    for check in status["analysis"]:
        assert check["candidate"]["requests"] > 0
        assert check["stable"]["requests"] > 0


async def test_bad_versions_are_kept_out_or_rolled_back(bench: Bench, folders: dict[str, Model]) -> None:
    """Wrong answers and another digest keep a version from traffic; errors are seen although Triton counts none."""
    one, two = version(bench, "v1", folders["one"]), folders["two"]
    wrong = version(bench, "v2", two, **await keep_goldens(bench, "wrong", 1))
    other = version(bench, "v3", two, sha256=folders["one"].sha256)
    failing = version(bench, "v4", folders["failing"])
    await bench.apply(bench.declare("m", one, **ROLLOUT))
    await bench.serving("m")
    async with bench.load("m", RATE) as answers:
        await bench.apply(bench.declare("m", one, wrong, serve="v2", **ROLLOUT))
        status = await bench.finished("m", "v2", "Failed")
        assert status["rollout"]["reason"] == "GoldensFailed"
        assert "scans.json[0]: output logits differs" in status["rollout"]["message"]
        await bench.apply(bench.declare("m", one, other, serve="v3", **ROLLOUT))
        status = await bench.finished("m", "v3", "Failed")
        assert "DigestMismatch" in status["rollout"]["message"]
        await bench.apply(bench.declare("m", one, failing, serve="v4", **ROLLOUT))
        status = await bench.finished("m", "v4", "RolledBack")
    assert status["rollout"]["reason"] in ("HarmDetected", "ErrorBurst")
    assert {answer.version for answer in answers} == {"v1", "v4"}
    assert {answer.version for answer in failures(answers)} == {"v4"}
    images = {pod["spec"]["containers"][0]["image"].partition(":")[0] for pod in await bench.items(PODS)}
    assert images == {"tritonserver"}
