"""What users get told of bad input, word for word; what served before goes on serving each time."""

import json

import pytest
import pytest_asyncio

from tests.integration.bench import MODEL_DEPLOYMENTS, Bench, condition, failures
from tests.integration.conftest import namespace

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(a_cluster, operator, models):
    """A ModelDeployment `m` that serves v1, for all tests of this file."""
    async with a_cluster.client("tests") as client, namespace(client) as name:
        bench = Bench(a_cluster, client, name, models)
        await bench.apply(bench.declare("m"))
        await bench.serving("m")
        yield bench


async def refusal(bench, *versions, serve="", **spec):
    """What kubectl prints of an object that the API server does not take; the served version is not touched."""
    obj = bench.declare("m", *versions, serve=serve, **spec)
    before = (await bench.get(MODEL_DEPLOYMENTS, "m"))["spec"]
    code, text = await bench.kubectl("apply", "--validate=strict", "-f", "-", stdin=json.dumps(obj))
    assert code == 1, text
    assert (await bench.get(MODEL_DEPLOYMENTS, "m"))["spec"] == before
    assert await bench.infer("m") == (200, "v1")
    return text


async def test_two_versions_and_no_serve(served):
    text = await refusal(served, served.version("v1"), served.version("v2", "good-2"))
    assert 'The ModelDeployment "m" is invalid' in text
    assert "spec.serve: Required value: must name the version wanted in production when there are two or more" in text


async def test_serve_names_no_version(served):
    text = await refusal(served, served.version("v1"), serve="v9")
    assert "spec.serve: Invalid value" in text
    assert "must be the name of an entry of spec.versions" in text


async def test_weights_that_do_not_ascend(served):
    steps = [{"weight": 25}, {"weight": 5}]
    text = await refusal(served, served.version("v1"), rollout={"steps": steps})
    assert "spec.rollout.steps: Invalid value" in text
    assert "weights must ascend from step to step" in text


async def test_more_replicas_at_least_than_at_most(served):
    text = await refusal(served, served.version("v1"), autoscaling={"minReplicas": 5, "maxReplicas": 2})
    assert "spec.autoscaling.minReplicas: Invalid value" in text
    assert "minReplicas (default 1) must not exceed maxReplicas (default 8)" in text


async def test_a_field_that_does_not_exist(served):
    text = await refusal(served, served.version("v1"), rollout={"stepz": []})
    assert 'unknown field "spec.rollout.stepz"' in text


async def test_artefacts_that_are_not_what_was_said(served):
    """A wrong digest and a file that is no model: the candidate fails with the server's words, v1 goes on."""
    one = served.version("v1")
    corrupt = served.models["corrupt"]
    wrong = "0" * 64
    for version, reason, words in (
        (
            served.version("v2", "good-2", sha256=wrong),
            "ArtefactRefused",
            ("DigestMismatch", f"expected sha256 {wrong}", f"has sha256 {served.models['good-2'].sha256}"),
        ),
        (served.version("v3", "corrupt"), "ArtefactRefused", ("NotAModel", "an HTML page")),
        (served.version("v4", uri=f"{corrupt.uri}.gone", sha256=""), "ArtefactNotFound", ("corrupt.pt.gone",)),
    ):
        async with served.load("m") as answers:
            await served.apply(served.declare("m", one, version, serve=version["name"]))
            status = await served.finished("m", version["name"], "Failed")
        assert failures(answers) == []
        assert {answer.version for answer in answers} == {"v1"}
        assert status["rollout"]["reason"] == reason
        for word in words:
            assert word in status["rollout"]["message"]
        stalled = condition(status, "Stalled")
        assert (stalled["status"], stalled["reason"]) == ("True", "Failed")
        assert status["rollout"]["message"] in stalled["message"]
    await served.apply(served.declare("m", one, serve="v1"))
    await served.serving("m")


async def test_a_first_version_that_is_no_model_stalls_and_says_why(bench):
    await bench.apply(bench.declare("m", bench.version("v1", "corrupt")))
    status = await bench.until("m", "it stalls", lambda s: s.get("phase") == "Stalled")
    assert condition(status, "Ready")["status"] == "False"
    assert condition(status, "Stalled")["reason"] == "ArtefactRefused"
    code, text = await bench.kubectl("wait", "mdep/m", "--for=condition=Ready", "--timeout=1s")
    assert code == 1
    assert "timed out" in text
    await bench.apply(bench.declare("m", bench.version("v1")))
    await bench.serving("m")


async def test_a_host_that_another_virtual_service_owns(served):
    host = "models.example.com"
    await served.apply(served.declare("m", served.version("v1"), serve="v1"))
    await served.serving("m")
    code, text = await served.kubectl("apply", "-f", "-", stdin=json.dumps(virtual_service(host)))
    assert code == 0, text
    await served.patch("m", {"traffic": {"hosts": [host]}})
    status = await served.until("m", "the conflict is seen", lambda s: condition(s, "Stalled")["reason"] == "Conflict")
    stalled = condition(status, "Stalled")
    assert stalled["status"] == "True"
    assert stalled["message"] == (
        f"host {host} on gateway mesh is claimed by VirtualService {served.namespace}/other; "
        "remove the host there or here"
    )
    assert await served.infer("m") == (200, "v1")
    await served.patch("m", {"traffic": {"hosts": None}})
    await served.serving("m")


def virtual_service(host):
    """Somebody else's."""
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "other"},
        "spec": {"hosts": [host], "http": [{"route": [{"destination": {"host": "other"}}]}]},
    }
