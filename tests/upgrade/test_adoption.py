"""The operator takes over what an older one left, recorded in many situations: no pod, no route, no definition changes.

Virtual time, simulated cluster (e2e/faults); the recordings are those of tests/upgrade/record.py.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slipway.kube.kinds import (
    CHILDREN,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    HTTP_ROUTE,
    MODEL_DEPLOYMENT,
    POD,
    VIRTUAL_SERVICE,
    Kind,
    kind_of,
)

from e2e.faults import virtual_time
from e2e.faults.api import Api, Obj
from e2e.faults.world import NAME, Wall, World
from tests.upgrade.situations import SITUATIONS

RECORDINGS = sorted((Path(__file__).parents[1] / "data" / "upgrade").glob("*-objects.jsonl"))
LOOK = 60.0
"""Seconds that the new operator is watched."""
Seen = dict[str, Any]


def recorded(path: Path, situation: str) -> tuple[float, list[Obj]]:
    """Time and objects of a situation."""
    _, *lines = map(json.loads, path.read_text().splitlines())
    found = [line for line in lines if line["situation"] == situation]
    return found[0]["at"], [line["object"] for line in found]


async def restored(api: Api, wall: Wall, world: World, path: Path, situation: str) -> None:
    """Put everything in its place, pods included."""
    at, objects = recorded(path, situation)
    wall.offset += at - wall()
    for obj in objects:
        api.put(kind_of(obj), obj)


def seen(api: Api, namespace: str) -> Seen:
    """What must not change with an operator: pods, what they are made of, where requests go, what versions are."""

    def by_name(kind: Kind, *fields: str) -> dict[str, Any]:
        return {
            obj["metadata"]["name"]: {field: obj.get(field) for field in fields}
            | {"uid": obj["metadata"]["uid"], "generation": obj["metadata"].get("generation")}
            for obj in api.objects(kind, namespace)
        }

    return {
        "pods": by_name(POD, "spec", "status"),
        "deployments": by_name(DEPLOYMENT, "spec"),
        "routes": by_name(VIRTUAL_SERVICE, "spec") | by_name(HTTP_ROUTE, "spec"),
        "definitions": by_name(CONTROLLER_REVISION, "data", "revision"),
        "children": {(kind.name, obj["metadata"]["name"]) for kind in CHILDREN for obj in api.objects(kind, namespace)},
    }


def course(status: Obj) -> Obj:
    """Where a rollout stands."""
    rollout = status.get("rollout") or {}
    return {name: rollout.get(name) for name in ("id", "to", "step", "stage", "outcome", "startedAt", "stepStartedAt")}


async def _taken_over(path: Path, situation: str) -> tuple[Seen, Seen, Obj, Obj, list[str]]:
    wall = Wall()
    api = Api(wall)
    await api.start()
    async with World.of(api, wall, situation) as world:
        await restored(api, wall, world, path, situation)
        before, status = seen(api, situation), world.status
        operator = world.operator()
        await asyncio.sleep(LOOK)
        assert operator.failures == []
        written = [f"{one.call.method} {one.call.path}" for one in api.audit if one.who == "op-0" and one.writes]
        return before, seen(api, situation), status, world.status, written


@pytest.fixture(params=RECORDINGS, ids=lambda path: path.name.partition("-")[0])
def recording(request: pytest.FixtureRequest) -> Iterator[Path]:
    yield request.param


def test_there_is_a_recording_of_every_situation(recording: Path) -> None:
    for name in SITUATIONS:
        _, objects = recorded(recording, name)
        assert {obj["kind"] for obj in objects} >= {"ModelDeployment", "Deployment", "Pod", "ControllerRevision"}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_models_do_not_notice_another_operator(recording: Path, situation: str) -> None:
    before, after, status, later, written = virtual_time.run(_taken_over(recording, situation))
    for name, value in before.items():
        assert after[name] == value, name
    assert course(later) == course(status)
    assert later["history"] == status["history"]
    assert [path for path in written if "/status" not in path and "/events" not in path] == []


async def _goes_on(path: Path) -> list[Any]:
    wall = Wall()
    api = Api(wall)
    await api.start()
    async with World.of(api, wall, "quarter") as world:
        await restored(api, wall, world, path, "quarter")
        world.operator()
        await world.finished("v2", "Promoted", "v2", 900.0)
        assert world.faults() == []
        return [entry["outcome"] for entry in world.status["history"]]


def test_a_rollout_goes_on_to_its_end(recording: Path) -> None:
    assert virtual_time.run(_goes_on(recording)) == ["Promoted", "Promoted"]


async def _without_an_operator(situation: str) -> tuple[Seen, Seen, list[dict[str, int]], list[str]]:
    wall = Wall()
    api = Api(wall)
    await api.start()
    async with World.of(api, wall, situation) as world:
        operator = world.operator()
        await SITUATIONS[situation](world)
        world.mesh.armed = True
        await operator.stop()
        before = seen(api, situation)
        await asyncio.sleep(3600.0)
        assert seen(api, situation) == before
        world.operator()
        await asyncio.sleep(LOOK)
        after = seen(api, situation)
        await world.finished("v2", "Promoted", "v2", 900.0)
        course = world.mesh.course
        await world.delete()
        await asyncio.sleep(LOOK)
        left = [*world.children(), *(obj["metadata"]["name"] for obj in api.objects(MODEL_DEPLOYMENT, situation))]
        return before, after, course, [*left, *world.mesh.lost]


def test_an_hour_without_an_operator_in_a_rollout() -> None:
    """Uninstalled and installed again: models go on serving, the rollout goes on, a deletion leaves nothing."""
    before, after, weights, left = virtual_time.run(_without_an_operator("quarter"))
    assert [name for name, pod in after["pods"].items() if pod != before["pods"].get(name)] == [], "started anew"
    assert after["definitions"] == before["definitions"]
    shares = [weight for one in weights for name, weight in one.items() if name.startswith(f"{NAME}-v2-")]
    assert shares == sorted(shares)
    assert left == []
