"""The scripts of the how-to for Karmada, run over statuses that the operator writes in each phase."""

import functools
from typing import Any

import pytest
from lupa.lua54 import LuaRuntime, lua_type

from tests.docs.blocks import ROOT, manifests
from tests.gitops.phases import recorded

HOWTO = ROOT / "docs/howto/karmada.md"


@functools.cache
def script(operation: str) -> str:
    [found] = [obj for _, obj in manifests()[HOWTO] if obj["kind"] == "ResourceInterpreterCustomization"]
    return str(found["spec"]["customizations"][operation]["luaScript"])


def call(operation: str, function: str, *arguments: Any) -> Any:
    lua = LuaRuntime()
    lua.execute(script(operation))
    answer = lua.globals()[function](*(lua.table_from(argument, recursive=True) for argument in arguments))
    return plain(answer)


def plain(value: Any) -> Any:
    if lua_type(value) != "table":
        return value
    items = {key: plain(item) for key, item in value.items()}
    if items and set(items) == set(range(1, len(items) + 1)):
        return [items[key] for key in sorted(items)]
    return items


def described(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {"generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z", **obj["metadata"]}}


@pytest.mark.parametrize("phase", sorted(recorded()))
def test_only_a_ready_object_is_healthy(phase: str) -> None:
    assert call("healthInterpretation", "InterpretHealth", described(recorded()[phase])) is (
        phase in ("Ready", "Deleted")
    )


def aggregated(*phases: str) -> dict[str, Any]:
    objects = [described(recorded()[phase]) for phase in phases]
    items = [
        {"clusterName": f"member{number}", "status": call("statusReflection", "ReflectStatus", obj)}
        for number, obj in enumerate(objects)
    ]
    template = {key: value for key, value in objects[0].items() if key != "status"}
    return dict(call("statusAggregation", "AggregateStatus", template, items)["status"])


def test_ready_everywhere_is_ready() -> None:
    status = aggregated("Ready", "Ready")
    assert (status["phase"], status["stable"], status["replicas"]) == ("Ready", "v1", 4)
    [ready] = status["conditions"]
    assert ready["status"] == "True"
    assert ready["lastTransitionTime"]
    assert status["observedGeneration"] == ready["observedGeneration"]


@pytest.mark.parametrize(
    ("phases", "worst"),
    [
        (("Ready", "Progressing"), "Progressing"),
        (("Stalled", "Progressing"), "Stalled"),
        (("Ready", "Degraded", "Stalled"), "Degraded"),
        (("Paused", "Ready"), "Paused"),
    ],
)
def test_the_worst_cluster_is_told_by_name(phases: tuple[str, ...], worst: str) -> None:
    status = aggregated(*phases)
    [ready] = status["conditions"]
    assert (status["phase"], ready["status"], ready["reason"]) == (worst, "False", worst)
    assert f"member{phases.index(worst)}: {worst}" in ready["message"]


def test_no_member_has_answered_yet() -> None:
    obj = described(recorded()["Ready"])
    assert call("statusAggregation", "AggregateStatus", obj, []) is not None
    assert call("statusReflection", "ReflectStatus", described(recorded()["NotYetSeen"])) is None
