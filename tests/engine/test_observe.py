from typing import Any

import pytest
from slipway.api.observed import ProbeView
from slipway.api.status import VersionStatus
from slipway.engine.goldens_reader import GoldensReader
from slipway.engine.observe import Observer, Remarks
from slipway.kube.apply import Applier
from slipway.kube.cache import Cache
from slipway.kube.client import Client, RetryPolicy
from slipway.kube.kinds import CONTROLLER_REVISION, DEPLOYMENT, POD, VIRTUAL_SERVICE, Kind
from slipway.kube.metadata import Key
from slipway.rollout.startup import startup_message

from tests.kube.memory_api import MemoryApi

KEY = Key("ns", "m")
REVISION = "m-v1-aaaaaaaa"
RAW: dict[str, Any] = {
    "apiVersion": "slipway.dev/v1alpha1",
    "kind": "ModelDeployment",
    "metadata": {"namespace": "ns", "name": "m", "uid": "uid-m", "generation": 4},
    "spec": {},
}
READY = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}]}


class Prober:
    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def view(self, revision: Any, pods: Any, goldens: Any, model_name: str, *, key: Any = None) -> ProbeView:
        self.asked.append((revision.name, [pod.name for pod in pods], goldens, model_name, key))
        return ProbeView(passed=True, loaded_digest="sha256:1")

    async def close(self) -> None:
        pass


class Stage:
    def __init__(self) -> None:
        self.api, self.cache, self.prober = MemoryApi(), Cache(), Prober()
        self.now, self.version = 0.0, 0
        client = Client(self.api, retry=RetryPolicy(attempts=1))
        self.remarks = Remarks()
        self.observer = Observer(
            self.cache,
            Applier(client, self.cache),
            self.remarks,
            GoldensReader(client, lambda: self.now),
            prober=self.prober,
        )

    def add(self, kind: Kind, name: str, revision: str = REVISION, uid: str = "uid-m", **fields: Any) -> None:
        self.version += 1
        metadata = {
            "namespace": "ns",
            "name": name,
            "uid": f"uid-{kind.plural}-{name}",
            "resourceVersion": str(self.version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "app.kubernetes.io/managed-by": "slipway",
                "slipway.dev/model-deployment": "m",
                "slipway.dev/version": "v1",
                "slipway.dev/revision": revision,
            },
            "ownerReferences": [{"kind": "ModelDeployment", "name": "m", "uid": uid, "controller": True}],
        }
        head = {"apiVersion": kind.api_version, "kind": kind.name}
        self.cache.put(kind, {**head, "metadata": metadata, **fields})

    def add_revision(self, goldens: str = "") -> None:
        version: dict[str, Any] = {"name": "v1", "uri": "file:///m"}
        if goldens:
            version["goldens"] = {"configMap": goldens}
        self.add(CONTROLLER_REVISION, REVISION, data={"version": version})


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_nothing_is_observed_of_nothing(stage):
    observed = await stage.observer.observe(RAW)
    assert (observed.name, observed.namespace, observed.uid, observed.generation) == ("m", "ns", "uid-m", 4)
    assert (observed.revisions, observed.definitions, observed.conflict) == ({}, {}, "")
    assert not observed.mesh_missing


async def test_a_revision_with_its_pods(stage):
    stage.add_revision()
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    stage.add(DEPLOYMENT, REVISION, spec={"replicas": 3}, status={"conditions": [failure]})
    stage.add(POD, "p1", spec={"containers": []}, status=READY)
    stage.add(POD, "p2", spec={"containers": []}, status={})
    observed = await stage.observer.observe(RAW)
    view = observed.of(REVISION)
    assert (view.version, view.exists, view.replicas, view.ready, len(view.pods)) == ("v1", True, 3, 1, 2)
    assert view.failure == "exceeded quota"
    assert view.probe == ProbeView(passed=True, loaded_digest="sha256:1")
    assert stage.prober.asked == [(REVISION, ["p1", "p2"], None, "m", KEY)]
    definition = observed.definitions[REVISION]
    assert (definition.version, definition.data) == ("v1", {"version": {"name": "v1", "uri": "file:///m"}})


async def test_objects_of_a_namesake_do_not_count(stage):
    stage.add(DEPLOYMENT, REVISION, uid="uid-before", spec={"replicas": 3})
    stage.add(CONTROLLER_REVISION, REVISION, uid="uid-before", data={})
    observed = await stage.observer.observe(RAW)
    assert (observed.definitions, observed.revisions) == ({}, {})


async def test_pods_that_nobody_wants_any_more_are_seen(stage):
    stage.add(POD, "p1", revision="m-v0-bbbbbbbb", spec={}, status=READY)
    view = (await stage.observer.observe(RAW)).of("m-v0-bbbbbbbb")
    assert (view.exists, view.ready) == (False, 1)
    assert stage.prober.asked == []


async def test_pods_that_are_over_for_good_are_no_pods_of_the_revision(stage):
    stage.add_revision()
    stage.add(DEPLOYMENT, REVISION, spec={"replicas": 1})
    crashed = [{"name": "server", "restartCount": 9, "lastState": {"terminated": {"reason": "OOMKilled"}}}]
    evicted = {"reason": "Evicted", "message": "The node was low on resource: memory.", "containerStatuses": crashed}
    stage.add(POD, "p0", spec={"containers": []}, status={"phase": "Failed", **evicted})
    stage.add(POD, "p1", spec={"containers": []}, status={"phase": "Succeeded"})
    stage.add(POD, "p2", spec={"containers": []}, status={"phase": "Pending"})
    view = (await stage.observer.observe(RAW)).of(REVISION)
    assert [pod.name for pod in view.pods] == ["p2"]
    assert view.ended == "pod p0 ended: Evicted: The node was low on resource: memory."
    entry = VersionStatus(name="v1", revision=REVISION)
    assert startup_message(entry, view, 1) == ("WaitingForPods", f"0 of 1 pods of v1 are ready; {view.ended}")


async def test_goldens_that_keep_pods_from_starting_are_named(stage):
    """A pod that mounts a ConfigMap which does not exist waits for ever, and its status does not say for what."""
    stage.add_revision(goldens="answers")
    stage.add(POD, "p1", spec={}, status={})
    view = (await stage.observer.observe(RAW)).of(REVISION)
    assert view.probe.reason == "GoldensMissing"
    assert startup_message(VersionStatus(name="v1", revision=REVISION), view, 1) == (
        "GoldensMissing",
        "0 of 1 pods of v1 are ready; ConfigMap answers with the goldens does not exist",
    )
    assert stage.prober.asked == []


async def test_goldens_are_read_once_in_a_while(stage):
    stage.add_revision(goldens="answers")
    stage.add(POD, "p1", spec={}, status=READY)
    view = (await stage.observer.observe(RAW)).of(REVISION)
    assert (view.probe.passed, view.probe.reason) == (None, "GoldensMissing")
    assert "answers" in view.probe.message
    data = {"a.json": "[]"}
    stage.api.put(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ns", "name": "answers"}, "data": data}
    )
    await stage.observer.observe(RAW)
    calls = len(stage.api.calls)
    await stage.observer.observe(RAW)
    assert len(stage.api.calls) == calls
    assert stage.prober.asked[-1][2] == data
    stage.now += 60
    await stage.observer.observe(RAW)
    assert len(stage.api.calls) == calls + 1


async def test_a_refusal_of_the_api_server_counts_as_a_failure(stage):
    stage.add_revision()
    stage.remarks.refused[KEY] = {(DEPLOYMENT, Key("ns", REVISION)): "the API server refuses it"}
    assert (await stage.observer.observe(RAW)).of(REVISION).failure == "the API server refuses it"


async def test_a_missing_mesh_is_told(stage):
    stage.cache.unserved(VIRTUAL_SERVICE)
    assert (await stage.observer.observe(RAW)).mesh_missing


async def test_a_spec_of_any_shape_is_borne(stage):
    for traffic in ({"hosts": "x", "gateways": None}, {"hosts": [1, None]}, {}):
        assert (await stage.observer.observe({**RAW, "spec": {"traffic": traffic}})).conflict == ""
