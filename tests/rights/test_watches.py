"""Each right to watch is needed. kopf itself watches, in one namespace for each kind whose watch is not allowed there.

What happens to an object that is not watched stays unnoticed, while the same is noticed at once where all is allowed.
Simulated: API server, pods, and answers to the operator's probes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest
from slipway.app import operate
from slipway.engine.engine import Settings
from slipway.kube.client import Client
from slipway.kube.failures import NotFoundError
from slipway.kube.kinds import (
    CHILDREN,
    CONFIG_MAP,
    DEPLOYMENT,
    HTTP_ROUTE,
    MODEL_DEPLOYMENT,
    POD,
    POD_DISRUPTION_BUDGET,
    SCALED_OBJECT,
    SERVICE,
    WATCHED,
    Kind,
)
from slipway.kube.transport import ApiTransport, load_configuration

from e2e.faults.api import ADMIN_TOKEN, Api, definitions
from e2e.faults.nodes import Nodes
from e2e.faults.operators import AllPass
from e2e.faults.world import NAME, Wall, spec_of
from e2e.sandbox.apiserver.access import MASTERS, User
from e2e.sandbox.apiserver.server import ApiServer
from e2e.sandbox.cluster import attach, install
from e2e.sandbox.tokens import User as Account
from e2e.sandbox.tokens import write_kubeconfig
from tests.faults.connections import all_closed
from tests.faults.test_watches import ADMIN, Server
from tests.rights.plays import GATEWAY, HPA, POLICIES
from tests.rights.roles import ACCOUNT, Recorder, Right, granted, in_cluster, in_namespace, optional_apis, path_of
from tests.rights.stage import TOKEN, keda

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="function")]

ISTIO = spec_of("v1", "v1", traffic={"settle": "1s", **POLICIES}, autoscaling=HPA)
ROUTES = spec_of("v1", "v1", traffic=GATEWAY)
SHADOW = spec_of("v1", "v1", traffic={"settle": "1s"}, autoscaling={"mode": "None"})
COMPARISON = {
    "versions": [{"name": name, "uri": f"file:///models/{name}"} for name in ("v1", "v2")],
    "serve": "v2",
    "rollout": {"strategy": "Shadow", "shadow": {"percent": 10}},
}
CRDS = "customresourcedefinitions"
EXTENSIONS = "apiextensions.k8s.io"
NOTHING_TOLD: Mapping[str, str] = {
    "modeldeployments": "what is declared or changed",
    "pods": "pods that get ready or fail: no version ever gets traffic",
    "scaledobjects": "a ScaledObject that claims a Deployment",
    CRDS: "the kinds of Istio or of the Gateway API, where they are installed later",
}
"""What goes unnoticed, by kind; of all others that an object was changed or deleted."""


def unnoticed(right: Right) -> str:
    """The consequence in words."""
    what = NOTHING_TOLD.get(right.resource, "that one was changed or deleted")
    until_when = "the operator starts again" if right.resource == CRDS else "the next complete list"
    return f"not noticed until {until_when}: {what}"


class Guarded(Server):
    """The API server with RBAC for the operator's account."""

    def _new(self) -> ApiServer:
        master = User(ADMIN.name, (MASTERS,))
        users = {ADMIN.token: master, ADMIN_TOKEN: master, TOKEN: ACCOUNT}
        return ApiServer(users, port=self.port, data_dir=self.folder / "data", keep=False)

    def start(self) -> None:
        super().start()
        self.recorder = Recorder(self.api.cluster.store)
        self.api.cluster.authorizer = self.recorder
        write_kubeconfig(self.folder / "operator", self.api.url, self.api.ca_file, Account(ACCOUNT.name, (), TOKEN))

        assert self.api.handlers is not None
        self.inside = Api(Wall())
        self.inside.handlers = self.api.handlers

    def prepare(self, namespace: str, lacking: Right | None) -> None:
        """Make a namespace in which the operator lacks a right."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        self.do(self.inside.ask("POST", "/api/v1/namespaces", body))
        self.grant(in_namespace(namespace, lacking))

    def grant(self, objects: list[dict[str, Any]]) -> None:
        """Write roles and bindings."""
        for obj in objects:
            self.do(self.inside.ask("PATCH", path_of(obj), obj, content_type="application/apply-patch+yaml"))

    @contextlib.contextmanager
    def node(self, namespace: str) -> Iterator[None]:
        """A simulated node for a namespace, whose pods are ready at once."""
        node = Nodes(self.inside, namespace, lambda: 1_767_225_600.0, start_seconds=0.0)
        self.do(_called(node.start))
        yield
        self.do(_called(node.stop))

    @property
    def watching(self) -> int:
        """Streams that are open."""
        assert self.api.handlers is not None
        return len(self.api.handlers.watches)


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    made.start()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "operator"))
    monkeypatch.setattr("slipway.app.ProbeService", lambda queue, new_prober: AllPass())
    yield made
    made.end()


class Admin:
    """The administrator's client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def declare(self, namespace: str, spec: dict[str, Any]) -> None:
        head = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": MODEL_DEPLOYMENT.name}
        metadata = {"namespace": namespace, "name": NAME}
        await self.client.apply(MODEL_DEPLOYMENT, head | {"metadata": metadata, "spec": spec})

    async def objects(self, kind: Kind, namespace: str) -> dict[str, str]:
        """Uids by name."""
        listing = await self.client.list(kind, namespace)
        return {obj["metadata"]["name"]: obj["metadata"]["uid"] for obj in listing.items}

    async def status(self, namespace: str) -> dict[str, Any]:
        found = await self.client.get(MODEL_DEPLOYMENT, namespace, NAME)
        return dict(found.get("status") or {})

    async def remove(self, kind: Kind, namespace: str) -> dict[str, str]:
        """Delete all objects of a kind; gives those that were there."""
        before = await self.objects(kind, namespace)
        for name, uid in before.items():
            await self.client.delete(kind, namespace, name, uid=uid)
        return before

    async def made_again(self, kind: Kind, namespace: str, before: dict[str, str]) -> None:
        """Wait until all of them are there once more."""

        async def read() -> bool:
            now = await self.objects(kind, namespace)
            return set(now) == set(before) and not set(now.values()) & set(before.values())

        await until(read, f"{kind.name} in {namespace}")


async def _called(action: Callable[[], None]) -> None:
    action()


async def until(read: Callable[[], Any], what: str) -> Any:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(120):
            while True:
                with contextlib.suppress(NotFoundError):
                    if found := await read():
                        return found
                await asyncio.sleep(0.05)
    raise AssertionError(what)


@contextlib.asynccontextmanager
async def operating(server: Guarded, namespaces: tuple[str, ...]) -> AsyncIterator[None]:
    """The operator at work in this process, without a complete list after the first."""
    stop = asyncio.Event()
    settings = Settings(namespaces, optional_apis(), http_host="127.0.0.1", http_port=0, tick=3600.0, resync=3600.0)
    async with all_closed():
        task = asyncio.ensure_future(operate(settings, stop=stop))
        try:
            yield
            assert not task.done()
        finally:
            stop.set()
            await asyncio.wait([task], timeout=120)
        task.result()


@contextlib.asynccontextmanager
async def administering(server: Guarded) -> AsyncIterator[Admin]:
    configuration = await load_configuration({"KUBECONFIG": str(server.kubeconfig)})
    async with attach(server.kubeconfig).client("tests") as client:
        await install(client)
    async with Client(ApiTransport(configuration), field_manager="tests") as client:
        yield Admin(client)


def watch(kind: Kind) -> Right:
    return Right(kind.group, kind.plural, "watch")


WHOLE = {"whole-istio": ISTIO, "whole-routes": ROUTES, "whole-shadow": SHADOW}
"""Namespaces in which all is allowed."""


def spec_with(kind: Kind) -> dict[str, Any]:
    """A spec of which an object of the kind is made."""
    return {HTTP_ROUTE: ROUTES, CONFIG_MAP: SHADOW}.get(kind, ISTIO)


async def test_every_watch_has_its_test() -> None:
    tested = {watch(kind) for kind in WATCHED} | {Right(EXTENSIONS, CRDS, verb) for verb in ("list", "watch")}
    assert tested == {right for right in granted() if right.verb == "watch" or right.group == EXTENSIONS}


async def test_what_is_not_watched_goes_unnoticed(server: Guarded) -> None:
    blind = {f"without-{kind.plural}": kind for kind in WATCHED}
    specs = WHOLE | {namespace: spec_with(kind) for namespace, kind in blind.items()}
    async with administering(server) as admin, contextlib.AsyncExitStack() as nodes:
        server.do(server.inside.install(keda()))
        for namespace in specs:
            lacking = watch(blind[namespace]) if namespace in blind else None
            server.prepare(namespace, lacking)
            nodes.enter_context(server.node(namespace))
        async with operating(server, tuple(specs)):
            await until(lambda: _streams(server, len(specs) * len(WATCHED) - len(blind)), "all streams")
            await asyncio.gather(*(admin.declare(*place) for place in specs.items()))
            await asyncio.gather(*(_settled(admin, namespace, specs[namespace]) for namespace in WHOLE))
            await asyncio.gather(*(_noticed(admin, namespace) for namespace in WHOLE))
            await asyncio.gather(*(_unnoticed(admin, *place) for place in blind.items()))
    assert {watch(kind) for kind in WATCHED} <= server.recorder.allowed
    assert set(server.recorder.refused) == {watch(kind) for kind in WATCHED}


async def _streams(server: Guarded, number: int) -> bool:
    return server.watching >= number and set(server.recorder.refused) >= {watch(kind) for kind in WATCHED}


async def _settled(admin: Admin, namespace: str, spec: dict[str, Any]) -> None:
    """Wait until everything is there that the spec is for."""

    async def serving() -> bool:
        status = await admin.status(namespace)
        return bool((status.get("phase"), status.get("stable")) == ("Ready", "v1"))

    await until(serving, f"v1 serves in {namespace}")
    if spec is SHADOW:
        await admin.declare(namespace, SHADOW | COMPARISON)
        await until(lambda: admin.objects(CONFIG_MAP, namespace), f"a comparison in {namespace}")


async def _noticed(admin: Admin, namespace: str) -> None:
    """Whatever is deleted comes back at once; somebody else's scaler is told of."""
    kinds = [kind for kind in CHILDREN if await admin.objects(kind, namespace)]
    for kind in kinds:
        await admin.made_again(kind, namespace, await admin.remove(kind, namespace))
    await _claim(admin, namespace)
    await until(lambda: _claimed(admin, namespace), f"a foreign scaler in {namespace}")


async def _unnoticed(admin: Admin, namespace: str, kind: Kind) -> None:
    if kind == MODEL_DEPLOYMENT:
        # The others, declared at the same time, have got through a whole deployment by now.
        assert await admin.status(namespace) == {}
        return
    if kind == POD:
        assert await admin.objects(POD, namespace)
        assert [entry["readyReplicas"] for entry in (await admin.status(namespace))["versions"]] == [0]
        return
    await _settled(admin, namespace, spec_with(kind))
    if kind == SCALED_OBJECT:
        await _claim(admin, namespace)
    before = await admin.remove(kind, namespace) if kind != SCALED_OBJECT else {}
    other = POD_DISRUPTION_BUDGET if kind == SERVICE else SERVICE
    await admin.made_again(other, namespace, await admin.remove(other, namespace))
    if kind == SCALED_OBJECT:
        assert not await _claimed(admin, namespace)
        return
    assert before
    assert not set(before) & set(await admin.objects(kind, namespace)), "though nobody told"


async def _claim(admin: Admin, namespace: str) -> None:
    (revision,) = [name for name in await admin.objects(DEPLOYMENT, namespace) if "-v1-" in name]
    head = {"apiVersion": SCALED_OBJECT.api_version, "kind": SCALED_OBJECT.name}
    spec = {"scaleTargetRef": {"name": revision}}
    await admin.client.apply(SCALED_OBJECT, head | {"metadata": {"namespace": namespace, "name": "x"}, "spec": spec})


async def _claimed(admin: Admin, namespace: str) -> bool:
    conditions = (await admin.status(namespace)).get("conditions") or ()
    return any(one["type"] == "ScalingActive" and one["reason"] == "ScalerConflict" for one in conditions)


@pytest.mark.parametrize("verb", ["", "list", "watch"])
async def test_kinds_that_are_installed_later_are_found_by_their_definitions(server: Guarded, verb: str) -> None:
    lacking = Right(EXTENSIONS, CRDS, verb) if verb else None
    found = watch(HTTP_ROUTE)
    recorder = server.recorder
    [definition] = [one for one in definitions() if one["metadata"]["name"].startswith("httproutes.")]
    async with administering(server):
        server.grant(in_cluster(lacking))
        server.do(server.inside.uninstall(definition["metadata"]["name"]))
        async with operating(server, ()):
            opened = Right(EXTENSIONS, CRDS, "watch")
            await until(lambda: _holds(opened in recorder.allowed or lacking in recorder.refused), "definitions")
            assert found not in recorder.allowed
            server.do(server.inside.install(definition))
            if lacking is None:
                await until(lambda: _holds(found in recorder.allowed), "HTTPRoutes are watched")
                return
            # kopf asks again after a second or two: what it might have been told it would have been told by then.
            refusals = recorder.refused.count(lacking)
            await until(lambda: _holds(recorder.refused.count(lacking) > refusals + 1), "two more refusals")
            assert found not in recorder.allowed


async def _holds(fact: bool) -> bool:
    return fact
