"""When a ModelDeployment is read from the API server, and when what watches and our own writes told is enough."""

from types import SimpleNamespace

from slipway.api.status import ModelDeploymentStatus
from slipway.engine.reading import READ_AGAIN
from slipway.kube.kinds import MODEL_DEPLOYMENT
from slipway.kube.metadata import resource_version

from tests.engine.world import KEY, World, versions


async def at_rest() -> World:
    world = World()
    world.declare(versions("v1"))
    await world.settle()
    return world


def reads(world: World) -> int:
    path = "/modeldeployments/sentiment"
    return sum(call.method == "GET" and call.path.endswith(path) for call in world.api.calls)


def replicas_wanted(world: World) -> int:
    return sum(obj["spec"]["replicas"] for key, obj in world.api.objects.items() if key[0] == "deployments")


def scaled(world: World, replicas: int) -> None:
    world.declare(versions("v1", autoscaling={"minReplicas": replicas, "maxReplicas": replicas}))


async def test_at_rest_the_api_server_is_asked_nothing():
    world = await at_rest()
    world.now += READ_AGAIN
    await world.reconcile()
    before = len(world.api.calls)
    for _ in range(5):
        world.now += 10
        assert (await world.reconciler.reconcile(KEY)).result == "ok"
    assert len(world.api.calls) == before


async def test_now_and_then_it_is_read_for_a_watch_may_be_deaf():
    world = await at_rest()
    await world.reconcile()
    scaled(world, 3)
    await world.reconciler.reconcile(KEY)
    assert replicas_wanted(world) == 1, "nobody has told"
    world.now += READ_AGAIN
    await world.reconciler.reconcile(KEY)
    assert replicas_wanted(world) == 3


async def test_a_list_is_as_good_as_a_read():
    world = await at_rest()
    await world.reconciler.reconcile(KEY)
    before = reads(world)
    for _ in range(3):
        world.now += READ_AGAIN - 1
        await world.resync.models()
        await world.reconciler.reconcile(KEY)
    assert reads(world) == before
    scaled(world, 3)
    await world.resync.models()
    await world.reconciler.reconcile(KEY)
    assert (reads(world), replicas_wanted(world)) == (before, 3)


async def test_a_list_of_before_is_no_first_read():
    world = await at_rest()
    world.start()
    await world.resync.models()
    before = reads(world)
    await world.reconciler.reconcile(KEY)
    assert reads(world) == before + 1


async def test_a_new_process_reads_before_it_decides():
    world = await at_rest()
    world.start()
    await world.resync.once()
    before = reads(world)
    scaled(world, 3)
    await world.reconciler.reconcile(KEY)
    assert reads(world) == before + 1
    assert replicas_wanted(world) == 3


async def test_a_new_object_is_not_read_for_its_first_write_is_on_condition():
    world = World()
    world.declare(versions("v1"))
    await world.settle()
    assert world.status["phase"] == "Ready"
    assert reads(world) == 0, "each write has confirmed what was known"


async def test_a_new_object_that_was_known_too_late_is_read_before_anything_is_done():
    world = World()
    world.declare(versions("v1"))
    await world.resync.once()
    world.declare(versions("v2"))
    assert (await world.reconciler.reconcile(KEY)).result == "conflict"
    assert not [key for key in world.api.objects if key[0] == "deployments"]
    assert (await world.reconciler.reconcile(KEY)).result == "ok"
    assert reads(world) == 1
    assert [entry["name"] for entry in world.status["versions"]] == ["v2"]


async def test_after_a_conflict_it_is_read():
    generations: list[int] = []

    def decide(raw, observed, metrics, now):
        generations.append(raw["metadata"]["generation"])
        status = ModelDeploymentStatus(observed_generation=generations[-1], replicas=len(generations))
        return SimpleNamespace(
            status=status,
            spec=None,
            revisions={},
            requeue_after=None,
            events=(),
            apply=False,
            lost=frozenset(),
            queries=(),
        )

    world = World(decide=decide)
    world.declare(versions("v1"))
    await world.reconcile()
    scaled(world, 3)
    results = [(await world.reconciler.reconcile(KEY)).result for _ in range(2)]
    assert results == ["conflict", "ok"]
    assert generations == [1, 1, 2]


async def test_a_copy_that_claims_to_be_newer_than_what_was_read_is_not_believed():
    """etcd was restored from a backup: resource versions have gone back."""
    world = await at_rest()
    stored = world.api.get("modeldeployments", *KEY)
    newer = {**stored, "metadata": {**stored["metadata"], "resourceVersion": "999999"}}
    assert world.cache.put(MODEL_DEPLOYMENT, newer)
    world.now += READ_AGAIN
    before = reads(world)
    for _ in range(3):
        await world.reconciler.reconcile(KEY)
    assert reads(world) == before + 3
    assert resource_version(stored) != "999999"


async def test_an_older_state_than_was_known_is_not_decided_on():
    """etcd was restored from a backup: everything is listed anew first."""
    world = await at_rest()
    stored = world.api.get("modeldeployments", *KEY)
    newer = {**stored, "metadata": {**stored["metadata"], "resourceVersion": "99999"}}
    world.cache.put(MODEL_DEPLOYMENT, newer)
    world.now += READ_AGAIN
    writes = world.api.writes
    assert (await world.reconciler.reconcile(KEY)).result == "restored"
    assert (await world.reconciler.reconcile(KEY)).result == "restored"
    assert (await world.reconcile()).result == "ok"
    assert resource_version(world.cache.get(MODEL_DEPLOYMENT, KEY) or {}) == resource_version(stored)
    assert world.api.writes == writes
