"""Modes in which somebody else decides, and scalers that nobody asked for."""

import dataclasses
from typing import Any

import pytest
from slipway.api.status import ModelDeploymentStatus, RolloutStatus, Stage
from slipway.api.validation import validate
from slipway.resources.hpa import horizontal_pod_autoscaler
from slipway.scaling import ScalingRequest

from tests import published
from tests.resources.rendering import IDENTITY, canary, of_kind, only, raw_spec, render
from tests.scaling.scenes import autoscaling, decide, entry, outcome, pod, request, round_trip, view

HPA = {"mode": "HPA", "minReplicas": 2, "maxReplicas": 9, "qps": {"target": 60}, "tolerance": 0.2}


def seen_by_scaler(live: int, *, mode: str = "HPA", scaler: str = "", **fields: Any) -> ScalingRequest:
    """Two replicas wanted up to now, while the Deployment says ``live``."""
    pods = view(*(pod(number) for number in range(2)), scaler=scaler)
    settings = autoscaling(**(HPA | {"mode": mode}))
    values = {"minimum": 2, "view": dataclasses.replace(pods, replicas=live)} | fields
    return request(2, 600.0, settings=settings, **values)


def test_the_number_that_our_hpa_wrote_is_followed_within_what_the_rollout_needs() -> None:
    assert outcome(decide(seen_by_scaler(5))) == (5, "SetByHPA")
    assert outcome(decide(seen_by_scaler(5, floor=7))) == (7, "SetByHPA")
    assert decide(seen_by_scaler(50)).replicas == 9
    assert decide(seen_by_scaler(1)).replicas == 2
    result = decide(seen_by_scaler(5, floor=7))
    assert result.entry.floor == 7
    assert result.decision is not None, "what somebody else decided is recorded as well"


def test_a_foreign_scaler_is_left_alone_and_named() -> None:
    result = decide(seen_by_scaler(6, mode="Operator", scaler="ScaledObject models"))
    assert (result.replicas, result.reason, result.active) == (6, "ScalerConflict", False)
    assert "ScaledObject models" in result.message
    again = dataclasses.replace(seen_by_scaler(6, mode="Operator"), entry=round_trip(result.entry))
    assert outcome(decide(again)) == (6, "LimitedRate"), "once it is gone, load decides again"


def test_the_modes_external_and_none_refuse_a_foreign_scaler_of_the_deployment_too() -> None:
    for mode in ("External", "None"):
        assert outcome(decide(seen_by_scaler(4, mode=mode, scaler="HorizontalPodAutoscaler x"))) == (
            4,
            "ScalerConflict",
        )


@pytest.mark.parametrize("version", ["1.32", "1.36"])
def test_the_rendered_autoscaler_is_valid(version: str) -> None:
    """kserve #4764: a generated HPA that the API server refused."""
    spec = raw_spec(autoscaling=HPA | {"concurrency": {"target": 1.5}})
    scalers = of_kind(render(spec, canary(spec)), "HorizontalPodAutoscaler")
    assert len(scalers) == 2, "one for stable, one for the candidate"
    for scaler in scalers:
        scaler["spec"]["behavior"] = {
            way: {name: value for name, value in rules.items() if version == "1.36" or name != "tolerance"}
            for way, rules in scaler["spec"]["behavior"].items()
        }
        published.validate(scaler, version)


def test_what_the_autoscaler_says() -> None:
    spec = raw_spec(autoscaling=HPA | {"concurrency": {"target": 1.5}, "cooldown": "10m"})
    stable = canary(spec)[0].model_copy(update={"floor": 4})
    scaler = only(render(spec, (stable,)), "HorizontalPodAutoscaler")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (4, 9)
    assert scaler["scaleTargetRef"]["name"] == stable.revision
    external = {
        metric["external"]["metric"]["name"]: metric["external"] for metric in scaler["metrics"] if "external" in metric
    }
    assert external["slipway_requests_per_second"]["target"] == {"type": "AverageValue", "averageValue": "60"}
    assert external["slipway_requests_in_flight"]["target"]["averageValue"] == "1500m"
    assert external["slipway_requests_per_second"]["metric"]["selector"]["matchLabels"] == {"revision": stable.revision}
    assert scaler["metrics"][-1]["pods"]["metric"]["name"] == "gpu_utilization"
    down = scaler["behavior"]["scaleDown"]
    assert (down["stabilizationWindowSeconds"], down["policies"][0]["periodSeconds"]) == (300, 600)
    assert down["tolerance"] == "200m"


def test_a_target_too_small_for_a_quantity_is_the_smallest_there_is() -> None:
    spec = raw_spec(autoscaling=HPA | {"qps": {"target": 0.0001}})
    scaler = only(render(spec, (canary(spec)[0],)), "HorizontalPodAutoscaler")["spec"]
    assert scaler["metrics"][0]["external"]["target"]["averageValue"] == "1m", "the API refuses 0"


def test_during_a_rollout_the_autoscaler_removes_nothing() -> None:
    spec = raw_spec(autoscaling=HPA)
    rollout = RolloutStatus(id="r-1", to="v2", stage=Stage.OBSERVING)
    typed = validate({"metadata": {"name": "sentiment"}, "spec": spec}).spec
    assert typed is not None
    scaler = horizontal_pod_autoscaler(IDENTITY, typed, ModelDeploymentStatus(rollout=rollout), entry(2))
    assert scaler["spec"]["behavior"]["scaleDown"]["selectPolicy"] == "Disabled"


def test_other_modes_render_none() -> None:
    spec = raw_spec()
    assert of_kind(render(spec, canary(spec)), "HorizontalPodAutoscaler") == []


def test_mode_hpa_needs_a_target() -> None:
    """kserve #6169: an autoscaler without a metric of its own scales on CPU."""
    raw = raw_spec(autoscaling={"mode": "HPA", "gpuUtilization": {"target": 0}})
    outcome_ = validate({"metadata": {"name": "m"}, "spec": raw})
    assert [problem.field for problem in outcome_.problems] == ["spec.autoscaling.mode"]
