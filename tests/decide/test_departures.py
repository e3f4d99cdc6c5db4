"""A revision without weight goes when requests no longer come to it, as far as anybody counts them."""

from dataclasses import dataclass, field

from slipway.api.status import Role, VersionStatus

from tests.decide.world import World, model_deployment


@dataclass
class LaggingWorld(World):
    """Some proxies go on sending requests to revisions, whatever the router's object says."""

    stragglers: dict[str, float] = field(default_factory=dict)
    """Requests per second, by revision."""

    def pass_time(self, seconds: float) -> None:
        for revision, qps in self.stragglers.items():
            for pod in self.pods.get(revision, []):
                pod.counters.good += qps * seconds
        super().pass_time(seconds)


def leaving() -> tuple[LaggingWorld, str]:
    """A world in which v1 was replaced by v2, and is about to go."""
    world = LaggingWorld(model_deployment())
    world.run(60)
    world.serve("v2")
    first = world.revision("v1")
    world.stragglers = {first: 2.0}
    for _ in range(400):
        world.tick()
        entry = world.status.revision(first)
        if entry is not None and entry.role is Role.RETIRING:
            return world, first
    raise AssertionError(world.status.rollout)


def entry_of(world: World, revision: str) -> VersionStatus:
    entry = world.status.revision(revision)
    assert entry is not None
    return entry


def test_the_subset_stays_while_requests_still_come() -> None:
    world, first = leaving()
    for _ in range(60):
        world.tick()
        entry = entry_of(world, first)
        assert entry.subset
        assert len(world.pods[first]) == entry.replicas > 0
    assert entry.reason == "StillServing"
    assert world.weights[first] == 0
    world.stragglers = {}
    world.run(30)
    assert world.status.revision(first) is None


def test_nothing_is_written_again_while_it_waits() -> None:
    world, _ = leaving()
    world.run(20)
    before = world.status
    world.run(20)
    assert world.status.versions == before.versions


def test_it_goes_in_the_end_although_requests_come() -> None:
    """A client that goes past the mesh never learns; the bound is progressDeadline here, 2m."""
    world, first = leaving()
    world.run(115)
    assert entry_of(world, first).subset
    world.run(30)
    assert world.status.revision(first) is None


def test_where_nobody_counts_it_goes_by_time_alone() -> None:
    for fault in ("down", "silent"):
        world, first = leaving()
        world.metrics_fault = fault
        world.run(15)
        assert world.status.revision(first) is None


def test_an_aborted_candidate_waits_for_silence_as_well() -> None:
    world = LaggingWorld(model_deployment())
    world.run(60)
    world.serve("v2")
    second = world.revision("v2")
    while world.weight("v2") == 0:
        world.tick()
    world.act("Abort")
    world.stragglers = {second: 1.0}
    world.run(40)
    assert entry_of(world, second).role is Role.RETIRING
    assert entry_of(world, second).subset
    assert world.status.stable == "v1"
    world.stragglers = {}
    world.run(30)
    assert world.status.revision(second) is None
