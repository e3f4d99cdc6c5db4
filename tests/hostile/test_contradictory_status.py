"""Statuses whose every part is well-formed and that cannot be true as a whole: they are rebuilt, not lived with."""

from collections.abc import Callable
from typing import Any

import pytest
from slipway.api.observed import Observed
from slipway.api.revisions import revision_of
from slipway.api.status import ModelDeploymentStatus
from slipway.engine.coherence import coherent
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
LEFT_ALONE = {
    "the stable one without its subset": {"subset": False},
    "the stable one without its subset's age": {"subset": False, "subsetAt": "9999-12-31T23:59:59Z"},
    "weight that nothing holds": {"weight": {"intended": 0, "applied": 0}, "subset": False},
    "not verified": {"verified": "Failed"},
}
"""Parts of the stable version's entry that somebody writes."""
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


@pytest.mark.parametrize("part", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
async def test_the_route_of_what_serves_is_never_taken_away(part: Status) -> None:
    world = World()
    world.declare(spec_serving("v1"))
    await world.settle()
    stored = world.api.get("modeldeployments", *KEY)
    entries = [{**world.status["versions"][0], **part}]
    world.api.put({**stored, "status": world.status | {"versions": entries}})
    for _ in range(6):
        await world.reconcile()
        world.now += 6.0
        rule, route = (world.api.get(plural, *KEY)["spec"] for plural in ("destinationrules", "virtualservices"))
        assert [subset["name"] for subset in rule["subsets"]] == [revision("v1")]
        assert route["http"][-1]["route"][0]["destination"]["subset"] == revision("v1")
    assert (world.status["phase"], live(world)) == ("Ready", {"v1": ("Stable", 100, 100)})


@pytest.mark.parametrize(
    "part",
    [
        {"candidate": {"requests": -5, "bad": 0}},
        {"stable": {"requests": 5, "bad": 6}},
        {"candidate": {"requests": 5, "bad": -1}},
        {"windows": -1},
        {"silentWindows": -1},
        {"badWindows": -1},
    ],
)
def test_evidence_of_what_cannot_be_counted_is_gathered_anew(part: Status) -> None:
    checks = [{"name": "errors", "windows": 2}, {"name": "latency", "windows": 2, **part}]
    status = ModelDeploymentStatus.from_wire({"analysis": checks})
    observed = Observed(name=KEY.name, namespace=KEY.namespace, uid="u", generation=1)
    kept, events = coherent(status, observed, ())
    assert [check.name for check in kept.analysis] == ["errors"]
    assert events == ()
