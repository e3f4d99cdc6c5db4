"""Issue "it stays up", watches: kopf's streams that fall silent or expire over and over."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slipway.app import operate
from slipway.engine.engine import Settings
from slipway.kube.client import Client
from slipway.kube.failures import ApiError, NotFoundError
from slipway.kube.kinds import MODEL_DEPLOYMENT, SERVICE
from slipway.kube.metadata import uid_of
from slipway.kube.transport import ApiTransport, load_configuration

from e2e.sandbox.apiserver.access import MASTERS
from e2e.sandbox.apiserver.access import User as Account
from e2e.sandbox.apiserver.server import ApiServer
from e2e.sandbox.cluster import attach, install
from e2e.sandbox.tokens import User, write_kubeconfig
from tests.faults.connections import all_closed

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="function")]

ADMIN = User("tests", (MASTERS,))
NEVER = 10**12


class Server:
    """The sandbox's API server in a thread of its own, so that the end of kopf cancels none of its tasks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.port = 0
        self.api = self._new()

    def _new(self) -> ApiServer:
        account = Account(ADMIN.name, ADMIN.groups)
        return ApiServer({ADMIN.token: account}, port=self.port, data_dir=self.folder / "data", keep=False)

    def do(self, work: Any) -> Any:
        """Run a coroutine in the server's thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)

    def start(self) -> None:
        self.do(self.api.start())
        self.port = int(self.api.url.rpartition(":")[2])
        write_kubeconfig(self.kubeconfig, self.api.url, self.api.ca_file, ADMIN)

    def stop(self) -> None:
        self.do(self.api.stop())

    def expire(self, floor: int) -> None:
        """Let every watch from before a version be expired, and end those that run."""

        async def work() -> None:
            for shelf in self.api.cluster.store.shelves.values():
                shelf.floor = floor
            for watch in tuple(self.api.handlers.watches if self.api.handlers else ()):
                watch.close()

        self.do(work())

    def end(self) -> None:
        self.stop()
        self.do(self._hung_up())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    async def _hung_up(self) -> None:
        """Wait until the last connection is closed: TLS takes some turns of the loop to say goodbye."""
        selector = self.loop._selector  # type: ignore[attr-defined]

        async def alone() -> bool:
            # One is the loop's own, by which other threads wake it.
            return len(selector.get_map()) <= 1

        await until(alone)


@pytest.fixture
def server(tmp_path, monkeypatch):
    made = Server(tmp_path)
    made.start()
    monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig))
    yield made
    made.end()


@contextlib.asynccontextmanager
async def operating(server: Server, **settings: Any):
    """The operator at work in this process; gives a client."""
    async with attach(server.kubeconfig).client("tests") as admin:
        await install(admin)
    stop = asyncio.Event()
    chosen = Settings(http_host="127.0.0.1", http_port=0, tick=3600.0, **settings)
    configuration = await load_configuration({"KUBECONFIG": str(server.kubeconfig)})
    async with all_closed(), Client(ApiTransport(configuration)) as client:
        task = asyncio.ensure_future(operate(chosen, stop=stop))
        try:
            yield client
            assert not task.done()
        finally:
            stop.set()
            await asyncio.wait([task], timeout=120)
    task.result()


async def declare(client: Client, name: str = "m") -> None:
    spec = {"versions": [{"name": "v1", "uri": "file:///models/v1"}]}
    head = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": MODEL_DEPLOYMENT.name}
    await client.apply(MODEL_DEPLOYMENT, head | {"metadata": {"namespace": "default", "name": name}, "spec": spec})


async def service(client: Client, other_than: str = "", name: str = "m") -> str:
    """The uid of the Service, once there is one, and another than that."""

    async def read() -> str:
        found = uid_of(await client.get(SERVICE, "default", name))
        return found if found != other_than else ""

    return str(await until(read))


async def until(read: Callable[[], Any]) -> Any:
    async with asyncio.timeout(120):
        while True:
            with contextlib.suppress(NotFoundError):
                if found := await read():
                    return found
            await asyncio.sleep(0.05)


async def test_watches_that_expire_over_and_over_are_neither_a_hot_loop_nor_an_end(server):
    asked: list[str] = []

    async def note(method: str, path: str) -> ApiError | None:
        if "watch=true" in path:
            asked.append(path)
        return None

    async with operating(server, resync=2.0) as client:
        await declare(client)
        first = await service(client)
        server.api.set_fault(note)
        server.expire(NEVER)
        began = time.monotonic()

        async def several() -> bool:
            return len({path.partition("?")[0] for path in asked}) > 5

        await until(several)
        await asyncio.sleep(4.0)
        seconds = time.monotonic() - began
        kinds = len({path.partition("?")[0] for path in asked})
        assert len(asked) < 3 * seconds * kinds
        server.expire(0)
        await client.delete(SERVICE, "default", "m", uid=first)
        assert await service(client, other_than=first)
        await declare(client, "another")
        assert await service(client, name="another")


async def test_silent_watches_are_made_up_for_by_lists(server):
    silent = False

    async def hush(method: str, path: str) -> ApiError | None:
        if silent and "watch=true" in path:
            await asyncio.Event().wait()
        return None

    server.api.set_fault(hush)
    async with operating(server, resync=1.0) as client:
        await declare(client)
        first = await service(client)
        silent = True
        server.expire(0)
        await asyncio.sleep(1.5)
        await client.delete(SERVICE, "default", "m", uid=first)
        assert await service(client, other_than=first)
        await declare(client, "another")
        assert await service(client, name="another")
