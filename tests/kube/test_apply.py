import pytest
from slipway.kube.apply import Applier, Operation, Owner, plan
from slipway.kube.cache import Cache
from slipway.kube.client import Client, RetryPolicy
from slipway.kube.comparison import difference
from slipway.kube.drift import DriftLedger
from slipway.kube.failures import ConflictError, UnavailableError
from slipway.kube.kinds import CHILDREN, DEPLOYMENT, HTTP_ROUTE, SERVICE, VIRTUAL_SERVICE, kind_of
from slipway.kube.metadata import APPLIED_HASH, Key, key_of

from tests.kube.memory_api import MemoryApi, status

OWNER = Owner(Key("ns", "m"), "uid-m")
LABELS = {"app.kubernetes.io/managed-by": "slipway", "slipway.dev/model-deployment": "m"}
VERSIONS = {"Service": "v1", "Deployment": "apps/v1", "VirtualService": "networking.istio.io/v1"}


def wanted(kind="Service", name="m", digest="h1", uid=OWNER.uid, **spec):
    reference = {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "ModelDeployment",
        "name": "m",
        "uid": uid,
        "controller": True,
    }
    return {
        "apiVersion": VERSIONS[kind],
        "kind": kind,
        "metadata": {
            "namespace": "ns",
            "name": name,
            "labels": LABELS,
            "annotations": {APPLIED_HASH: digest},
            "ownerReferences": [reference],
        },
        "spec": spec or {"x": 1},
    }


class World:
    def __init__(self) -> None:
        self.api = MemoryApi()
        self.cache = Cache()
        self.client = Client(self.api, retry=RetryPolicy(attempts=1))
        self.applier = Applier(self.client, self.cache, DriftLedger(limit=2, window=100.0))

    async def apply(self, *objects, now=0.0):
        return await self.applier.apply(OWNER, objects, now)

    def writes(self) -> list[str]:
        return [f"{call.method} {call.path.rsplit('/', 2)[1]}" for call in self.api.mutations()]

    def edited(self, obj, manager="kubectl-edit", time="2026-01-02T00:00:00Z"):
        """Somebody else writes an object, and the watch brings it."""
        obj["metadata"]["managedFields"] = [{"manager": manager, "operation": "Update", "time": time}]
        stored = self.api.put(obj)
        self.cache.put(kind_of(stored), stored)


@pytest.fixture
def world() -> World:
    return World()


async def test_creates_then_does_nothing_more(world):
    first = await world.apply(wanted(), wanted("Deployment", "d"))
    assert [str(step) for step in first.done] == ["create Service m", "create Deployment d"]
    calls = len(world.api.calls)
    again = await world.apply(wanted(), wanted("Deployment", "d"))
    assert again.done == []
    assert len(world.api.calls) == calls


async def test_a_new_version_of_an_object_is_an_update_and_names_the_field(world):
    await world.apply(wanted(x=1))
    applied = await world.apply(wanted(digest="h2", x=2))
    assert [str(step) for step in applied.done] == ["update Service m (spec.x)"]
    assert applied.drifts == []


async def test_a_field_that_is_only_left_out_is_an_update(world):
    await world.apply(wanted(x=1, y=2))
    applied = await world.apply(wanted(digest="h2", x=1))
    assert [step.operation for step in applied.done] == [Operation.UPDATE]


async def test_an_object_of_our_name_that_is_not_ours_stops_everything(world):
    foreign = wanted("Service", "m")
    foreign["metadata"]["ownerReferences"] = []
    foreign["metadata"]["labels"] = {}
    world.api.put(foreign)
    applied = await world.apply(wanted("Deployment", "d"), wanted())
    assert applied.conflict is not None
    assert (applied.conflict.kind, applied.conflict.key) == (SERVICE, Key("ns", "m"))
    assert applied.conflict.field == "was not made by Slipway"
    assert world.writes() == []


async def test_a_deployment_that_is_not_ours_is_passed_over(world):
    foreign = wanted("Deployment", "d")
    foreign["metadata"]["ownerReferences"] = []
    foreign["metadata"]["labels"] = {}
    world.api.put(foreign)
    applied = await world.apply(wanted("Deployment", "d"), wanted())
    assert applied.conflict is not None
    assert applied.conflict.key == Key("ns", "d")
    assert [step.kind for step in applied.done] == [SERVICE]


async def test_an_object_of_another_controller_is_a_conflict(world):
    foreign = wanted()
    foreign["metadata"]["ownerReferences"][0] |= {"kind": "Canary", "name": "c", "uid": "u", "apiVersion": "f/v1"}
    world.api.put(foreign)
    applied = await world.apply(wanted())
    assert applied.conflict is not None
    assert applied.conflict.field == "is controlled by Canary c"


async def test_what_a_deleted_namesake_left_is_waited_for(world):
    world.edited(wanted(uid="uid-before"))
    applied = await world.apply(wanted())
    assert (applied.waiting, applied.conflict, world.writes()) == (True, None, [])


async def test_an_object_under_deletion_is_waited_for(world):
    obj = wanted()
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.edited(obj)
    assert (await world.apply(wanted())).waiting
    assert world.writes() == []


async def test_a_foreign_edit_is_repaired_and_its_manager_named(world):
    await world.apply(wanted(x=1))
    world.edited(wanted(x=9))
    applied = await world.apply(wanted(x=1))
    assert [step.operation for step in applied.done] == [Operation.REPAIR]
    assert str(applied.drifts[0]) == "Service m was changed by field manager 'kubectl-edit' at spec.x"
    assert world.api.get("services", "ns", "m")["spec"] == {"x": 1}


def respelling(obj):
    """An API server that answers x: 1000 as x: 1k, as it does with quantities, and a webhook that sets y."""
    spec = obj["spec"]
    return {**obj, "spec": spec | ({"x": "1k"} if spec.get("x") == "1000" else {}) | ({"y": 2} if "y" in spec else {})}


async def test_what_the_api_server_says_in_its_own_words_is_no_drift(world):
    world.api.admit = respelling
    await world.apply(wanted(x="1000", y=1))
    first = world.api.writes
    applied = await world.apply(wanted(x="1000", y=1))
    assert (world.api.writes, applied.drifts, applied.done) == (first, [], [])


async def test_after_a_restart_one_write_without_effect_shows_that_nobody_has_been_at_it(world):
    world.api.admit = respelling
    await world.apply(wanted(x="1000"))
    first = world.api.writes
    world.applier = Applier(world.client, world.cache, DriftLedger(limit=1))
    for _ in range(3):
        applied = await world.apply(wanted(x="1000"))
        assert (applied.drifts, applied.done) == ([], [])
    assert world.api.writes == first + 1
    world.edited(wanted(x=9))
    assert [drift.given_up for drift in (await world.apply(wanted(x="1000"))).drifts] == [False]


async def test_a_foreign_edit_of_what_was_taken_in_other_words_is_repaired(world):
    world.api.admit = respelling
    await world.apply(wanted(x="1000"))
    world.edited(wanted(x=9))
    assert str((await world.apply(wanted(x="1000"))).drifts[0]).endswith("at spec.x")
    assert world.api.get("services", "ns", "m")["spec"] == {"x": "1k"}


async def test_what_is_wanted_anew_is_written_whatever_was_taken_before(world):
    world.api.admit = respelling
    await world.apply(wanted(x="1000"))
    applied = await world.apply(wanted(digest="h2", x="1k"))
    assert [step.operation for step in applied.done] == [Operation.UPDATE]
    assert (await world.apply(wanted(digest="h2", x="1k"))).done == []


async def test_an_edit_that_takes_our_annotation_away_counts_as_one_too(world):
    await world.apply(wanted(x=1))
    edit = wanted(x=9)
    del edit["metadata"]["annotations"]
    world.edited(edit)
    assert len((await world.apply(wanted(x=1))).drifts) == 1


async def test_a_fight_is_given_up_and_taken_up_later(world):
    await world.apply(wanted(x=1))
    results = []
    for now in (1.0, 2.0, 3.0):
        world.edited(wanted(x=9))
        results.append((await world.apply(wanted(x=1), now=now)).drifts[0].given_up)
    assert results == [False, False, True]
    assert world.api.get("services", "ns", "m")["spec"] == {"x": 9}
    unrepaired = world.applier.ledger.unrepaired([(SERVICE, Key("ns", "m"))])
    assert unrepaired is not None
    assert unrepaired.manager == "kubectl-edit"
    assert not (await world.apply(wanted(x=1), now=101.5)).drifts[0].given_up
    assert world.applier.ledger.unrepaired([(SERVICE, Key("ns", "m"))]) is None


async def test_prunes_what_is_ours_and_no_longer_wanted(world):
    await world.apply(wanted(), wanted("Deployment", "old"))
    other = wanted("Deployment", "other", uid="uid-other")
    world.edited(other)
    applied = await world.apply(wanted())
    assert [str(step) for step in applied.done] == ["delete Deployment old"]
    assert world.api.find("deployments", "ns", "old") is None
    assert world.api.find("deployments", "ns", "other") is not None


async def test_an_object_whose_deletion_meets_a_conflict_is_not_forgotten(world):
    """It would be an orphan: no later list tells anything new of it."""
    await world.apply(wanted("Deployment", "old"), wanted())
    refusals = [status(409, "Conflict", "the object has been modified")]
    world.api.faults.append(lambda call: refusals.pop() if call.method == "DELETE" and refusals else None)
    with pytest.raises(ConflictError):
        await world.apply(wanted())
    await world.apply(wanted())
    assert world.api.find("deployments", "ns", "old") is None


def test_routes_are_deleted_before_workloads():
    objects = [wanted("Deployment", "d"), wanted("Service", "s"), wanted("VirtualService", "v")]
    kept = wanted("Service", "m")
    steps = plan(OWNER, [kept], {}, [*objects, kept])
    assert [step.kind.name for step in steps[1:]] == ["VirtualService", "Deployment", "Service"]
    assert {VIRTUAL_SERVICE, HTTP_ROUTE} == set(CHILDREN[:2])


def test_nothing_is_deleted_when_nothing_is_wanted():
    assert plan(OWNER, [], {}, [wanted()]) == []


async def test_prune_spares_an_object_that_took_the_name_meanwhile(world):
    await world.apply(wanted(), wanted("Deployment", "old"))
    world.api.drop("deployments", "ns", "old")
    world.api.put(wanted("Deployment", "old", uid="uid-somebody"))
    await world.apply(wanted())
    assert world.api.find("deployments", "ns", "old") is not None


async def test_a_refused_deployment_does_not_stop_the_routes(world):
    world.api.faults.append(
        lambda call: (
            status(422, "Invalid", "bad template") if call.method == "PATCH" and "/d" in call.path[-2:] else None
        )
    )
    applied = await world.apply(wanted("Deployment", "d"), wanted("VirtualService", "m"))
    assert str(applied.refused[DEPLOYMENT, Key("ns", "d")]) == "bad template"
    assert [step.kind.name for step in applied.done] == ["VirtualService"]


async def test_a_refused_service_stops_what_follows(world):
    world.api.faults.append(
        lambda call: status(403, "Forbidden", "no") if call.method == "PATCH" and "services" in call.path else None
    )
    applied = await world.apply(wanted(), wanted("VirtualService", "m"))
    assert list(applied.refused) == [(SERVICE, Key("ns", "m"))]
    assert applied.done == []


async def test_what_was_refused_is_not_offered_again_at_once_unless_it_changes(world):
    bad = status(422, "Invalid", "no")
    world.api.faults.append(lambda call: bad if call.method == "PATCH" else None)

    async def offered(digest: str, now: float) -> int:
        before = len(world.api.mutations())
        applied = await world.apply(wanted(digest=digest), now=now)
        assert str(applied.refused[SERVICE, Key("ns", "m")]) == "no"
        return len(world.api.mutations()) - before

    assert [await offered("h1", now) for now in (0.0, 1.0, 14.0, 15.0)] == [1, 0, 0, 1]
    assert await offered("h2", 16.0) == 1
    world.applier.forget(OWNER.key)
    assert await offered("h2", 17.0) == 1


async def test_an_unreachable_server_is_raised(world):
    world.api.faults.append(lambda call: status(503, "ServiceUnavailable", "down") if call.method == "PATCH" else None)
    with pytest.raises(UnavailableError):
        await world.apply(wanted())


async def test_own_writes_are_seen_before_their_events(world):
    stale = world.api.put(wanted(x=1))
    world.cache.put(SERVICE, dict(stale))
    await world.apply(wanted(digest="h2", x=2))
    assert not world.cache.put(SERVICE, stale)
    seen = world.cache.get(SERVICE, key_of(stale))
    assert seen is not None
    assert seen["spec"] == {"x": 2}


def test_a_ledger_forgets():
    ledger = DriftLedger(limit=1)
    ledger.assess(SERVICE, Key("ns", "m"), "a", "spec", 0.0)
    assert ledger.assess(SERVICE, Key("ns", "m"), "a", "spec", 1.0).given_up
    ledger.forget(lambda place: place[1].name == "m")
    assert not ledger.assess(SERVICE, Key("ns", "m"), "a", "spec", 2.0).given_up


@pytest.fixture
def compared(monkeypatch):
    """Names of the live objects that were compared."""
    names: list[str] = []

    def noting(live, obj):
        if "metadata" in live:
            names.append(live["metadata"]["name"])
        return difference(live, obj)

    monkeypatch.setattr("slipway.kube.apply.difference", noting)
    return names


async def test_what_was_found_to_agree_is_compared_again_only_when_it_changes(world, compared):
    for _ in range(4):
        await world.apply(wanted(), wanted("Deployment", "d"))
    assert compared == ["m", "d"]
    applied = await world.apply(wanted(digest="h2", x=2), wanted("Deployment", "d"))
    assert [str(step) for step in applied.done] == ["update Service m (spec.x)"]
    world.edited({**wanted("Deployment", "d"), "spec": {"x": 9}})
    applied = await world.apply(wanted(digest="h2", x=2), wanted("Deployment", "d"))
    assert [str(step) for step in applied.done] == ["repair Deployment d (spec.x)"]


async def test_a_copy_of_the_same_version_that_says_something_else_is_compared(world, compared):
    """As after a restore from a backup, which brings back resource versions as well."""
    for _ in range(2):
        await world.apply(wanted())
    known = world.cache.get(SERVICE, Key("ns", "m"))
    world.cache.remove(SERVICE, known)
    world.cache = world.applier._cache = Cache()
    world.cache.put(SERVICE, {**known, "spec": {"x": 9}})
    assert [str(step) for step in (await world.apply(wanted())).done] == ["repair Service m (spec.x)"]


async def test_what_is_gone_is_not_remembered(world):
    for _ in range(2):
        await world.apply(wanted(), wanted("Deployment", "m-d"))
    assert len(world.applier._agreed) == 2
    world.applier.forget(OWNER.key)
    assert not world.applier._agreed
    for _ in range(2):
        await world.apply(wanted(), wanted("Deployment", "m-d"))
    await world.apply(wanted())
    await world.apply(wanted())
    assert [key.name for _, key in world.applier._agreed] == ["m"]
