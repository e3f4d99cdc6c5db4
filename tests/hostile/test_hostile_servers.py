"""Model servers that answer the operator's probes with garbage, never, or gigabytes: what it costs, and whom."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from slipway.api.observed import PodView
from slipway.api.revisions import Revision, revision_of
from slipway.engine.probe import ProbeService
from slipway.engine.probe_client import MAX_ANSWER_BYTES, MAX_JSON_BYTES
from slipway.engine.prober import Prober
from slipway.kube.metadata import Key

from tests.engine.world import KEY, World, versions
from tests.hostile.test_hostile_prometheus import ENDLESS, HEAD, Pretender, whole
from tests.probe.servers import METADATA, HonestServer, raw_server
from tests.probe.test_prober import POD, WITH_GOLDENS, goldens, revision

PATIENCE = 60.0


class HostileServer(Pretender):
    """Is ready, and has metadata that are in order unless they are what it is hostile with."""

    def __init__(
        self, begin: bytes, more: bytes = b"", pause: float = 0.0, *, at: bytes = b"GET /v2/models/m "
    ) -> None:
        super().__init__(begin, more, pause)
        self.at = at

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if not request.startswith(self.at):
            body = b"" if b"/ready" in request else json.dumps(METADATA).encode()
            writer.write(whole(body))
            return await writer.drain()
        reader.feed_data(b"\r\n\r\n")
        await super().talk(reader, writer)
        return None


@asynccontextmanager
async def listening(server: Pretender) -> AsyncIterator[int]:
    async with raw_server(server.talk) as port:
        try:
            yield port
        finally:
            server.over.set()


async def probed(
    server: Pretender, wanted: Revision, texts: dict[str, str] | None = None, request_timeout: float = PATIENCE
) -> Any:
    async with listening(server) as port:
        return await Prober(port=port, request_timeout=request_timeout).probe(wanted, [POD], texts, "m")


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
RAW = HEAD + b"Inference-Header-Content-Length: %d\r\n"


@pytest.mark.parametrize(
    ("server", "limit"),
    [
        (HostileServer(HEAD + b"Content-Length: 1000000000000\r\n\r\n", ENDLESS), MAX_JSON_BYTES),
        (HostileServer(HEAD + b"\r\n", ENDLESS), MAX_JSON_BYTES),
        (HostileServer(CHUNKED, b"%x\r\n%s\r\n" % (len(ENDLESS), ENDLESS)), MAX_JSON_BYTES),
        (HostileServer(RAW % 10 + b"\r\n", ENDLESS, at=b"POST"), MAX_ANSWER_BYTES),
        (HostileServer(RAW % (MAX_JSON_BYTES + 1) + b"\r\n", ENDLESS, at=b"POST"), MAX_JSON_BYTES),
        (HostileServer(b"HTTP/1.1 500 No\r\n\r\n", ENDLESS, at=b"POST"), MAX_JSON_BYTES),
    ],
    ids=["a length", "until the end", "chunks", "raw tensors", "a long head", "an error"],
)
async def test_gigabytes_fail_the_probe_at_the_limit(server: HostileServer, limit: int) -> None:
    tracemalloc.start()
    view = await probed(server, revision(**WITH_GOLDENS), goldens([3.0]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert view.passed is False
    assert f"exceeds {limit} bytes" in view.message
    assert peak < 4 * MAX_ANSWER_BYTES
    assert server.sent < limit + 50_000_000


@pytest.mark.parametrize(
    "server",
    [
        HostileServer(b"H", b"", pause=3600),
        HostileServer(HEAD, b"X: y\r\n", pause=0.05),
        HostileServer(HEAD + b"Content-Length: 1000000\r\n\r\n", b" ", pause=0.05),
        HostileServer(CHUNKED, b"1\r\n \r\n", pause=0.05),
        HostileServer(b"", b"", at=b"GET /v2/health/ready"),
    ],
    ids=["never", "a head that drips", "a body that drips", "chunks that drip", "not even ready"],
)
async def test_who_never_comes_to_an_end_is_pending(server: HostileServer) -> None:
    view = await probed(server, revision(), request_timeout=0.5)
    assert view.passed is None
    assert view.reason == "ProbeFailed"


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage",
        b"[]",
        b'{"outputs": 7}',
        b'{"outputs": [{"name": "y"}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP99", "shape": [1], "data": [3.0]}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [4611686018427387904, 4], "data": []}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": ["x"], "data": {}}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [[[[3.0]], "x"]]}]}',
        b'{"outputs": [{"name": "y", "datatype": "BYTES", "shape": [1], "data": [{}]}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 1e99}}]}',
        b'{"outputs": ' + b"[" * 1_000_000,
        b'{"error": ' + b'{"a":' * 100_000,
    ],
    ids=range(12),
)
@pytest.mark.parametrize("length", [None, -5, 0, 10, 10**9])
async def test_garbage_for_a_golden_fails_the_probe_and_nothing_else(answer: bytes, length: int | None) -> None:
    headers = [] if length is None else [b"Inference-Header-Content-Length: %d" % length]
    server = HostileServer(whole(answer, *headers), at=b"POST")
    view = await probed(server, revision(**WITH_GOLDENS), goldens([3.0]))
    assert view.passed is False
    assert view.reason in {"ProbeFailed", "GoldensFailed"}
    assert view.message.startswith("p-1: ") and len(view.message) <= 1000


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - nobody tells of what is waited for
            await asyncio.sleep(0.01)


def named(name: str) -> Revision:
    return revision_of(name, {"versions": [{"name": "v1", "uri": "file:///m.pt"}]}, "v1")


async def test_servers_that_never_answer_hold_up_no_other_namespace() -> None:
    """As many revisions as there are turns, and each with as many pods as are asked at once."""
    pods = [PodView(name=f"p-{number}", created_at=1.0, ready=True, ip="127.0.0.1") for number in range(4)]
    silent, honest = HostileServer(b"", at=b"GET /v2/health/ready"), HonestServer()
    silent.pause = 3600
    silent.begin = b"H"
    queued: list[Hashable] = []
    async with listening(silent) as port, honest.running():
        ports = {"evil": port, "good": honest.port}
        service = ProbeService(queued.append, lambda key: Prober(port=ports[key.namespace], request_timeout=PATIENCE))  # type: ignore[attr-defined]
        for number in range(16):
            service.view(named(f"m{number}"), pods, None, "m", key=Key("evil", f"m{number}"))
        await until(lambda: silent.asked == 16)
        good = Key("good", "m")
        service.view(named("m"), [POD], None, "m", key=good)
        await until(lambda: queued == [good])
        assert service.view(named("m"), [POD], None, "m", key=good).passed is True
        await service.close()


async def test_large_answers_of_many_pods_wait_for_each_other() -> None:
    """Two pods may have answered at length; the third is read on once one of them has been checked."""
    large = HostileServer(RAW % 10 + b"\r\n" + b" " * 300_000, b"", pause=3600, at=b"POST")
    shared = asyncio.Semaphore(2)
    async with listening(large) as port:
        probers = [Prober(port=port, request_timeout=PATIENCE, large=shared) for _ in range(3)]
        wanted, texts = revision(**WITH_GOLDENS), goldens([3.0])
        tasks = [asyncio.create_task(one.probe(wanted, [POD], texts, "m")) for one in probers]
        await until(lambda: large.asked == 3 and shared.locked() and shared._waiters)
        done = [task for task in tasks if task.done()]
        assert done == []
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        await until(lambda: shared.locked() and not shared._waiters)
        large.over.set()
        assert [view.passed for view in await asyncio.gather(*tasks[1:])] == [False, False]
    assert not shared.locked()


async def test_what_hostile_servers_do_is_told_and_others_are_served() -> None:
    """A candidate answers garbage: the condition says so, and the stable version serves."""
    hostile, honest = HostileServer(whole(b"\x00 garbage")), HonestServer()
    async with listening(hostile) as port, honest.running():
        ports = {"v1": honest.port, "v2": port}

        class ByVersion:
            """A prober of whatever revision, at the port of its version."""

            def __init__(self) -> None:
                self.probers = {name: Prober(port=number) for name, number in ports.items()}

            async def probe(self, revision: Revision, pods: Any, goldens: Any, model_name: str) -> Any:
                local = [PodView(name=pod.name, created_at=1.0, ready=True, ip="127.0.0.1") for pod in pods]
                return await self.probers[revision.version.name].probe(revision, local, goldens, "m")

            def forget_failures(self) -> None:
                for prober in self.probers.values():
                    prober.forget_failures()

        world = World()
        queued: list[Hashable] = []
        service = ProbeService(queued.append, lambda key: ByVersion(), clock=lambda: world.now)
        world.reconciler._observer._prober = service
        world.declare(versions("v1", serve="v1"))
        await rests(world, service)
        assert world.status["stable"] == "v1"
        world.declare(versions("v1", "v2", serve="v2"))
        await rests(world, service)
        await service.close()
    assert {one["name"]: one["weight"]["intended"] for one in world.status["versions"]} == {"v1": 100}
    conditions = {one["type"]: one for one in world.status["conditions"]}
    assert (conditions["Available"]["status"], conditions["Available"]["message"]) == ("True", "v1 answers requests")
    for kind, value in (("Ready", "False"), ("Stalled", "True")):
        assert (conditions[kind]["status"], conditions[kind]["reason"]) == (value, "Failed")
        assert "rollout of v2 ended: Failed: ProbeFailed: " in conditions[kind]["message"]
        assert "the answer cannot be read" in conditions[kind]["message"]
    assert KEY in queued


async def rests(world: World, service: ProbeService) -> None:
    """Reconcile, with the probes between, until nothing is written any more."""
    quiet = 0
    for _ in range(200):
        before = world.api.writes
        await world.reconcile()
        world.pods_follow()
        world.now += 6.0
        await asyncio.gather(*(state.task for state in service._states.values() if state.task is not None))
        quiet = quiet + 1 if world.api.writes == before else 0
        if quiet == 10:
            return
    raise AssertionError("never at rest")
