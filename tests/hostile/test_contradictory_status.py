"""Statuses whose every part is well-formed and that cannot be true as a whole: they are rebuilt, not lived with."""

from collections.abc import Callable
from typing import Any

import pytest
from slipway.api.revisions import revision_of
from slipway.kube.kinds import DEPLOYMENT

from tests.engine.world import KEY, World, versions

Status = dict[str, Any]
ROLLOUT = {"steps": [{"weight": 10, "pause": {}}, {"weight": 50, "hold": "1s"}], "analysis": {"checks": []}}


def spec_serving(served: str) -> dict[str, Any]:
    return versions("v1", "v2", "v3", serve=served, rollout=ROLLOUT)


def revision(version: str) -> str:
    return revision_of(KEY.name, spec_serving("v1"), version).name


def entry(version: str, role: str, weight: int, name: str = "") -> Status:
    shares = {"intended": weight, "applied": weight}
    return {"name": version, "revision": name or revision(version), "role": role, "replicas": 1, "weight": shares}


def of_versions(*entries: Status) -> Callable[[Status], Status]:
    return lambda status: status | {"versions": list(entries)}


def of_rollout(**changes: Any) -> Callable[[Status], Status]:
    return lambda status: status | {"rollout": status["rollout"] | changes}


AT_REST = {
    "two stable ones": of_versions(entry("v1", "Stable", 100), entry("v3", "Stable", 0)),
    "one revision twice": of_versions(entry("v1", "Stable", 100), entry("v1", "Previous", 0)),
    "a candidate without a rollout": of_versions(entry("v1", "Stable", 100), entry("v3", "Candidate", 0)),
    "candidates alone": of_versions(entry("v1", "Candidate", 100), entry("v2", "Candidate", 0)),
    "a stable one that is not there": of_versions(entry("v1", "Stable", 100, f"{KEY.name}-v1-00000000")),
    "stable texts that no object may bear": of_versions(entry('"\n', "Stable", 100, f'{KEY.name}-"\n-0')),
    "the stable one is being rolled back": of_rollout(stage="Returning", outcome="Failed"),
    "a rollout of nothing": of_rollout(stage="Shifting", to="", toRevision=""),
}
AT_TEN = {
    "the candidate is stable": of_versions(entry("v2", "Stable", 100), entry("v1", "Previous", 0)),
    "another is stable": of_versions(entry("v3", "Stable", 90), entry("v2", "Candidate", 10)),
    "stable is on its way out": of_versions(entry("v1", "Retiring", 0), entry("v2", "Candidate", 10)),
    "two candidates": of_versions(entry("v1", "Candidate", 90), entry("v2", "Candidate", 10)),
    "a stable one that is not there": of_versions(
        entry("v1", "Stable", 90, f"{KEY.name}-v1-00000000"), entry("v2", "Candidate", 10)
    ),
}


async def forged(world: World, forge: Callable[[Status], Status]) -> None:
    """Write a status over what is there and let time pass."""
    stored = world.api.get("modeldeployments", *KEY)
    world.events.clear()
    world.api.put({**stored, "status": forge(world.status)})
    await world.settle()
    assert [event.reason for event in world.events].count("StatusUnreadable") == 1


def live(world: World) -> dict[str, tuple[str, int, int]]:
    return {
        one["name"]: (one["role"], one["weight"]["intended"], one["weight"]["applied"])
        for one in world.status["versions"]
    }


def deployments(world: World) -> set[str]:
    return {name for plural, _, name in world.api.objects if plural == DEPLOYMENT.plural}


@pytest.mark.parametrize("forge", AT_REST.values(), ids=AT_REST.keys())
async def test_at_rest_what_serves_goes_on_alone(forge: Callable[[Status], Status]) -> None:
    world = World()
    world.declare(spec_serving("v1"))
    await world.settle()
    await forged(world, forge)
    assert (world.status["phase"], live(world)) == ("Ready", {"v1": ("Stable", 100, 100)})
    assert deployments(world) == {revision("v1")}


@pytest.mark.parametrize("forge", AT_TEN.values(), ids=AT_TEN.keys())
async def test_a_rollout_goes_on_from_the_live_weight(forge: Callable[[Status], Status]) -> None:
    world = World()
    world.declare(spec_serving("v1"))
    await world.settle()
    world.declare(spec_serving("v2"))
    await world.settle()
    there = {"v1": ("Stable", 90, 90), "v2": ("Candidate", 10, 10)}
    assert live(world) == there
    await forged(world, forge)
    assert live(world) == there
    assert deployments(world) == {revision("v1"), revision("v2")}
    assert world.status["rollout"]["reason"] == "AwaitingPromotion"
