"""Shadowing: what stable's servers read, and the candidate's address, while there is one to compare."""

import json
from typing import Any

import pytest
from slipway.api.revisions import revision_of
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Outcome, Role, RolloutStatus, Stage
from slipway.resources import RenderOptions, desired

from tests import published
from tests.resources.rendering import IDENTITY, OPTIONS, entry_of, of_kind, only, raw_spec, revisions_of, template_of

SHADOWING = raw_spec(rollout={"shadow": {"percent": 10, "compare": "ArgMax"}}, serve="v2")
CANDIDATE = revision_of("sentiment", SHADOWING, "v2").name


def render(
    spec: dict[str, Any] = SHADOWING,
    rollout: dict[str, Any] | None = None,
    options: RenderOptions = OPTIONS,
    **candidate: Any,
) -> tuple[dict[str, Any], ...]:
    first, second = revisions_of(spec).values()
    state: dict[str, Any] = {"stage": Stage.EXPOSING} | (rollout or {})
    entry: dict[str, Any] = {"role": Role.CANDIDATE, "verified": "Passed", "ready_replicas": 1} | candidate
    status = ModelDeploymentStatus(
        versions=(entry_of(first, weight=100), entry_of(second, **entry)),
        rollout=RolloutStatus(id="r-000001", to="v2", to_revision=second.name, **state),
    )
    return desired(IDENTITY, ModelDeploymentSpec.from_wire(spec), status, revisions_of(spec), options)


def names(objects: tuple[dict[str, Any], ...], kind: str) -> list[str]:
    return [item["metadata"]["name"] for item in of_kind(objects, kind)]


def test_stable_is_told_whom_to_ask() -> None:
    objects = render()
    config = only(objects, "ConfigMap")
    assert config["metadata"]["name"] == "sentiment-shadow"
    assert json.loads(config["data"]["shadow.json"]) == {
        "target": f"http://{CANDIDATE}.nlp.svc.cluster.local:80",
        "stable": revision_of("sentiment", SHADOWING, "v1").name,
        "candidate": CANDIDATE,
        "percent": 10,
        "compare": "ArgMax",
    }
    assert names(objects, "Service") == ["sentiment", CANDIDATE]
    service = of_kind(objects, "Service")[1]
    assert service["spec"]["selector"]["slipway.dev/revision"] == CANDIDATE
    for item in (config, service):
        published.validate(item, "1.36")


def test_another_cluster_domain() -> None:
    objects = render(options=RenderOptions("slipway-runtime:1", "example.org"))
    assert ".nlp.svc.example.org:80" in only(objects, "ConfigMap")["data"]["shadow.json"]


def test_a_service_that_the_provider_has_already_is_not_made_twice() -> None:
    spec = SHADOWING | {"traffic": {"provider": "gateway-api"}}
    assert names(render(spec), "Service").count(CANDIDATE) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"rollout": {"outcome": Outcome.ROLLED_BACK, "stage": Stage.RETURNING}},
        {"rollout": {"outcome": Outcome.PROMOTED, "stage": Stage.FINISHED}},
        {"role": Role.RETIRING},
        {"verified": ""},
        {"ready_replicas": 0},
        {"spec": raw_spec(serve="v2")},
    ],
)
def test_nobody_is_asked_without_a_candidate_that_can_answer(change: dict[str, Any]) -> None:
    objects = render(**change)
    assert names(objects, "ConfigMap") == []
    assert names(objects, "Service") == ["sentiment"]


def test_pods_are_the_same_whether_shadowing_or_not() -> None:
    assert template_of(render()) == template_of(render(raw_spec(serve="v2")))
    volume = {"name": "shadow", "configMap": {"name": "sentiment-shadow", "optional": True}}
    assert volume in template_of(render())["spec"]["volumes"]
