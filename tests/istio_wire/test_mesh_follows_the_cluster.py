"""The mesh as a watcher: what reaches Envoy, when, and what happens when watches break."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from e2e.sandbox.mesh import Mesh
from e2e.sandbox.mesh.reflector import ApiAccess, Reflector
from tests.istio_wire.mesh_bench import HOST, REVISIONS, Pod, endpoint_slice, scene, service
from tests.istio_wire.stub_api import TOKEN, StubApi

VIRTUAL_SERVICES = "/apis/networking.istio.io/v1/virtualservices"
RULES = "/apis/networking.istio.io/v1/destinationrules"
PODS = "/api/v1/pods"


@pytest_asyncio.fixture
async def api() -> AsyncIterator[StubApi]:
    stub = await StubApi().start()
    yield stub
    await stub.stop()


LOOKS_IN_A_TURN = 2
"""Of the mesh at its clock, while a state is pending: whether it is due, and how long until then."""


class Clock:
    """The machine's, until it is stopped."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._looks = 0

    def __call__(self) -> float:
        self._looks += 1
        return time.monotonic() if self._at is None else self._at

    async def stop(self, mesh: Mesh) -> None:
        """From now on the mesh's time passes by ``shift`` alone; the mesh looks at it at least every delay."""
        await eventually(lambda: seen(mesh, states=0))
        self._at = self()

    def shift(self, seconds: float) -> None:
        assert self._at is not None
        self._at += seconds
        self._looks = 0

    async def looked(self) -> bool:
        """Whether the mesh has come back to the time twice since it was shifted: what was due is done."""
        return self._looks > 2 * LOOKS_IN_A_TURN


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture
async def mesh(api: StubApi, clock: Clock, tmp_path: Path) -> AsyncIterator[Mesh]:
    """A mesh of the recorded scene `weighted`: two pods of one Service, 75 to 25."""
    pods = [Pod(revision, address, {"rev": revision}) for address, revision in REVISIONS.items()]
    runners = [await pod.start() for pod in pods]
    await api.put("/api/v1/services", service("sentiment", {"http": 80, "grpc": 9000}))
    for pod in pods:
        await api.put(PODS, {"metadata": {"name": pod.name, "namespace": "nlp", "labels": pod.labels}})
        await api.put("/apis/discovery.k8s.io/v1/endpointslices", endpoint_slice("sentiment", pod))
    await api.put(RULES, rule())
    await api.put(VIRTUAL_SERVICES, weighted(25))
    mesh = await Mesh(api.url, TOKEN, None, work_dir=tmp_path / "mesh", clock=clock).start()
    yield mesh
    await mesh.stop()
    for runner in runners:
        await runner.cleanup()


def rule() -> dict[str, Any]:
    (found,) = (item for item in scene("weighted")["objects"] if item["kind"] == "DestinationRule")
    return dict(found)


def weighted(second: int) -> dict[str, Any]:
    (item,) = (dict(item) for item in scene("weighted")["objects"] if item["kind"] == "VirtualService")
    first_route, second_route = item["spec"]["http"][0]["route"]
    first_route["weight"], second_route["weight"] = 100 - second, second
    return item


async def weights(mesh: Mesh) -> dict[str, int]:
    async with aiohttp.ClientSession(mesh.admin_url) as session, session.get("/weights") as answer:
        routes = (await answer.json())["routes"]
    found: dict[str, int] = next(route["weights"] for route in routes if route["host"] == HOST)
    return found


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.005)


async def test_weights_in_effect_can_be_read(mesh: Mesh) -> None:
    async with aiohttp.ClientSession(mesh.admin_url) as session:
        async with session.get("/weights") as answer:
            shown = await answer.json()
        async with session.get("/config") as answer:
            config = await answer.json()
    (route, *_) = shown["routes"]
    assert route["virtualService"] == "nlp/sentiment"
    assert route["weights"] == {"v1-aaaa": 75, "v2-bbbb": 25}
    assert route["resourceVersion"] == config["virtualServices"]["nlp/sentiment"] != ""
    assert config["version"] == shown["version"] == mesh.version
    assert config["clusters"][f"outbound|80|v1-aaaa|{HOST}"] == 1
    assert not config["rejected"]


async def test_a_weight_reaches_envoy_a_tenth_of_a_second_later(api: StubApi, mesh: Mesh, clock: Clock) -> None:
    # As was recorded with a real istiod: 0.09 to 0.12 s.
    await clock.stop(mesh)
    await api.put(VIRTUAL_SERVICES, weighted(50))
    await eventually(lambda: seen(mesh))
    clock.shift(0.09)
    await eventually(clock.looked)
    assert await weights(mesh) == {"v1-aaaa": 75, "v2-bbbb": 25}
    clock.shift(0.02)
    await eventually(lambda: shows(mesh, 50))


async def test_propagation_delay_holds_a_change_back(api: StubApi, mesh: Mesh) -> None:
    mesh.propagation_delay = math.inf
    version = mesh.version
    await api.put(VIRTUAL_SERVICES, weighted(60))
    await eventually(lambda: seen(mesh))
    assert await weights(mesh) == {"v1-aaaa": 75, "v2-bbbb": 25}
    assert mesh.version == version
    mesh.propagation_delay = 0
    await eventually(lambda: shows(mesh, 60))


async def seen(mesh: Mesh, states: int = 1) -> bool:
    """Whether the mesh has that many states of the cluster that it will make known."""
    return mesh.backlog == states


async def shows(mesh: Mesh, second: int) -> bool:
    return (await weights(mesh)).get("v2-bbbb") == second


async def test_each_change_waits_its_own_delay(api: StubApi, mesh: Mesh, clock: Clock) -> None:
    await clock.stop(mesh)
    mesh.propagation_delay = 0.4
    await api.put(VIRTUAL_SERVICES, weighted(40))
    await eventually(lambda: seen(mesh))
    clock.shift(0.2)
    await api.put(VIRTUAL_SERVICES, weighted(80))
    await eventually(lambda: seen(mesh, states=2))
    # The second does not take the place of the first, which has waited already.
    clock.shift(0.25)
    await eventually(lambda: shows(mesh, 40))
    assert mesh.backlog == 1
    clock.shift(0.2)
    await eventually(lambda: shows(mesh, 80))


async def test_a_refused_configuration_is_reported_and_the_old_one_stays(api: StubApi, mesh: Mesh) -> None:
    bad = weighted(50)
    bad["spec"]["http"][0]["match"] = [{"uri": {"regex": "(?=a)b"}}]
    await api.put(VIRTUAL_SERVICES, bad)

    async def reported() -> bool:
        async with aiohttp.ClientSession(mesh.admin_url) as session, session.get("/config") as answer:
            return "refused" in (await answer.json())["refusal"]

    await eventually(reported)
    assert await weights(mesh) == {"v1-aaaa": 75, "v2-bbbb": 25}
    shapeless = weighted(50)
    del shapeless["spec"]["http"][0]["route"][0]["destination"]
    await api.put(VIRTUAL_SERVICES, shapeless)

    async def unreadable() -> bool:
        async with aiohttp.ClientSession(mesh.admin_url) as session, session.get("/config") as answer:
            return "cannot be translated" in (await answer.json())["refusal"]

    await eventually(unreadable)
    await api.put(VIRTUAL_SERVICES, weighted(10))
    await eventually(lambda: shows(mesh, 10))


async def test_deleted_virtual_service_leaves_the_plain_service(api: StubApi, mesh: Mesh) -> None:
    await api.delete(VIRTUAL_SERVICES, "nlp", "sentiment")

    async def plain() -> bool:
        return await weights(mesh) == {"sentiment": 100}

    await eventually(plain)


# ---------------------------------------------------------------- the watch itself


@pytest_asyncio.fixture
async def reflector(api: StubApi) -> AsyncIterator[Reflector]:
    reflector = Reflector(ApiAccess(api.url, TOKEN, None), PODS, lambda: None)
    yield reflector
    await reflector.stop()


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "nlp", "labels": labels}}


def names(reflector: Reflector) -> set[str]:
    return {item["metadata"]["name"] for item in reflector.objects}


async def holds(reflector: Reflector, *expected: str) -> None:
    async def same() -> bool:
        return names(reflector) == set(expected)

    await eventually(same)


async def test_reflector_reads_all_pages(api: StubApi, reflector: Reflector) -> None:
    api.page_size = 2
    for number in range(5):
        await api.put(PODS, pod(f"p{number}"))
    reflector.start()
    await reflector.listed()
    assert len(reflector.objects) == 5
    assert api.calls[f"list {PODS}"] == 3


async def test_reflector_goes_on_where_a_watch_ended(api: StubApi, reflector: Reflector) -> None:
    await api.put(PODS, pod("a"))
    reflector.start()
    await holds(reflector, "a")
    await api.cut_watches()
    await api.put(PODS, pod("b"))
    await api.delete(PODS, "nlp", "a")
    await holds(reflector, "b")
    assert api.calls[f"list {PODS}"] == 1


async def test_reflector_lists_again_when_history_is_gone(api: StubApi, reflector: Reflector) -> None:
    await api.put(PODS, pod("a"))
    await api.put(PODS, pod("b"))
    reflector.start()
    await holds(reflector, "a", "b")
    await api.forget_history()
    await api.delete(PODS, "nlp", "a")
    await holds(reflector, "b")
    assert api.calls[f"list {PODS}"] == 2


async def test_a_kind_that_is_not_installed_is_empty_until_it_is(api: StubApi, reflector: Reflector) -> None:
    api.missing.add(PODS)
    reflector.start()
    await reflector.listed()
    assert names(reflector) == set()
    await api.put(PODS, pod("a"))
    api.missing.clear()
    await holds(reflector, "a")
