"""The whole operator with its watches, in this process, against an API server; pods are played by the test."""

import asyncio
import contextlib
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from slipway.app import make_engine, operate
from slipway.engine.engine import Engine, Settings
from slipway.engine.telemetry import Telemetry
from slipway.kube.client import Client
from slipway.kube.failures import NotFoundError
from slipway.kube.kinds import CONTROLLER_REVISION, DEPLOYMENT, EVENT, LEASE, MODEL_DEPLOYMENT, POD, SERVICE
from slipway.kube.lease import LeaseLostError, LeaseTimes
from slipway.kube.metadata import Key, uid_of

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

HEAD = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": MODEL_DEPLOYMENT.name}


@pytest.fixture(autouse=True)
def environment(kubeconfig, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))


def settings(namespace: str, **more: Any) -> Settings:
    plain = Settings(lease=Key(namespace, "leader"), http_host="127.0.0.1", http_port=0, tick=0.2)
    return dataclasses.replace(plain, **more)


@contextlib.asynccontextmanager
async def running(chosen: Settings) -> AsyncIterator[asyncio.Task[None]]:
    stop = asyncio.Event()
    task = asyncio.ensure_future(operate(chosen, stop=stop))
    try:
        yield task
    finally:
        stop.set()
        async with asyncio.timeout(120):
            await asyncio.gather(task, return_exceptions=True)


def start_engine(chosen: Settings, client: Client) -> tuple[Engine, asyncio.Event, asyncio.Task[None]]:
    """The engine without watches: the end of kopf's in one event loop would take that of others with it."""
    engine, stop = make_engine(chosen, client, Telemetry()), asyncio.Event()
    return engine, stop, asyncio.ensure_future(engine.run(stop))


async def declare(client: Client, namespace: str, name: str = "m", **spec: Any) -> dict[str, Any]:
    plain = {"versions": [{"name": "v1", "uri": "file:///models/v1"}]}
    return await client.apply(
        MODEL_DEPLOYMENT, HEAD | {"metadata": {"namespace": namespace, "name": name}, "spec": plain | spec}
    )


async def until(read: Callable[[], Any], timeout: float = 60.0) -> Any:
    """Await something in the cluster; gives what ``read`` gave first that was true."""
    async with asyncio.timeout(timeout):
        while True:
            with contextlib.suppress(NotFoundError):
                if found := await read():
                    return found
            await asyncio.sleep(0.05)


async def test_children_are_made_and_come_back_and_the_end_is_orderly(cluster_client, namespace):
    async def deployments() -> Any:
        return (await cluster_client.list(DEPLOYMENT, namespace)).items

    async with running(settings(namespace)) as task:
        raw = await declare(cluster_client, namespace)
        (deployment,) = await until(deployments)
        service = await until(lambda: cluster_client.get(SERVICE, namespace, "m"))
        assert service["metadata"]["ownerReferences"][0]["uid"] == uid_of(raw)
        await cluster_client.delete(SERVICE, namespace, "m", uid=uid_of(service))

        async def another() -> bool:
            return uid_of(await cluster_client.get(SERVICE, namespace, "m")) != uid_of(service)

        await until(another)

        async def told() -> bool:
            events = (await cluster_client.list(EVENT, namespace)).items
            return any(event["reason"] == "FirstDeployment" for event in events)

        await until(told)
        assert not task.done()
    assert task.exception() is None
    lease = await cluster_client.get(LEASE, namespace, "leader")
    assert lease["spec"]["holderIdentity"] == ""
    seen = await cluster_client.get(MODEL_DEPLOYMENT, namespace, "m")
    assert seen["status"]["observedGeneration"] == 1
    # kopf itself must not have written anything.
    assert "annotations" not in seen["metadata"]
    assert "finalizers" not in seen["metadata"]
    managers = {entry["manager"] for entry in seen["metadata"]["managedFields"]}
    assert managers == {"slipway"}
    assert deployment["spec"]["replicas"] == 1


async def test_pods_are_seen(cluster_client, namespace):
    async def deployments() -> Any:
        return (await cluster_client.list(DEPLOYMENT, namespace)).items

    async with running(settings(namespace)):
        await declare(cluster_client, namespace)
        (deployment,) = await until(deployments)
        template = deployment["spec"]["template"]
        container = {"name": "server", "image": "slipway-runtime:0.1.0"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "name": "p", "labels": template["metadata"]["labels"]},
            "spec": {"containers": [container]},
        }
        await cluster_client.create(POD, pod)
        waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
        state = {"name": "server", "state": {"waiting": waiting}, "image": "i", "imageID": "", "ready": False}
        status = {"status": {"phase": "Pending", "containerStatuses": [state | {"restartCount": 0}]}}
        await cluster_client.patch(POD, namespace, "p", status, subresource="status")

        async def told() -> bool:
            raw = await cluster_client.get(MODEL_DEPLOYMENT, namespace, "m")
            return "no such image" in str(raw.get("status"))

        await until(told)


async def test_a_restarted_operator_writes_nothing_to_a_world_at_rest(cluster_client, namespace):
    async def revisions() -> Any:
        return (await cluster_client.list(CONTROLLER_REVISION, namespace)).items

    async with running(settings(namespace)):
        await declare(cluster_client, namespace, suspend=True)
        await until(lambda: phase(cluster_client, namespace))
    before = await cluster_client.get(MODEL_DEPLOYMENT, namespace, "m")
    async with running(settings(namespace)):

        async def leads() -> bool:
            lease = await cluster_client.get(LEASE, namespace, "leader")
            return bool(lease["spec"]["holderIdentity"])

        await until(leads)
        await declare(cluster_client, namespace, name="other")
        await until(revisions)
    assert await cluster_client.get(MODEL_DEPLOYMENT, namespace, "m") == before


async def phase(client: Client, namespace: str) -> str:
    raw = await client.get(MODEL_DEPLOYMENT, namespace, "m")
    return str((raw.get("status") or {}).get("phase", ""))


async def test_a_standby_is_ready_but_does_not_lead_until_the_leader_goes(cluster_client, namespace):
    async def holder() -> str:
        return str((await cluster_client.get(LEASE, namespace, "leader"))["spec"]["holderIdentity"])

    async def leads(identity: str) -> bool:
        return await holder() == identity

    one, stop_one, run_one = start_engine(settings(namespace, identity="one"), cluster_client)
    await until(lambda: leads("one"))
    two, stop_two, run_two = start_engine(settings(namespace, identity="two"), cluster_client)
    await two.resync.primed.wait()
    assert (two.health.ready, two.health.leading, two.health.problems()) == (True, False, [])
    stop_one.set()
    await run_one
    await until(lambda: leads("two"))
    assert (one.health.leading, two.health.leading) == (False, True)
    stop_two.set()
    await run_two
    assert await holder() == ""


async def test_a_stolen_lease_ends_the_operator(cluster_client, namespace):
    times = LeaseTimes(duration=3.0, renew_deadline=2.0, retry=0.1)
    async with running(settings(namespace, lease_times=times)) as task:
        lease = await until(lambda: cluster_client.get(LEASE, namespace, "leader"))
        stolen = {"spec": {**lease["spec"], "holderIdentity": "thief", "leaseDurationSeconds": 3600}}
        await cluster_client.patch(LEASE, namespace, "leader", stolen)
        async with asyncio.timeout(60):
            await asyncio.wait([task])
    error = task.exception()
    assert isinstance(error, BaseExceptionGroup)
    assert error.split(LeaseLostError)[0] is not None


async def test_a_signal_ends_it_in_order(cluster_client, namespace):
    async with running(settings(namespace)) as task:
        await until(lambda: cluster_client.get(LEASE, namespace, "leader"))
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(60):
            await asyncio.wait([task])
        assert task.exception() is None
    lease = await cluster_client.get(LEASE, namespace, "leader")
    assert lease["spec"]["holderIdentity"] == ""


async def test_one_namespace_only(cluster_client, namespace):
    async with running(settings(namespace, namespaces=(namespace,))):
        await declare(cluster_client, namespace)
        await until(lambda: cluster_client.get(SERVICE, namespace, "m"))
