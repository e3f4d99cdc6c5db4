"""Slipway's own model server in a sandbox's pod, from the request through Envoy to the metrics of the simulated GPU."""

import warnings

import aiohttp
import pytest
import torch

from e2e.sandbox.controllers.client import CONFIG_MAPS, PODS, SERVICES
from tests.sandbox.bench import condition, echo, eventually, service

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.integration]

INPUTS = '[{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]'
OUTPUTS = '[{"name": "y", "datatype": "FP32", "shape": [-1, 4]}]'


class Doubler(torch.nn.Module):
    """Twice whatever comes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def model_server(name, folder):
    """A Deployment as the operator writes it, with the model in a mounted folder."""
    words = f"serve --model-name {name} --model-version v1 --revision {name}-v1-0 --uri file:///models/doubler.pt"
    probe = {"httpGet": {"path": "/v2/health/ready", "port": 8080}, "periodSeconds": 1, "failureThreshold": 60}
    deployment = echo(
        name,
        image="slipway-runtime:0.1.0",
        startupProbe=probe,
        readinessProbe=probe,
        livenessProbe={**probe, "httpGet": {"path": "/v2/health/live", "port": 8080}},
        resources={"limits": {"nvidia.com/gpu": "1", "memory": "4Gi"}},
        volumeMounts=[{"name": "models", "mountPath": "/models", "readOnly": True}],
    )
    template = deployment["spec"]["template"]
    template["metadata"]["annotations"] = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "8080",
        "prometheus.io/path": "/metrics",
    }
    template["spec"]["volumes"] = [{"name": "models", "hostPath": {"path": str(folder), "type": "Directory"}}]
    template["spec"]["containers"][0]["args"] = [*words.split(), "--inputs", INPUTS, "--outputs", OUTPUTS]
    return deployment


@pytest.fixture
def models(tmp_path):
    """A folder with a TorchScript program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(Doubler()).save(str(tmp_path / "doubler.pt"))
    return tmp_path


async def query(bench, expression):
    params = {"query": expression}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{bench.sandbox.prometheus_url}/api/v1/query", params=params) as response,
    ):
        return (await response.json())["data"]["result"]


async def test_a_model_answers_through_the_gateway_and_is_measured(bench, models):
    await bench.deploy(model_server("double", models))
    await bench.create(SERVICES, service("double"))
    (pod,) = await bench.ready_pods("double", 1)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    headers = {"Host": f"double.{bench.namespace}.svc.cluster.local"}
    url = f"{bench.sandbox.gateway_url}/v2/models/double/infer"

    async def answered():
        async with aiohttp.ClientSession() as session, session.post(url, json=body, headers=headers) as response:
            return response.status == 200 and await response.json()

    answer = await eventually(answered)
    assert answer["outputs"][0]["data"] == [2, 4, 6, 8]
    where = f'namespace="{bench.namespace}",pod="{pod["metadata"]["name"]}"'

    async def counted():
        (series,) = await query(bench, f'slipway_requests_total{{{where},code="200",shadow="false"}}')
        return float(series["value"][1]) >= 1 and series

    series = await eventually(counted)
    assert series["metric"]["revision"] == "double-v1-0"
    exported = where.replace("namespace=", "exported_namespace=").replace("pod=", "exported_pod=")

    async def gpu_seen():
        return await query(bench, f"DCGM_FI_DEV_GPU_UTIL{{{exported}}}")

    (series,) = await eventually(gpu_seen)
    assert series["metric"]["Hostname"] == "sandbox-node-0"


async def test_a_file_that_is_no_model_says_so_in_the_pod(bench, tmp_path):
    (tmp_path / "doubler.pt").write_bytes(b"not a model")
    await bench.deploy(model_server("broken", tmp_path))

    async def refused():
        (pod,) = await bench.pods("broken")
        status = pod["status"]["containerStatuses"][0]
        assert condition(pod, "Ready")["status"] == "False"
        return status["lastState"]["terminated"]

    ended = await eventually(refused)
    assert ended["exitCode"] == 65
    assert ended["message"]
    assert await bench.client.find(CONFIG_MAPS, bench.namespace, "kube-root-ca.crt")
    assert len(await bench.items(PODS)) == 1
