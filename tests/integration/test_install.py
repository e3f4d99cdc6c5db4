"""The chart, installed by helm into a cluster with RBAC on: the operator does its work with exactly the chart's rights.

The operator runs as a pod of the chart's Deployment. The API server's record of what its service account asked for is
compared with the roles; that each of the rights is needed is shown in tests/rights.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from e2e.sandbox.binaries import helm_path
from e2e.sandbox.children import REPOSITORY_ROOT
from e2e.sandbox.cluster import Cluster, Sandbox, User, cluster
from e2e.sandbox.controllers.client import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    PODS,
    SECRETS,
    Access,
    ApiClient,
    ApiError,
    Resource,
)
from tests.chart.rendering import of_kind, rendered
from tests.chart.test_rights import rights
from tests.integration.bench import CONTROLLER_REVISIONS, MODEL_DEPLOYMENTS, VIRTUAL_SERVICES, Bench, condition
from tests.integration.conftest import NO_RIGHT, namespace

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

HOME = "slipway-system"
SLOW = 240.0
"""Seconds; helm, operator and models start at the same time here."""
ACCOUNT = User.service_account(HOME, "slipway")
CHART = REPOSITORY_ROOT / "charts" / "slipway"


async def helm(running: Cluster, *arguments: str) -> str:
    """Run helm in the operator's namespace; returns what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(str(helm_path()), "--kubeconfig", str(running.kubeconfig), "-n", HOME, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "HELM_NO_PLUGINS": "1"},
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


def values(running: Cluster, *more: str) -> tuple[str, ...]:
    """Settings for a fast cluster."""
    settings = (f"prometheusUrl={running.prometheus_url}", "tickSeconds=1", "rateWindowSeconds=10", *more)
    return tuple(word for setting in settings for word in ("--set", setting))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fresh_cluster() -> AsyncIterator[Cluster]:
    """A cluster in which no operator has been yet; a sandbox even lacks Slipway's definition."""
    async with cluster(gpus=0, restart_backoff=0.5, users=(ACCOUNT,)) as running:
        async with running.client("tests") as client:
            known = await client.find(CUSTOM_RESOURCE_DEFINITIONS, None, "modeldeployments.slipway.dev")
            if known is not None and isinstance(running, Sandbox):
                await client.delete(CUSTOM_RESOURCE_DEFINITIONS, known)
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def bench(fresh_cluster: Cluster, models) -> AsyncIterator[Bench]:
    async with fresh_cluster.client("tests") as client, namespace(client) as name:
        yield Bench(fresh_cluster, client, name, models)


async def installed(bench: Bench) -> None:
    """Wait until the operator's pod is ready and at work."""

    async def ready() -> bool:
        found = await bench.client.find(DEPLOYMENTS, HOME, "slipway")
        return bool(found and (found.get("status") or {}).get("readyReplicas"))

    await bench.eventually("the operator is ready", ready)


def asked(running: Cluster) -> set[tuple[str, str, str]]:
    """Group, resource and verb of everything that the operator asked the API server for."""
    assert running.data_dir is not None
    found = set()
    for line in (running.data_dir / "apiserver" / "audit.log").read_text().splitlines():
        event = json.loads(line)
        # Discovery is about no object, and everybody may read it.
        if event["user"]["username"] != ACCOUNT.name or "objectRef" not in event:
            continue
        what = event["objectRef"]
        name = "/".join(filter(None, (what.get("resource"), what.get("subresource"))))
        found.add((what.get("apiGroup", ""), name, event["verb"]))
    return found


def granted() -> set[tuple[str, str, str]]:
    """What the chart's roles of the operator allow."""
    names = ("slipway", "slipway-leader")
    roles = [*of_kind(rendered({}), "ClusterRole"), *of_kind(rendered({}), "Role")]
    return rights(rule for role in roles if role["metadata"]["name"] in names for rule in role["rules"])


async def operator_log(bench: Bench) -> str:
    """What the operator's pods have logged, as kubectl shows it."""
    texts = []
    for pod in (await bench.client.list_all(PODS, namespace=HOME))["items"]:
        status, text = await bench.kubectl("-n", HOME, "logs", pod["metadata"]["name"])
        assert status == 0, text
        texts.append(text)
    return "\n".join(texts)


async def pod_names(bench: Bench) -> set[str]:
    return {pod["metadata"]["name"] for pod in await bench.items(PODS)}


async def test_install_upgrade_uninstall_and_install_again(bench: Bench) -> None:
    running = bench.cluster
    await helm(running, "install", "slipway", str(CHART), "--create-namespace", *values(running))
    await installed(bench)
    await _a_whole_rollout(bench)
    if running.data_dir is not None:
        assert asked(running) - granted() == set()
    log = await operator_log(bench)
    assert NO_RIGHT not in log
    assert '"level": "ERROR"' not in log

    before, route = await pod_names(bench), await bench.get(VIRTUAL_SERVICES, "m")
    status = await bench.status("m")
    await helm(running, "upgrade", "slipway", str(CHART), *values(running, "runtimeImage=slipway-runtime:9.9.9"))
    await _replaced(bench, "--runtime-image=slipway-runtime:9.9.9")
    await _looked_at(bench, "m")
    assert await pod_names(bench) == before, "another default image restarts nothing"
    assert (await bench.get(VIRTUAL_SERVICES, "m"))["spec"] == route["spec"]
    assert (await bench.status("m"))["rollouts"] == status["rollouts"]

    await _half_of_a_rollout(bench)
    before, route = await pod_names(bench), await bench.get(VIRTUAL_SERVICES, "m")
    await helm(running, "uninstall", "slipway", "--wait", "--timeout", "300s")
    assert await bench.client.find(DEPLOYMENTS, HOME, "slipway") is None
    assert await bench.client.find(CUSTOM_RESOURCE_DEFINITIONS, None, "modeldeployments.slipway.dev") is not None
    async with bench.load("m") as answers:
        await helm(running, "install", "slipway", str(CHART), *values(running))
        await installed(bench)
        await _looked_at(bench, "m")
        assert await pod_names(bench) == before, "models go on serving without the operator"
        assert (await bench.get(VIRTUAL_SERVICES, "m"))["spec"] == route["spec"]
        await bench.act("m", "Promote")
        await bench.finished("m", "v3", "Promoted")
    assert [answer for answer in answers if answer.code != 200] == []
    assert {answer.version for answer in answers} == {"v2", "v3"}
    await bench.delete(MODEL_DEPLOYMENTS, "m")

    async def gone() -> bool:
        return not await bench.items(DEPLOYMENTS) and not await bench.items(CONTROLLER_REVISIONS)

    await bench.eventually("nothing is stuck", gone)


async def _a_whole_rollout(bench: Bench) -> None:
    one, two = bench.version("v1"), bench.version("v2", "good-2")
    await bench.apply(bench.declare("m", one))
    await bench.serving("m", seconds=SLOW)
    async with bench.load("m") as answers:
        await bench.apply(bench.declare("m", one, two, serve="v2"))
        await bench.finished("m", "v2", "Promoted")
        await bench.serving("m", "v2", SLOW)
    assert [answer for answer in answers if answer.code != 200] == []

    async def old_version_gone() -> bool:
        return [entry["name"] for entry in (await bench.status("m"))["versions"]] == ["v2"]

    await bench.eventually("v1 is gone", old_version_gone)
    applied = json.dumps(bench.declare("m", one, two, serve="v2"))
    status, text = await bench.kubectl("diff", "--server-side", "--field-manager=user", "-f", "-", stdin=applied)
    assert (status, text) == (0, ""), "what was applied stays as it was applied"


async def _half_of_a_rollout(bench: Bench) -> None:
    """v3 has half of the requests and waits for a person."""
    steps = {"rollout": {"steps": [{"weight": 50, "pause": {}}]}}
    await bench.apply(bench.declare("m", bench.version("v2", "good-2"), bench.version("v3"), serve="v3", **steps))
    await bench.until("m", "v3 waits at 50 %", lambda s: (s.get("phase"), s.get("weight")) == ("Paused", 50), SLOW)


async def _replaced(bench: Bench, argument: str) -> None:
    """Wait until only pods of the operator's newest Deployment are left."""

    async def done() -> bool:
        pods = (await bench.client.list_all(PODS, namespace=HOME))["items"]
        new = [pod for pod in pods if argument in pod["spec"]["containers"][0]["args"]]
        return len(new) == len(pods) == 1 and condition(new[0]["status"], "Ready").get("status") == "True"

    await bench.eventually("the new operator has replaced the old one", done)


async def _looked_at(bench: Bench, name: str) -> None:
    """Wait until the present operator has looked at a spec that changes nothing."""
    current = await bench.get(MODEL_DEPLOYMENTS, name)
    changed = await bench.patch(name, {"rollout": {"keepPrevious": f"{current['metadata']['generation'] + 60}s"}})
    generation = changed["metadata"]["generation"]
    await bench.until(
        name,
        "the operator looks again",
        lambda s: s.get("observedGeneration") == generation and condition(s, "Available").get("status") == "True",
    )


async def test_with_namespaces_no_right_reaches_beyond_them(bench: Bench) -> None:
    running = bench.cluster
    try:
        await helm(running, "uninstall", "slipway", "--ignore-not-found", "--wait", "--timeout", "300s")
        narrow = values(running, f"watchNamespaces={{{bench.namespace}}}")
        await helm(running, "install", "slipway", str(CHART), "--create-namespace", "--take-ownership", *narrow)
        await installed(bench)
        await bench.apply(bench.declare("m"))
        await bench.serving("m", seconds=SLOW)
        assert NO_RIGHT not in await operator_log(bench)
        for resource, where in ((PODS, "default"), (SECRETS, bench.namespace), (SECRETS, HOME)):
            await _is_refused(running, resource, where)
    finally:
        await helm(running, "uninstall", "slipway", "--ignore-not-found", "--wait", "--timeout", "300s")


async def _is_refused(running: Cluster, resource: Resource, where: str) -> None:
    assert isinstance(running, Sandbox), "a cluster that exists already lends nobody its service accounts' tokens"
    access = Access.from_kubeconfig(running.kubeconfig_for(ACCOUNT.name))
    async with ApiClient(access, "tests") as client:
        with pytest.raises(ApiError, match="forbidden"):
            await client.list_all(resource, namespace=where)
