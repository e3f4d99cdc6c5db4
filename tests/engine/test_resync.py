import math

import pytest
from slipway.engine.resync import Resync
from slipway.engine.telemetry import Telemetry
from slipway.kube.cache import Cache
from slipway.kube.client import Client, RetryPolicy
from slipway.kube.failures import ForbiddenError, NotFoundError
from slipway.kube.kinds import MODEL_DEPLOYMENT, SERVICE, VIRTUAL_SERVICE
from slipway.kube.metadata import Key

from tests.kube.memory_api import MemoryApi, status


class EnoughError(Exception):
    """Ends the loop under test."""


class Stage:
    def __init__(self, rounds: int = 1, namespaces: tuple[str, ...] = (), often: float = math.inf) -> None:
        self.api, self.cache = MemoryApi(), Cache()
        self.now, self.rounds = 0.0, rounds
        self.waits: list[float] = []
        self.queued: list[Key] = []
        self.resync = Resync(
            Client(self.api, retry=RetryPolicy(attempts=1)),
            self.cache,
            Telemetry(),
            namespaces=namespaces,
            period=100.0,
            retry=5.0,
            often=often,
            clock=lambda: self.now,
            sleep=self.sleep,
            draw=lambda: 0.5,
            on_changed=self.queued.append,
        )

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        if len(self.waits) == self.rounds:
            raise EnoughError

    async def run(self) -> None:
        with pytest.raises(EnoughError):
            await self.resync.run()

    def add(self, name: str, namespace: str = "ns", kind: str = "ModelDeployment", owner: str = "") -> None:
        labels = {"app.kubernetes.io/managed-by": "slipway", "slipway.dev/model-deployment": owner}
        self.api.put(
            {
                "apiVersion": {"Service": "v1", "ModelDeployment": "slipway.dev/v1alpha1"}[kind],
                "kind": kind,
                "metadata": {"namespace": namespace, "name": name, "labels": labels if owner else {}},
            }
        )


async def test_the_first_list_queues_everything():
    stage = Stage()
    stage.add("a")
    stage.add("b")
    assert not stage.resync.primed.is_set()
    await stage.resync.once()
    assert stage.resync.primed.is_set()
    assert stage.queued == [Key("ns", "a"), Key("ns", "b")]


async def test_later_lists_queue_what_differed_or_vanished():
    stage = Stage()
    stage.add("a")
    stage.add("a-child", kind="Service", owner="a")
    stage.add("b")
    stage.add("b-child", kind="Service", owner="b")
    await stage.resync.once()
    stage.queued.clear()
    await stage.resync.once()
    assert stage.queued == []
    stage.api.drop("services", "ns", "b-child")
    await stage.resync.once()
    assert stage.queued == [Key("ns", "b")]
    assert stage.cache.get(SERVICE, Key("ns", "b-child")) is None


async def test_only_our_own_children_are_asked_for_but_every_route():
    stage = Stage()
    await stage.resync.once()
    selectors = {call.path.rpartition("/")[2]: dict(call.query).get("labelSelector") for call in stage.api.calls}
    own = "app.kubernetes.io/managed-by=slipway"
    assert selectors["modeldeployments"] is None
    assert selectors["virtualservices"] is None
    assert {selectors[name] for name in ("pods", "deployments", "services")} == {own}


async def test_a_mesh_that_is_missing_is_noted():
    stage = Stage()
    stage.api.unknown |= {"virtualservices"}
    await stage.resync.once()
    assert not stage.cache.served(VIRTUAL_SERVICE)
    stage.api.unknown.clear()
    await stage.resync.once()
    assert stage.cache.served(VIRTUAL_SERVICE)


async def test_our_own_kind_missing_is_a_failure():
    stage = Stage()
    stage.api.unknown |= {"modeldeployments"}
    with pytest.raises(NotFoundError):
        await stage.resync.once()
    assert not stage.resync.primed.is_set()


async def test_a_missing_permission_is_named():
    stage = Stage()
    stage.api.faults.append(lambda call: status(403, "Forbidden", "no") if call.path.endswith("pods") else None)
    with pytest.raises(ForbiddenError, match="listing pods is not allowed"):
        await stage.resync.once()


async def test_failures_are_tried_again_soon_and_age_the_list():
    stage = Stage(rounds=3)
    failing = [True]

    def fault(call):
        return status(500, "InternalError", "down") if stage.now > 50 and failing else None

    stage.api.faults.append(fault)
    await stage.run()
    assert stage.waits == [100.0, 5.0, 5.0]
    assert stage.resync.age == 110.0
    failing.clear()
    await stage.resync.once()
    assert stage.resync.age == 0.0


async def test_namespaces_are_listed_one_by_one_and_leave_each_other_alone():
    stage = Stage(namespaces=("x", "y"))
    stage.add("a", namespace="x")
    stage.add("b", namespace="y")
    stage.add("c", namespace="z")
    await stage.resync.once()
    assert sorted(stage.cache.keys(MODEL_DEPLOYMENT)) == [Key("x", "a"), Key("y", "b")]


async def test_resource_versions_that_went_back_mean_another_past():
    """etcd was restored from a backup: what is known as newer is a ghost, what was deleted since is back."""
    stage = Stage()
    stage.add("kept")
    stage.add("s", kind="Service", owner="kept")
    await stage.resync.once()
    labels = stage.api.get("services", "ns", "s")["metadata"]["labels"]
    metadata = {"namespace": "ns", "name": "ghost", "uid": "g", "resourceVersion": "999", "labels": labels}
    ghost = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
    stage.cache.put(SERVICE, ghost)
    stage.queued.clear()
    await stage.resync.once()
    assert stage.cache.keys(SERVICE) == [Key("ns", "s")]
    assert stage.queued == [Key("ns", "kept")]


def lists(stage: Stage, plural: str) -> int:
    return sum(call.method == "GET" and call.path.endswith(f"/{plural}") for call in stage.api.calls)


async def test_model_deployments_are_listed_more_often_than_the_rest():
    stage = Stage(rounds=3, often=45.0)
    await stage.run()
    assert stage.waits == [45.0, 45.0, 10.0]
    assert (lists(stage, "modeldeployments"), lists(stage, "services")) == (3, 1)
    assert stage.resync.models_listed_at == 90.0


async def test_a_list_of_model_deployments_that_fails_is_of_no_consequence():
    stage = Stage(rounds=2, often=45.0)
    await stage.resync.once()
    stage.api.faults.append(lambda call: status(500, "InternalError", "down"))
    with pytest.raises(EnoughError):
        await stage.resync._wait(100.0)
    assert (stage.waits, stage.resync.models_listed_at) == ([45.0, 45.0], 0.0)


async def test_model_deployments_of_an_older_past_mean_that_everything_is_listed():
    stage = Stage()
    stage.add("a")
    await stage.resync.once()
    before = lists(stage, "services")
    newer = {**stage.api.get("modeldeployments", "ns", "a")}
    newer["metadata"] = {**newer["metadata"], "resourceVersion": "999999"}
    stage.cache.put(MODEL_DEPLOYMENT, newer)
    await stage.resync.models()
    assert lists(stage, "services") == before + 1


async def test_after_a_restore_an_object_is_what_it_is_now_even_under_a_version_that_was_seen_before():
    stage = Stage()
    stage.add("m")
    await stage.run()
    listed = stage.cache.get(MODEL_DEPLOYMENT, Key("ns", "m"))
    assert listed is not None
    lost = {**listed, "metadata": {**listed["metadata"], "name": "lost", "uid": "lost", "resourceVersion": "900"}}
    stage.cache.put(MODEL_DEPLOYMENT, lost)
    shelf = next(iter(found for found in stage.api.objects.values() if found["metadata"]["name"] == "m"))
    shelf["spec"] = {"serve": "another"}
    await stage.resync.once()
    restored = stage.cache.get(MODEL_DEPLOYMENT, Key("ns", "m"))
    assert restored is not None
    assert restored["metadata"]["resourceVersion"] == listed["metadata"]["resourceVersion"]
    assert restored["spec"] == {"serve": "another"}
    assert stage.cache.get(MODEL_DEPLOYMENT, Key("ns", "lost")) is None
