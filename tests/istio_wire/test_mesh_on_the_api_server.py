"""The mesh on the sandbox's API server: Istio's kinds, the recorded scenes and how fast a change gets through."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from e2e.sandbox.apiserver import ApiServer, User
from e2e.sandbox.mesh import CRD_FOLDER, Mesh
from e2e.sandbox.mesh.reflector import ApiAccess
from tests.istio_wire.mesh_bench import HOST, REVISIONS, Pod, endpoint_slice, scene, service
from tests.istio_wire.test_istio_scenes import NAMES

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "admin-token"
NETWORKING = "/apis/networking.istio.io/v1/namespaces/nlp"
PLURALS = {"VirtualService": "virtualservices", "DestinationRule": "destinationrules"}
TWO_BALANCERS = {"simple": "RANDOM", "consistentHash": {"useSourceIp": True}}


class Api:
    """A few calls to the API server."""

    def __init__(self, access: ApiAccess, session: aiohttp.ClientSession) -> None:
        self.access = access
        self._session = session

    async def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        async with self._session.request(method, path, json=body, headers={"Content-Type": kind}) as answer:
            return answer.status, await answer.json()

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        status, answer = await self.call("POST", path, body)
        assert status == 201, answer
        return dict(answer)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    folder = tmp_path_factory.mktemp("apiserver")
    server = ApiServer(tokens={TOKEN: User("admin", groups=("system:masters",))}, data_dir=folder)
    await server.start()
    access = ApiAccess(server.url, TOKEN, Path(server.ca_file))
    async with access.session() as session:
        api = Api(access, session)
        for file in sorted(CRD_FOLDER.glob("*.yaml")):
            definition = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            await api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        await api.create("/api/v1/namespaces", {"metadata": {"name": "nlp"}})
        yield api
    await server.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(api: Api, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    pods = [Pod(revision, address, {"rev": revision}) for address, revision in REVISIONS.items()]
    runners = [await pod.start() for pod in pods]
    await api.create("/api/v1/namespaces/nlp/services", service("sentiment", {"http": 80, "grpc": 9000}))
    for pod in pods:
        metadata = {"name": pod.name, "labels": pod.labels}
        containers = [{"name": "server", "image": "sandbox-echo"}]
        await api.create("/api/v1/namespaces/nlp/pods", {"metadata": metadata, "spec": {"containers": containers}})
        slices = "/apis/discovery.k8s.io/v1/namespaces/nlp/endpointslices"
        await api.create(slices, endpoint_slice("sentiment", pod))
    mesh = Mesh(api.access.url, TOKEN, api.access.ca_file, work_dir=tmp_path_factory.mktemp("mesh"))
    yield await mesh.start()
    await mesh.stop()
    for runner in runners:
        await runner.cleanup()


async def shown(mesh: Mesh, virtual_service: dict[str, Any]) -> list[dict[str, Any]]:
    """The routes of a VirtualService, once the stored version of it is in effect."""
    metadata = virtual_service["metadata"]
    owner = f"{metadata['namespace']}/{metadata['name']}"
    while True:
        routes = [route for route in mesh.weights() if route["virtualService"] == owner]
        if routes and routes[0]["resourceVersion"] == metadata["resourceVersion"]:
            return routes
        await mesh.changed()


async def remove_all(api: Api) -> None:
    for plural in PLURALS.values():
        status, _ = await api.call("DELETE", f"{NETWORKING}/{plural}")
        assert status == 200


@pytest.mark.parametrize("name", NAMES)
async def test_recorded_objects_are_stored_as_they_are(api: Api, name: str) -> None:
    for item in scene(name)["objects"]:
        stored = await api.create(f"{NETWORKING}/{PLURALS[item['kind']]}", item)
        assert stored["spec"] == item["spec"]
    await remove_all(api)


@pytest.mark.parametrize("name", ["weighted", "delegate", "mirror", "header-pin", "outlier-and-pool"])
async def test_scenes_take_effect_through_the_api_server(api: Api, mesh: Mesh, name: str) -> None:
    recorded = scene(name)
    stored = [await api.create(f"{NETWORKING}/{PLURALS[item['kind']]}", item) for item in recorded["objects"]]
    roots = [item for item in stored if item["kind"] == "VirtualService" and item["spec"].get("hosts")]
    await shown(mesh, roots[0])
    async with aiohttp.ClientSession(mesh.url, cookie_jar=aiohttp.DummyCookieJar()) as session:
        for probe in recorded["probes"]:
            answers = set()
            for _ in range(probe["requests"]):
                async with session.get("/", headers={"Host": probe["host"], **probe["headers"]}) as answer:
                    answers.add(f"{answer.status} {await answer.text()}")
            assert answers == set(probe["answers"])
    await remove_all(api)


async def test_changed_weights_take_effect_one_after_the_other(api: Api, mesh: Mesh) -> None:
    for item in scene("weighted")["objects"]:
        await api.create(f"{NETWORKING}/{PLURALS[item['kind']]}", item)
    for second in (30, 40, 50, 60, 70, 80):
        path = f"{NETWORKING}/virtualservices/sentiment"
        values = {0: 100 - second, 1: second}
        change = [
            {"op": "replace", "path": f"/spec/http/0/route/{index}/weight", "value": value}
            for index, value in values.items()
        ]
        status, stored = await api.call("PATCH", path, change, "application/json-patch+json")
        assert status == 200
        routes = await shown(mesh, stored)
        assert routes[0]["weights"] == {"v1-aaaa": 100 - second, "v2-bbbb": second}
    await remove_all(api)


@pytest.mark.parametrize(
    ("kind", "spec", "complaint"),
    [
        ("VirtualService", {"http": [{"route": [{"weight": 1}]}]}, "destination"),
        ("VirtualService", {"http": [{"route": [{"destination": {"host": "a"}, "weight": "5"}]}]}, "weight"),
        ("VirtualService", {"http": [{"timeout": "soon"}]}, "timeout"),
        ("VirtualService", {"http": [{"timeout": "1us"}]}, "must be a valid duration greater than 1ms"),
        ("VirtualService", {"http": [{"match": [{"uri": {"exact": "/", "prefix": "/"}}]}]}, "uri"),
        ("VirtualService", {"http": [{"route": [{"destination": {"host": "a", "port": {"number": -1}}}]}]}, "number"),
        ("DestinationRule", {}, "host"),
        ("DestinationRule", {"host": "a", "subsets": [{"labels": {}}]}, "name"),
        ("DestinationRule", {"host": "a", "trafficPolicy": {"loadBalancer": {"simple": "BEST"}}}, "simple"),
        ("DestinationRule", {"host": "a", "trafficPolicy": {"loadBalancer": TWO_BALANCERS}}, "loadBalancer"),
    ],
)
async def test_what_istios_schemas_refuse(api: Api, kind: str, spec: dict[str, Any], complaint: str) -> None:
    body = {"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": {"name": "bad"}, "spec": spec}
    status, answer = await api.call("POST", f"{NETWORKING}/{PLURALS[kind]}", body)
    assert status == 422, answer
    assert complaint in answer["message"]


async def test_both_versions_show_the_same_object(api: Api) -> None:
    (rule,) = (item for item in scene("weighted")["objects"] if item["kind"] == "DestinationRule")
    older = "/apis/networking.istio.io/v1beta1/namespaces/nlp/destinationrules"
    created = await api.create(older, {**rule, "apiVersion": "networking.istio.io/v1beta1"})
    status, stored = await api.call("GET", f"{NETWORKING}/destinationrules/sentiment")
    assert status == 200
    assert stored["apiVersion"] == "networking.istio.io/v1"
    assert stored["metadata"]["uid"] == created["metadata"]["uid"]
    assert stored["spec"] == rule["spec"]
    assert stored["spec"]["host"] == HOST
    await remove_all(api)
