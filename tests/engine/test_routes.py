from typing import Any

import pytest
from slipway.api.traffic import Provider
from slipway.engine.claims import claimed_by_others
from slipway.engine.routes import traffic_view
from slipway.kube.cache import Cache
from slipway.kube.drift import DriftLedger
from slipway.kube.kinds import DESTINATION_RULE, VIRTUAL_SERVICE
from slipway.kube.metadata import Key

KEY = Key("nlp", "sentiment")
HOSTS = ["sentiment.nlp.svc.cluster.local", "sentiment.example.com"]
GATEWAYS = ["istio-ingress/public"]


class Mesh:
    def __init__(self) -> None:
        self.cache = Cache()
        self.version = 0

    def add(self, kind=VIRTUAL_SERVICE, namespace="nlp", name="sentiment", uid="uid-m", created="05", **spec: Any):
        self.version += 1
        owner = {"apiVersion": "slipway.dev/v1alpha1", "kind": "ModelDeployment", "name": name, "uid": uid}
        self.cache.put(
            kind,
            {
                "apiVersion": kind.api_version,
                "kind": kind.name,
                "metadata": {
                    "namespace": namespace,
                    "name": name,
                    "uid": f"{kind.name}-{namespace}-{name}",
                    "resourceVersion": str(self.version),
                    "creationTimestamp": f"2026-01-{created}T00:00:00Z",
                    "ownerReferences": [owner | {"controller": True}] if uid else [],
                },
                "spec": spec,
            },
        )

    def view(self):
        return traffic_view(self.cache, DriftLedger(), KEY, "uid-m", Provider.ISTIO)

    def claim(self):
        return claimed_by_others(self.cache, KEY, "uid-m", HOSTS, GATEWAYS)


@pytest.fixture
def mesh() -> Mesh:
    return Mesh()


def destination(subset: str, weight: int | None = None) -> dict[str, Any]:
    entry: dict[str, Any] = {"destination": {"host": HOSTS[0], "subset": subset}}
    return entry if weight is None else entry | {"weight": weight}


def test_nothing_is_nothing(mesh):
    assert (mesh.view().exists, mesh.view().weights, mesh.view().subsets) == (False, {}, frozenset())


def test_weights_of_the_default_route_and_subsets(mesh):
    mesh.add(
        http=[
            {"name": "grpc-default", "route": [destination("a", 1)]},
            {"name": "pin-v1", "route": [destination("a", 100)]},
            {"name": "default", "route": [destination("a", 75), destination("b", 25), destination("c")]},
        ]
    )
    mesh.add(DESTINATION_RULE, subsets=[{"name": "a"}, {"name": "b"}])
    assert mesh.view().exists
    assert mesh.view().weights == {"a": 75, "b": 25, "c": 0}
    assert mesh.view().subsets == {"a", "b"}


def test_a_lone_destination_takes_everything(mesh):
    mesh.add(http=[{"name": "default", "route": [destination("a")]}])
    assert mesh.view().weights == {"a": 100}


def test_objects_of_others_are_not_ours(mesh):
    mesh.add(uid="uid-other", http=[{"name": "default", "route": [destination("a", 100)]}])
    assert not mesh.view().exists
    assert mesh.view().weights == {}


def test_an_unrepaired_drift_is_told(mesh):
    mesh.add(http=[])
    ledger = DriftLedger(limit=0)
    ledger.assess(VIRTUAL_SERVICE, KEY, "kubectl-edit", "spec.http", 0.0)
    view = traffic_view(mesh.cache, ledger, KEY, "uid-m", Provider.ISTIO)
    assert (view.drifted, view.foreign_manager) == (True, "kubectl-edit")


def test_a_host_of_another_is_a_conflict_while_we_have_none(mesh):
    mesh.add(namespace="web", name="old", uid="", hosts=["sentiment.example.com"], gateways=["istio-ingress/public"])
    text = mesh.claim()
    assert text.startswith(
        "host sentiment.example.com on gateway istio-ingress/public is claimed by VirtualService web/old"
    )


def test_an_older_one_beats_ours_and_a_younger_one_does_not(mesh):
    mesh.add(hosts=HOSTS, gateways=GATEWAYS, created="05")
    mesh.add(namespace="web", name="young", uid="", hosts=HOSTS[1:], gateways=GATEWAYS, created="06")
    assert mesh.claim() == ""
    mesh.add(namespace="web", name="old", uid="", hosts=HOSTS[1:], gateways=GATEWAYS, created="04")
    assert "web/old" in mesh.claim()


def test_a_host_that_ours_does_not_name_yet_is_not_taken_from_a_younger_one(mesh):
    mesh.add(hosts=HOSTS[:1], gateways=GATEWAYS, created="05")
    mesh.add(namespace="web", name="young", uid="", hosts=HOSTS[1:], gateways=GATEWAYS, created="06")
    assert "web/young" in mesh.claim()


def test_the_short_name_of_our_service_is_our_host(mesh):
    mesh.add(name="shadow", uid="", hosts=["sentiment"])
    assert "nlp/shadow" in mesh.claim()


def test_another_gateway_is_no_conflict(mesh):
    mesh.add(namespace="web", name="other", uid="", hosts=HOSTS[1:], gateways=["istio-ingress/private"])
    mesh.add(namespace="web", name="mine", uid="", hosts=HOSTS[1:], gateways=["public"])
    assert mesh.claim() == ""


def test_one_that_is_not_exported_to_us_is_no_conflict(mesh):
    mesh.add(namespace="web", name="private", uid="", hosts=HOSTS[:1], exportTo=["."])
    assert mesh.claim() == ""
    mesh.add(namespace="web", name="public", uid="", hosts=HOSTS[:1], exportTo=["nlp"])
    assert "web/public" in mesh.claim()


def test_what_a_deleted_namesake_left_is_no_conflict(mesh):
    mesh.add(uid="uid-before", hosts=HOSTS)
    assert mesh.claim() == ""


def test_one_of_our_name_that_is_not_ours_is_a_conflict(mesh):
    mesh.add(uid="", hosts=HOSTS)
    assert "nlp/sentiment" in mesh.claim()
