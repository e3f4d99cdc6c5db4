import asyncio
from collections.abc import Hashable, Mapping, Sequence

from slipway.api.observed import PodView, ProbeView
from slipway.api.revisions import Revision, revision_of
from slipway.engine.probe import ProbeService

REVISION = revision_of("m", {"versions": [{"name": "v1", "uri": "file:///m.pt"}]}, "v1")
POD = PodView(name="p-1", created_at=1.0, ready=True, ip="10.0.0.1")
OTHER = PodView(name="p-2", created_at=2.0, ready=True, ip="10.0.0.2")


def _probes() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("probe of")]


class FakeProber:
    """Gives prepared views, one per call; the last one again and again."""

    def __init__(self, *views: ProbeView | Exception) -> None:
        self.views = list(views)
        self.asked: list[tuple[str, ...]] = []
        self.forgotten = 0

    async def probe(
        self, revision: Revision, pods: Sequence[PodView], goldens: Mapping[str, str] | None, model_name: str
    ) -> ProbeView:
        self.asked.append(tuple(pod.name for pod in pods))
        view = self.views.pop(0) if len(self.views) > 1 else self.views[0]
        if isinstance(view, Exception):
            raise view
        return view

    def forget_failures(self) -> None:
        self.forgotten += 1


class Bench:
    """A service on a hand-driven clock."""

    def __init__(self, *views: ProbeView | Exception) -> None:
        self.now = 0.0
        self.prober = FakeProber(*views)
        self.queued: list[Hashable] = []
        self.service = ProbeService(self.queued.append, lambda key: self.prober, retry=10, clock=lambda: self.now)

    def view(self, *pods: PodView, goldens: Mapping[str, str] | None = None) -> ProbeView:
        return self.service.view(REVISION, pods, goldens, "m", key="ns/m")

    async def settle(self) -> None:
        await asyncio.gather(*_probes())


PASSED = ProbeView(passed=True)
FAILED = ProbeView(passed=False, reason="GoldensFailed")
PENDING = ProbeView(reason="ProbeFailed")


async def test_a_view_never_waits_and_the_result_queues_the_key() -> None:
    bench = Bench(PASSED)
    assert bench.view(POD).passed is None
    assert bench.prober.asked == []
    await bench.settle()
    assert bench.queued == ["ns/m"]
    assert bench.view(POD).passed is True
    bench.now = 1000
    bench.view(POD)
    await bench.settle()
    assert bench.prober.asked == [("p-1",)]


async def test_a_new_pod_is_checked_while_the_result_stands() -> None:
    bench = Bench(PASSED, FAILED)
    bench.view(POD)
    await bench.settle()
    assert bench.view(POD, OTHER).passed is True
    await bench.settle()
    assert bench.view(POD, OTHER).passed is False


async def test_a_result_of_pods_that_are_gone_does_not_stand() -> None:
    bench = Bench(PASSED)
    bench.view(POD)
    await bench.settle()
    assert bench.view(OTHER).passed is None
    await bench.settle()
    assert bench.view(OTHER).passed is True


async def test_new_goldens_are_checked_and_equal_ones_are_not() -> None:
    bench = Bench(PASSED)
    bench.view(POD, goldens={"a": "1"})
    await bench.settle()
    bench.view(POD, goldens={"a": "1"})
    await bench.settle()
    assert len(bench.prober.asked) == 1
    bench.view(POD, goldens={"a": "2"})
    await bench.settle()
    assert len(bench.prober.asked) == 2


async def test_what_has_not_passed_is_looked_at_again_after_a_while() -> None:
    bench = Bench(FAILED, PENDING, PASSED)
    for passed in (False, None, True):
        bench.view(POD)
        await bench.settle()
        assert bench.view(POD).passed is passed
        assert not _probes()
        bench.now += 10
    assert bench.prober.forgotten == 1


async def test_a_defect_is_logged_and_leaves_the_revision_pending() -> None:
    bench = Bench(RuntimeError("a defect"), PASSED)
    bench.view(POD)
    await bench.settle()
    assert bench.view(POD).passed is None
    bench.now += 10
    bench.view(POD)
    await bench.settle()
    assert bench.view(POD).passed is True


async def test_without_a_ready_pod_nothing_is_started() -> None:
    bench = Bench(PASSED)
    assert bench.view(PodView(name="p", created_at=1.0, ip="10.0.0.3")).passed is None
    assert bench.view().passed is None
    await bench.settle()
    assert bench.prober.asked == []


async def test_close_ends_what_is_under_way() -> None:
    started = asyncio.Event()

    class SlowProber(FakeProber):
        async def probe(
            self, revision: Revision, pods: Sequence[PodView], goldens: Mapping[str, str] | None, model_name: str
        ) -> ProbeView:
            started.set()
            await asyncio.Event().wait()
            return PASSED

    service = ProbeService(lambda key: None, lambda key: SlowProber(PASSED))
    service.view(REVISION, [POD], None, "m")
    await started.wait()
    await service.close()
    assert not _probes()
