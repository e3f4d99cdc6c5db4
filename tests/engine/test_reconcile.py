import copy
from types import SimpleNamespace
from typing import Any

import pytest
from slipway.api.events import EventRecord
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Phase
from slipway.engine.reconcile import Outcome
from slipway.kube.failures import NotFoundError, UnavailableError
from slipway.kube.kinds import SERVICE
from slipway.kube.metadata import Key
from slipway.kube.transport import Answer

from tests.engine.world import KEY, World, versions
from tests.kube.memory_api import ok, status

ROLLOUT = {
    "steps": [{"weight": 20, "hold": "10s"}, {"weight": 50, "hold": "10s"}],
    "keepPrevious": "10s",
    "analysis": {"checks": []},
}


def weights(world: World) -> dict[str, int]:
    route = world.api.find("virtualservices", *KEY)
    default = next((item for item in route["spec"]["http"] if item["name"] == "default"), None) if route else None
    entries = default["route"] if default else []
    return {entry["destination"]["subset"].split("-")[1]: entry["weight"] for entry in entries}


def decision(**fields: Any) -> SimpleNamespace:
    status = ModelDeploymentStatus(phase=Phase.PENDING, observed_generation=1)
    plain = {
        "status": status,
        "spec": ModelDeploymentSpec.from_wire(versions("v1")),
        "revisions": {},
        "requeue_after": None,
        "events": (),
        "apply": False,
        "lost": frozenset(),
        "queries": (),
    }
    return SimpleNamespace(**(plain | fields))


def deciding(**fields: Any) -> World:
    world = World(decide=lambda raw, observed, metrics, now: decision(**fields))
    world.declare(versions("v1"))
    return world


async def test_the_status_is_written_before_any_effect():
    world = deciding(apply=True)
    await world.reconcile()
    first, *rest = [call.path for call in world.api.mutations()]
    assert first.endswith("/modeldeployments/sentiment/status")
    assert [path.split("/")[-2] for path in rest] == ["services"]


async def test_without_apply_no_child_is_touched():
    world = deciding(apply=False, events=(EventRecord("InvalidSpec", "no"),))
    await world.reconcile()
    assert len(world.api.mutations()) == 1
    assert world.events == [EventRecord("InvalidSpec", "no")]


async def test_expressions_are_asked_from_now_on_and_no_more_once_it_is_gone():
    world = deciding(queries=("up",))
    await world.reconcile()
    assert world.wanted == {(KEY.namespace, KEY.name): ("up",)}
    world.api.drop("modeldeployments", *KEY)
    await world.reconcile()
    assert world.wanted == {(KEY.namespace, KEY.name): ()}


async def test_an_equal_status_is_not_written_again():
    world = deciding()
    await world.reconcile()
    before = world.api.writes
    await world.reconcile()
    assert world.api.writes == before


async def test_the_action_of_people_is_kept():
    world = deciding()
    world.declare(versions("v1"))
    stored = world.api.get("modeldeployments", *KEY)
    action = {"id": "a-1", "verb": "Promote", "by": "me", "reason": ""}
    world.api.put({**stored, "status": {"action": action, "phase": "Ready", "unknown": 1}})
    await world.reconcile()
    assert world.status["action"] == action
    assert world.status["phase"] == "Pending"
    assert "unknown" not in world.status


async def test_a_conflict_means_start_again_without_effects_or_events():
    world = deciding(apply=True, events=(EventRecord("Promoted", "yes"),))
    world.api.faults.append(lambda call: status(409, "Conflict", "changed") if call.method == "PATCH" else None)
    assert await world.reconcile() == Outcome("conflict")
    assert (world.events, world.api.writes) == ([], 0)


async def test_a_spec_that_changes_under_way_is_a_conflict():
    world = World()
    world.declare(versions("v1"))

    def change(raw, observed, metrics, now):
        world.declare(versions("v1", "v2", serve="v1"))
        return decision()

    world.decide = change
    world.start()
    assert (await world.reconcile()).result == "conflict"
    assert world.status == {}


async def test_an_object_that_is_gone_or_going_is_left_alone():
    world = World()
    assert await world.reconciler.reconcile(KEY) == Outcome("gone")
    world.declare(versions("v1"))
    world.api.get("modeldeployments", *KEY)["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert await world.reconciler.reconcile(KEY) == Outcome("gone")
    assert world.api.writes == 0


async def test_the_decisions_requeue_is_passed_on():
    world = deciding(requeue_after=7.0)
    assert await world.reconcile() == Outcome("ok", 7.0)


async def test_a_failing_api_server_is_raised_after_the_status_is_safe():
    world = deciding(apply=True)
    await world.resync.once()
    down = status(503, "ServiceUnavailable", "down")
    world.api.faults.append(lambda call: down if "services" in call.path else None)
    with pytest.raises(UnavailableError):
        await world.reconciler.reconcile(KEY)
    assert world.status["phase"] == "Pending"


async def test_a_first_deployment_comes_to_rest_and_a_second_look_writes_nothing():
    world = World()
    world.declare(versions("v1"))
    await world.settle()
    assert (world.status["phase"], world.status["stable"]) == ("Ready", "v1")
    assert weights(world) == {"v1": 100}
    world.start()
    before = world.api.writes
    await world.reconcile()
    assert world.api.writes == before


async def rolled_out() -> World:
    world = World()
    world.declare(versions("v1"))
    await world.settle()
    world.declare(versions("v1", "v2", serve="v2", rollout=ROLLOUT))
    return world


async def test_a_rollout_goes_through_its_steps_and_counts_itself():
    world = await rolled_out()
    seen = []
    for _ in range(40):
        await world.reconcile()
        world.pods_follow()
        world.now += 6
        if weights(world) not in seen:
            seen.append(weights(world))
    assert seen == [
        {"v1": 100},
        {"v1": 100, "v2": 0},
        {"v1": 80, "v2": 20},
        {"v1": 50, "v2": 50},
        {"v1": 0, "v2": 100},
        {"v2": 100},
    ]
    metrics = world.telemetry.exposition().decode()
    assert 'slipway_operator_rollouts_total{outcome="Promoted"} 2.0' in metrics
    # The first version's one weight and the three of the rollout.
    assert "slipway_operator_weight_applied_seconds_count 4.0" in metrics
    assert [key[2].split("-")[1] for key in world.api.objects if key[0] == "deployments"] == ["v2"]


async def test_killed_after_any_write_it_ends_in_the_same_place_with_no_step_skipped():
    whole = await rolled_out()
    before = copy.deepcopy(whole.api), whole.now
    start = whole.api.writes
    await whole.settle()
    total = whole.api.writes - start
    assert total > 15
    for after in range(total):
        world = World(api=copy.deepcopy(before[0]), now=before[1])
        assert await world.die_and_restart(after), f"only {after} writes"
        seen = [weights(world)]
        for _ in range(40):
            await world.reconcile()
            world.pods_follow()
            world.now += 6
            if weights(world) != seen[-1]:
                seen.append(weights(world))
        course = [item["v2"] for item in seen if "v2" in item]
        assert course == sorted(course), f"killed after {after}: {course}"
        assert set(course) | {0, 20, 50, 100} == {0, 20, 50, 100}
        assert weights(world) == {"v2": 100}
        assert [entry["outcome"] for entry in world.status["history"]] == ["Promoted", "Promoted"]
        assert {key[0:1] + key[2:] for key in world.api.objects} == {key[0:1] + key[2:] for key in whole.api.objects}


async def test_a_foreign_service_of_our_name_is_told_and_left_untouched_until_it_is_gone():
    world = World()
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": KEY.namespace, "name": KEY.name},
        "spec": {"ports": []},
    }
    world.api.put(foreign)
    world.declare(versions("v1"))
    assert (await world.reconcile()).requeue_after == 0.0
    blocked = await world.reconcile()
    assert blocked.requeue_after == 30.0
    ready = next(item for item in world.status["conditions"] if item["type"] == "Ready")
    assert ready["reason"] == "Conflict"
    assert "Service sentiment exists and was not made by Slipway" in ready["message"]
    assert world.api.get("services", *KEY)["spec"] == {"ports": []}
    assert {key[0] for key in world.api.objects} == {"services", "modeldeployments"}
    world.api.drop("services", *KEY)
    await world.settle()
    assert world.status["phase"] == "Ready"


async def test_a_host_of_somebody_else_is_a_conflict():
    world = World()
    world.api.put(
        {
            "apiVersion": "networking.istio.io/v1",
            "kind": "VirtualService",
            "metadata": {"namespace": "web", "name": "old"},
            "spec": {"hosts": ["sentiment.example.com"], "gateways": ["istio-ingress/public"]},
        }
    )
    traffic = {"hosts": ["sentiment.example.com"], "gateways": ["istio-ingress/public"]}
    world.declare(versions("v1", traffic=traffic))
    await world.reconcile()
    ready = next(item for item in world.status["conditions"] if item["type"] == "Ready")
    assert (ready["reason"], "web/old" in ready["message"]) == ("Conflict", True)
    assert world.api.find("services", *KEY) is None


async def test_a_foreign_edit_of_the_weights_is_repaired_and_reported():
    world = World()
    world.declare(versions("v1"))
    await world.settle()
    route = world.api.get("virtualservices", *KEY)
    edited = {**route, "spec": {**route["spec"], "http": []}}
    edited["metadata"] = {**route["metadata"], "managedFields": [{"manager": "kubectl-edit", "time": "2026"}]}
    world.api.put(edited)
    await world.reconcile()
    assert weights(world) == {"v1": 100}
    (event,) = [event for event in world.events if event.reason == "DriftRepaired"]
    assert "kubectl-edit" in event.message
    metrics = world.telemetry.exposition().decode()
    assert 'slipway_operator_drift_repairs_total{kind="VirtualService",result="repaired"} 1.0' in metrics


@pytest.mark.parametrize(("plural", "field"), [("deployments", "paused"), ("services", "publishNotReadyAddresses")])
async def test_what_would_make_status_untrue_is_repaired_though_it_is_off_by_default(plural, field):
    world = World()
    world.declare(versions("v1"))
    await world.settle()
    (name,) = [name for kind, _, name in world.api.objects if kind == plural]
    obj = world.api.get(plural, KEY.namespace, name)
    assert field not in obj["spec"]
    world.api.put({**obj, "spec": obj["spec"] | {field: True}})
    await world.settle()
    (told,) = [event.message for event in world.events if event.reason == "DriftRepaired"]
    assert told.endswith(f"at spec.{field}")
    assert world.api.get(plural, KEY.namespace, name)["spec"][field] is False


async def test_a_rival_that_undoes_every_repair_is_given_up_on_and_named_in_status():
    """Research cases T59, T60: no hot loop, and the other field manager is told."""
    world = World()
    world.declare(versions("v1"))
    await world.settle()
    for number in range(9):
        route = world.api.get("virtualservices", *KEY)
        edited = {**route, "spec": {**route["spec"], "http": []}}
        edited["metadata"] = {**route["metadata"], "managedFields": [{"manager": "rival", "time": f"2026-{number}"}]}
        world.api.put(edited)
        outcome = await world.reconcile()
        world.now += 1
    assert outcome.requeue_after is not None
    assert len([event for event in world.events if event.reason == "DriftRepaired"]) == 5
    assert len([event for event in world.events if event.reason == "DriftFight"]) == 1
    (told,) = [item for item in world.status["conditions"] if item["type"] == "TrafficApplied"]
    assert (told["status"], told["reason"]) == ("False", "DriftFight")
    assert "rival" in told["message"]


async def test_fields_of_others_that_contradict_nothing_are_left_alone():
    """Research case T61: nothing that we do not write is dropped or fought over."""
    world = World()
    world.declare(versions("v1"))
    await world.settle()
    route = world.api.get("virtualservices", *KEY)
    theirs = {**route["spec"], "exportTo": ["nlp"]}
    annotations = route["metadata"]["annotations"] | {"team": "nlp"}
    world.api.put({**route, "spec": theirs, "metadata": {**route["metadata"], "annotations": annotations}})
    await world.settle()
    assert world.api.get("virtualservices", *KEY)["spec"]["exportTo"] == ["nlp"]
    assert world.api.get("virtualservices", *KEY)["metadata"]["annotations"]["team"] == "nlp"
    assert [event for event in world.events if event.reason.startswith("Drift")] == []


async def test_a_refused_deployment_shows_in_status():
    world = World()
    bad = status(422, "Invalid", "spec.template.spec.containers[0].image: Required value")
    world.api.faults.append(lambda call: bad if call.method == "PATCH" and "/deployments/" in call.path else None)
    world.declare(versions("v1"))
    await world.reconcile()
    await world.reconcile()
    assert "Required value" in world.status["rollout"]["message"]
    assert [event.reason for event in world.events].count("ApplyRefused") == 1
    world.now += 15
    world.api.faults.clear()
    await world.settle()
    assert world.status["phase"] == "Ready"


@pytest.mark.parametrize("plural", ["virtualservices", "destinationrules", "envoyfilters"])
async def test_a_refused_route_or_policy_shows_in_status(plural: str):
    """By a webhook of the mesh, say: what is asked for is not in force, and status says in whose words."""
    world = World()
    bad = status(400, "BadRequest", 'admission webhook "validation.istio.io" denied the request: no such retry')
    world.api.faults.append(lambda call: bad if call.method == "PATCH" and f"/{plural}/" in call.path else None)
    world.declare(versions("v1", traffic={"resilience": {"rateLimit": {"requestsPerSecond": 5}}}))
    for _ in range(30):
        world.now += 2
        world.pods_follow()
        await world.reconcile()
    (told,) = [item for item in world.status["conditions"] if item["type"] == "TrafficApplied"]
    assert (told["status"], told["reason"]) == ("False", "RouteRefused")
    assert "no such retry" in told["message"]
    if plural != "envoyfilters":
        assert world.status["rollout"]["reason"] == "RouteRefused"
        assert "no such retry" in world.status["rollout"]["message"]
    world.now += 60
    world.api.faults.clear()
    await world.settle()
    assert world.status["phase"] == "Ready"
    (told,) = [item for item in world.status["conditions"] if item["type"] == "TrafficApplied"]
    assert told["reason"] != "RouteRefused"


def terminating(call) -> Answer | None:
    """What the API server answers to whoever creates something in a namespace that is being deleted."""
    if call.method != "PATCH" or "/status" in call.path:
        return None
    body = {
        "kind": "Status",
        "code": 403,
        "reason": "Forbidden",
        "message": 'services "m" is forbidden: unable to create new content in namespace nlp because it is being '
        "terminated",
        "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]},
    }
    return ok(body, 403)


async def test_a_namespace_that_is_being_deleted_is_nobodys_mistake(caplog: pytest.LogCaptureFixture):
    world = World()
    world.api.faults.append(terminating)
    world.declare(versions("v1"))
    with caplog.at_level("INFO"):
        await world.reconcile()
        await world.reconcile()
    told = [record for record in caplog.records if "is not made: namespace nlp is being deleted" in record.message]
    assert {record.levelname for record in told} == {"INFO"}
    assert "is forbidden" not in caplog.text
    assert [event for event in world.events if event.reason == "ApplyRefused"] == []


async def test_an_object_deleted_under_way_is_gone():
    world = deciding()
    first = world.decide

    def vanish(raw, observed, metrics, now):
        world.api.drop("modeldeployments", *KEY)
        return first(raw, observed, metrics, now)

    world.decide = vanish
    world.start()
    assert await world.reconcile() == Outcome("gone")


async def test_a_status_that_cannot_be_written_is_a_failure_and_no_end():
    world = deciding()
    lost = status(404, "NotFound", "the server could not find the requested resource")
    world.api.faults.append(lambda call: lost if call.path.endswith("/status") else None)
    with pytest.raises(NotFoundError):
        await world.reconcile()


async def test_a_cluster_without_a_mesh_is_waited_for():
    world = World()
    world.api.unknown |= {"virtualservices", "destinationrules"}
    world.declare(versions("v1"))
    assert (await world.reconcile()).requeue_after is not None
    await world.reconcile()
    assert world.api.find("services", *KEY) is not None
    (event,) = [event for event in world.events if event.reason == "ApplyRefused"]
    assert "does not know DestinationRule of networking.istio.io/v1" in event.message
    world.api.unknown.clear()
    await world.settle()
    assert world.status["phase"] == "Ready"


async def test_children_of_a_deleted_namesake_are_waited_for():
    """It was seen to be deleted, and its children are to go with it: whoever makes a new one gets new ones."""
    world = World()
    world.declare(versions("v1"))
    await world.settle()
    old = world.api.drop("modeldeployments", *KEY)
    world.declare(versions("v1"))
    assert world.api.get("modeldeployments", *KEY)["metadata"]["uid"] != old["metadata"]["uid"]
    outcome = await world.reconcile()
    assert outcome.requeue_after is not None
    assert outcome.requeue_after <= 2.0
    assert world.api.get("services", *KEY)["metadata"]["ownerReferences"][0]["uid"] == old["metadata"]["uid"]
    for key, obj in list(world.api.objects.items()):
        owners = obj["metadata"].get("ownerReferences") or []
        if any(owner["uid"] == old["metadata"]["uid"] for owner in owners):
            world.api.drop(*key)
    await world.settle()
    assert world.status["phase"] == "Ready"
    assert world.cache.get(SERVICE, Key(*KEY)) is not None
