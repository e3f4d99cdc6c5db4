"""Somebody else's scaler on our Deployments is seen, named and forgotten."""

from typing import Any

import pytest
from slipway.kube.cache import Cache, scaled_deployment
from slipway.kube.kinds import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, SCALED_OBJECT, Kind
from slipway.kube.metadata import Key

from tests.engine.test_observe import RAW, REVISION, Stage


def scaler(kind: Kind, name: str, target: dict[str, Any], version: int = 1) -> dict[str, Any]:
    metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "labels": {}}
    head = {"apiVersion": kind.api_version, "kind": kind.name}
    return {**head, "metadata": metadata, "spec": {"scaleTargetRef": target}}


def hpa(name: str, target: str, version: int = 1) -> dict[str, Any]:
    return scaler(HORIZONTAL_POD_AUTOSCALER, name, {"kind": "Deployment", "name": target}, version)


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ({"kind": "Deployment", "name": "d"}, Key("ns", "d")),
        ({"name": "d"}, Key("ns", "d")),
        ({"kind": "StatefulSet", "name": "d"}, None),
        ({}, None),
    ],
)
def test_what_a_scaler_scales(target: dict[str, Any], named: Key | None) -> None:
    assert scaled_deployment(scaler(SCALED_OBJECT, "x", target)) == named


def test_what_is_no_scaler_scales_nothing() -> None:
    assert scaled_deployment({"kind": "Deployment", "metadata": {"namespace": "ns"}, "spec": {}}) is None


def test_the_cache_finds_scalers_by_their_deployment() -> None:
    cache = Cache()
    cache.put(HORIZONTAL_POD_AUTOSCALER, hpa("a", "d"))
    cache.put(SCALED_OBJECT, scaler(SCALED_OBJECT, "b", {"name": "d"}))
    assert [obj["metadata"]["name"] for obj in cache.scalers(Key("ns", "d"))] == ["a", "b"]
    assert cache.scalers(Key("other", "d")) == []
    cache.put(HORIZONTAL_POD_AUTOSCALER, hpa("a", "elsewhere", version=2))
    assert [obj["metadata"]["name"] for obj in cache.scalers(Key("ns", "d"))] == ["b"]


async def test_a_foreign_scaler_is_named_until_it_is_gone() -> None:
    stage = Stage()
    stage.add_revision()
    stage.add(DEPLOYMENT, REVISION, spec={"replicas": 3})
    foreign = hpa("keda-hpa-models", REVISION)
    stage.cache.put(HORIZONTAL_POD_AUTOSCALER, foreign)
    assert (await stage.observer.observe(RAW)).of(REVISION).scaler == "HorizontalPodAutoscaler keda-hpa-models"
    stage.cache.put(SCALED_OBJECT, scaler(SCALED_OBJECT, "models", {"name": REVISION}))
    assert (await stage.observer.observe(RAW)).of(REVISION).scaler == "ScaledObject models", "what a person knows"
    stage.cache.remove(SCALED_OBJECT, scaler(SCALED_OBJECT, "models", {"name": REVISION}))
    stage.cache.remove(HORIZONTAL_POD_AUTOSCALER, foreign)
    assert (await stage.observer.observe(RAW)).of(REVISION).scaler == ""


async def test_our_own_scaler_is_none_of_somebody_elses() -> None:
    stage = Stage()
    stage.add_revision()
    stage.add(DEPLOYMENT, REVISION, spec={"replicas": 3})
    target = {"kind": "Deployment", "name": REVISION}
    stage.add(HORIZONTAL_POD_AUTOSCALER, REVISION, spec={"scaleTargetRef": target})
    assert (await stage.observer.observe(RAW)).of(REVISION).scaler == ""
