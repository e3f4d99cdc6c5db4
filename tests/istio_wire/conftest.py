"""One Envoy and its pods for each test module."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from e2e.sandbox.mesh.proxy import EnvoyProxy
from e2e.sandbox.mesh.translation import MeshConfig
from tests.istio_wire.mesh_bench import REVISIONS, Bench, Pod


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running_bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    pods = [Pod(revision, address, {"rev": revision}) for address, revision in REVISIONS.items()]
    pods.append(Pod("v1-second", "10.244.0.3", {"rev": "v1-aaaa"}))
    runners = [await pod.start() for pod in pods]
    proxy = await EnvoyProxy(tmp_path_factory.mktemp("envoy")).start()
    async with aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Bench(proxy, pods[:2], session)
    await proxy.stop()
    for runner in runners:
        await runner.cleanup()


@pytest_asyncio.fixture(loop_scope="module")
async def bench(running_bench: Bench) -> Bench:
    for pod in running_bench.pods:
        pod.reset()
    await running_bench.proxy.apply(MeshConfig())
    return running_bench
