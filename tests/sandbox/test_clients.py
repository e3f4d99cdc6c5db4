"""kubectl and helm against the sandbox."""

import asyncio
import json

import pytest
import yaml

from e2e.sandbox.binaries import kubectl_path
from e2e.sandbox.cluster import cluster
from e2e.sandbox.controllers.client import (
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    Access,
    ApiClient,
    ApiError,
)
from tests.sandbox.bench import Bench, echo, eventually, script_pod, service
from tests.sandbox.conftest import LIMITED, ROBOT

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.integration]

CHART = {
    "Chart.yaml": "apiVersion: v2\nname: web\nversion: 0.1.0\n",
    "values.yaml": "replicas: 1\n",
}


def manifest(**changes):
    return yaml.safe_dump_all([{**echo("web", **changes)}, service("web")])


async def test_kubectl_applies_and_watches_a_rollout(bench):
    output = await bench.kubectl("apply", "-f", "-", stdin=manifest(replicas=2))
    assert "deployment.apps/web created" in output
    output = await bench.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    assert "successfully rolled out" in output
    output = await bench.kubectl("get", "deployments,replicasets,pods,services,endpointslices,events")
    assert "deployment.apps/web" in output
    assert "2/2" in output
    output = await bench.kubectl("get", "pods", "-o", "wide")
    assert output.count("Running") == 2
    assert "sandbox-node-0" in output


async def test_kubectl_applies_on_the_server_side_and_shows_a_difference(bench):
    await bench.kubectl("apply", "--server-side", "-f", "-", stdin=manifest())
    await bench.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    output = await bench.kubectl("diff", "--server-side", "-f", "-", stdin=manifest(), code=0)
    assert output == ""
    output = await bench.kubectl("diff", "--server-side", "-f", "-", stdin=manifest(version="v2"), code=1)
    assert "+        - v2" in output
    await bench.kubectl("apply", "--server-side", "-f", "-", stdin=manifest(version="v2"))
    await bench.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    output = await bench.kubectl("rollout", "history", "deployment/web")
    assert "2" in output
    await bench.kubectl("rollout", "undo", "deployment/web")
    await bench.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    (pod,) = await bench.ready_pods("web", 1)
    assert pod["spec"]["containers"][0]["args"] == ["--version", "v1"]


async def test_kubectl_patches_scales_waits_and_deletes(bench):
    await bench.kubectl("apply", "-f", "-", stdin=manifest())
    await bench.kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=120s")
    await bench.kubectl("scale", "deployment/web", "--replicas=2")
    await bench.ready_pods("web", 2)
    patch = {"spec": {"template": {"metadata": {"annotations": {"touched": "yes"}}}}}
    await bench.kubectl("patch", "deployment", "web", "-p", json.dumps(patch))
    await bench.rolled_out("web")
    await bench.kubectl("rollout", "restart", "deployment/web")
    await bench.rolled_out("web")
    await bench.kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=120s")
    await bench.ready_pods("web", 0)
    await bench.kubectl("delete", "service", "web")
    output = await bench.kubectl("get", "deployment", "web", code=1)
    assert 'deployments.apps "web" not found' in output


async def test_kubectl_describes_and_reads_logs(bench):
    await bench.kubectl("apply", "-f", "-", stdin=manifest())
    (pod,) = await bench.ready_pods("web", 1)
    name = pod["metadata"]["name"]
    output = await bench.kubectl("describe", "pod", name)
    assert "Successfully assigned" in output
    assert "Started" in output
    assert "ScalingReplicaSet" in await bench.kubectl("describe", "deployment", "web")
    assert "simulated" in await bench.kubectl("describe", "node", "sandbox-node-0")
    assert "serving v1" in await bench.kubectl("logs", name)
    assert "serving v1" in await bench.kubectl("logs", "deployment/web", "--tail=1", "--timestamps")
    follower = await bench.start(kubectl_path(), "logs", "-f", name)
    await bench.kubectl("delete", "pod", name, "--wait=false")
    output, _ = await asyncio.wait_for(follower.communicate(), 120)
    assert "draining" in output.decode()


async def test_kubectl_watches(bench):
    await bench.kubectl("apply", "-f", "-", stdin=manifest())
    await bench.rolled_out("web")
    watcher = await bench.start(kubectl_path(), "get", "deployments", "-w")
    await asyncio.wait_for(watcher.stdout.readline(), 120)
    await bench.kubectl("scale", "deployment/web", "--replicas=3")
    await bench.rolled_out("web")

    async def seen():
        line = await asyncio.wait_for(watcher.stdout.readline(), 120)
        return b"3/3" in line

    await eventually(seen)
    watcher.terminate()
    await watcher.communicate()


async def test_kubectl_explains_and_asks_for_rights(bench):
    assert "replicas" in await bench.kubectl("explain", "deployment.spec")
    assert "yes" in await bench.kubectl("auth", "can-i", "create", "deployments")
    assert "virtualservices" in await bench.kubectl("api-resources")


async def test_helm_installs_upgrades_and_removes(bench, tmp_path):
    chart = tmp_path / "web"
    (chart / "templates").mkdir(parents=True)
    for name, text in CHART.items():
        (chart / name).write_text(text)
    text = manifest().replace("replicas: 1", "replicas: {{ .Values.replicas }}")
    (chart / "templates" / "all.yaml").write_text(text)
    await bench.run("helm", "install", "web", str(chart), "--wait", "--timeout", "120s")
    await bench.ready_pods("web", 1)
    await bench.run("helm", "upgrade", "web", str(chart), "--set", "replicas=2", "--wait", "--timeout", "120s")
    await bench.ready_pods("web", 2)
    assert "deployed" in await bench.run("helm", "list")
    await bench.run("helm", "uninstall", "web", "--wait", "--timeout", "120s")
    await bench.ready_pods("web", 0)
    assert await bench.client.find(DEPLOYMENTS, bench.namespace, "web") is None
    assert not await bench.items(PODS)


async def test_a_user_without_rights_is_refused(bench):
    kubeconfig = bench.sandbox.kubeconfig_for(LIMITED)
    client = ApiClient(Access.from_kubeconfig(kubeconfig), "tests")
    async with client:
        with pytest.raises(ApiError) as refusal:
            await client.get(DEPLOYMENTS, bench.namespace, "web")
    assert refusal.value.code == 403
    assert LIMITED in refusal.value.message


async def test_an_existing_cluster_is_attached_to_and_left_alone(bench, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(bench.sandbox.kubeconfig))
    monkeypatch.setenv("SLIPWAY_GATEWAY_URL", bench.sandbox.gateway_url)
    async with cluster(gpus=1) as attached:
        assert attached.kind == "attached"
        assert attached.api_url == bench.sandbox.api_url
        assert attached.gateway_url == bench.sandbox.gateway_url
        async with attached.client() as client:
            assert await client.find(NAMESPACES, None, bench.namespace)
    assert await bench.client.find(NAMESPACES, None, bench.namespace)


WHO_AM_I = """
import json, os, ssl, urllib.request, yaml
config = yaml.safe_load(open(os.environ["KUBECONFIG"]))
cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
request = urllib.request.Request(
    cluster["server"] + "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    json.dumps(review).encode(),
    {"Authorization": "Bearer " + user["token"], "Content-Type": "application/json"},
)
context = ssl.create_default_context(cafile=cluster["certificate-authority"])
print(json.load(urllib.request.urlopen(request, context=context))["status"]["userInfo"]["username"])
"""


async def test_a_pod_acts_as_its_service_account(sandbox):
    async with sandbox.client("tests") as client:
        bench = Bench(client, "default", sandbox)
        await bench.create(SERVICE_ACCOUNTS, {"metadata": {"name": ROBOT}})
        container = {"image": "python:3", "command": None, "args": ["-c", WHO_AM_I]}
        await bench.create(PODS, script_pod("robot", "", container=container, serviceAccountName=ROBOT))
        await bench.phase("robot", "Succeeded")
        assert (await bench.logs("robot")).strip() == f"system:serviceaccount:default:{ROBOT}"
        await client.delete(PODS, await bench.get(PODS, "robot"))
