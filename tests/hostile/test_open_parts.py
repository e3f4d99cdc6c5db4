"""Parts of a spec in Kubernetes' own language: nonsense there names its field; old revisions with it harm nobody."""

import json
from typing import Any

import pytest
from slipway.api.validation import validate
from slipway.resources.overlay import lay_over

from tests.engine.world import World
from tests.hostile.specimens import PLAUSIBLE, model_deployment
from tests.resources.rendering import canary, raw_spec, render, template_of


def problems(**runtime: Any) -> list[str]:
    version = {"name": "v1", "uri": "file:///m"}
    return [
        str(problem) for problem in validate(model_deployment({"versions": [version], "runtime": runtime})).problems
    ]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ({"spec": 5}, "spec.runtime.podTemplate.spec: must be an object, as in a Pod"),
        ({"metadata": []}, "spec.runtime.podTemplate.metadata: must be an object, as in a Pod"),
        ({"metadata": {"labels": ["a"]}}, "podTemplate.metadata.labels: must be an object of texts, as in a Pod"),
        ({"metadata": {"annotations": {"a": 5}}}, "podTemplate.metadata.annotations: must be an object of texts"),
        ({"spec": {"containers": "server"}}, "podTemplate.spec.containers: must be a list, as in a Pod"),
        ({"spec": {"containers": [5]}}, "podTemplate.spec.containers[0]: must be an object with name, as in a Pod"),
        (
            {"spec": {"volumes": [{"name": "a"}, {"name": {}}]}},
            "podTemplate.spec.volumes[1]: must be an object with name",
        ),
        (
            {"spec": {"containers": [{"name": "server", "env": [{"name": ["A"]}]}]}},
            "podTemplate.spec.containers[0].env[0]: must be an object with name",
        ),
    ],
)
def test_a_pod_template_of_another_shape_names_the_field(template: dict[str, Any], said: str) -> None:
    (problem,) = problems(podTemplate=template)
    assert said in problem


@pytest.mark.parametrize("engine", ["slipway", "triton", "vllm", "custom"])
@pytest.mark.parametrize("template", PLAUSIBLE["podTemplate"])
def test_no_template_breaks_the_rules_that_look_into_it(template: dict[str, Any], engine: str) -> None:
    problems(podTemplate=template, engine=engine)


def test_a_version_of_its_own_names_the_version() -> None:
    version = {"name": "v1", "uri": "file:///m", "runtime": {"podTemplate": {"spec": {"containers": ["x"]}}}}
    (problem,) = validate(model_deployment({"versions": [version]})).problems
    assert problem.field == "spec.versions[0].runtime.podTemplate.spec.containers[0]"


def test_what_removes_and_what_merges_is_accepted() -> None:
    server = {"name": "server", "livenessProbe": None, "ports": [{"containerPort": 9102}]}
    assert problems(podTemplate={"metadata": None, "spec": {"containers": [server]}}) == []
    assert problems(podTemplate={"metadata": {"labels": {"a": None}}, "spec": None}) == []


@pytest.mark.parametrize("template", PLAUSIBLE["podTemplate"])
def test_a_revision_from_before_the_rule_is_rendered_and_stays_selected(template: dict[str, Any]) -> None:
    spec = raw_spec(runtime={"podTemplate": template})
    labels = template_of(render(spec, canary(spec)))["metadata"]["labels"]
    assert labels["slipway.dev/version"] == "v1"


def test_lists_lie_over_what_is_none() -> None:
    assert lay_over({"env": 5}, {"env": [{"name": "A"}]}) == {"env": [{"name": "A"}]}
    assert lay_over({"env": [7, {"name": "A"}]}, {"env": [{"name": ["A"]}, 8]}) == {
        "env": [7, {"name": "A"}, {"name": ["A"]}, 8]
    }


@pytest.mark.parametrize("letter", ["x", "é", '"'])
async def test_what_is_large_is_run_or_names_its_version(letter: str) -> None:
    """As much as the schema takes: 128 variables of 32 KiB. What is accepted is applied, all of it."""
    outcomes = set()
    for number in (1, 8, 16, 128):
        value = letter * (32 * 1024 // len(letter.encode()))
        runtime = {"env": [{"name": f"A{index}", "value": value} for index in range(number)]}
        spec = {"versions": [{"name": "v1", "uri": "file:///m", "runtime": runtime}]}
        found = [str(problem) for problem in validate(model_deployment(spec)).problems]
        if found:
            (text,) = found
            assert text.startswith("spec.versions[0]: takes ")
            assert "of them runtime.env" in text
        else:
            world = World()
            world.declare(spec)
            await world.settle()
            assert world.status["phase"] == "Ready"
            for child in world.api.objects.values():
                annotations = child["metadata"].get("annotations") or {}
                assert sum(len(f"{key}{text}".encode()) for key, text in annotations.items()) < 256 * 1024
                assert len(json.dumps(child, ensure_ascii=False).encode()) < 1536 * 1024
        outcomes.add(bool(found))
    assert outcomes == {True, False}
