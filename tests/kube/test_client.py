import asyncio

import aiohttp
import pytest
from slipway.kube.client import Client, RetryPolicy
from slipway.kube.failures import ConflictError, ForbiddenError, InvalidError, NotFoundError, UnavailableError
from slipway.kube.kinds import CONFIG_MAP, DEPLOYMENT, LEASE, MODEL_DEPLOYMENT, VIRTUAL_SERVICE, kind_of
from slipway.kube.transport import Answer, Call

from tests.kube.memory_api import MemoryApi, status


class Sleeps:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi()


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()


@pytest.fixture
def client(api, sleeps) -> Client:
    return Client(api, clock=sleeps.clock, sleep=sleeps.sleep, draw=lambda: 1.0)


def config_map(name: str, **data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ns", "name": name}, "data": data}


def once(answer: Answer | BaseException):
    answers: list[Answer | BaseException] = [answer]

    def fault(call: Call) -> Answer | None:
        if not answers:
            return None
        found = answers.pop()
        if isinstance(found, BaseException):
            raise found
        return found

    return fault


def test_paths():
    assert CONFIG_MAP.path("ns", "a") == "/api/v1/namespaces/ns/configmaps/a"
    assert CONFIG_MAP.path() == "/api/v1/configmaps"
    assert (
        MODEL_DEPLOYMENT.path("ns", "a", "status")
        == "/apis/slipway.dev/v1alpha1/namespaces/ns/modeldeployments/a/status"
    )


def test_kind_of_an_object():
    assert kind_of({"apiVersion": "apps/v1", "kind": "Deployment"}) == DEPLOYMENT
    assert kind_of({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService"}) == VIRTUAL_SERVICE
    with pytest.raises(KeyError):
        kind_of({"apiVersion": "v1", "kind": "Node"})


async def test_lists_in_pages_and_restores_the_kind(api, client):
    for number in range(7):
        api.put(config_map(f"c{number}"))
    listing = await client.list(CONFIG_MAP, page=3)
    assert [item["metadata"]["name"] for item in listing.items] == [f"c{number}" for number in range(7)]
    assert {(item["apiVersion"], item["kind"]) for item in listing.items} == {("v1", "ConfigMap")}
    assert [dict(call.query).get("continue") for call in api.calls] == [None, "3", "6"]
    assert listing.resource_version.isdigit()


async def test_an_expired_page_leads_to_one_list_in_one_piece(api, client):
    for number in range(4):
        api.put(config_map(f"c{number}"))
    api.faults.append(
        lambda call: status(410, "Expired", "too old") if dict(call.query).get("continue") == "3" else None
    )
    assert len((await client.list(CONFIG_MAP, page=3)).items) == 4
    assert dict(api.calls[-1].query) == {}


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (404, "NotFound", NotFoundError),
        (409, "Conflict", ConflictError),
        (403, "Forbidden", ForbiddenError),
        (401, "Unauthorized", ForbiddenError),
        (422, "Invalid", InvalidError),
        (400, "BadRequest", InvalidError),
    ],
)
async def test_errors_that_no_repetition_helps(api, client, sleeps, code, reason, error):
    api.faults.append(lambda call: status(code, reason, "what is wrong"))
    with pytest.raises(error, match="what is wrong") as caught:
        await client.get(CONFIG_MAP, "ns", "a")
    assert (caught.value.status, caught.value.reason) == (code, reason)
    assert (len(api.calls), sleeps.waits) == (1, [])


@pytest.mark.parametrize(
    "failure",
    [
        status(500, "InternalError", "etcd"),
        status(503, "ServiceUnavailable", "starting"),
        Answer(502, {}, b"<html>bad gateway</html>"),
        TimeoutError(),
        ConnectionResetError(),
        aiohttp.ServerDisconnectedError(),
    ],
)
async def test_passing_failures_are_tried_again(api, client, sleeps, failure):
    api.put(config_map("a"))
    api.faults.append(once(failure))
    assert (await client.get(CONFIG_MAP, "ns", "a"))["metadata"]["name"] == "a"
    assert sleeps.waits == [0.2]


async def test_gives_up_after_the_last_attempt_with_the_servers_words(api, sleeps):
    client = Client(api, clock=sleeps.clock, sleep=sleeps.sleep, draw=lambda: 1.0, retry=RetryPolicy(attempts=4))
    api.faults.append(lambda call: status(500, "InternalError", "etcd is on fire"))
    with pytest.raises(UnavailableError, match="etcd is on fire"):
        await client.get(CONFIG_MAP, "ns", "a")
    assert sleeps.waits == [0.2, 0.4, 0.8]


async def test_retry_after_holds_back_every_call(api, client, sleeps):
    api.put(config_map("a"))
    api.faults.append(once(status(429, "TooManyRequests", "slow down", Retry_After="7")))
    await asyncio.gather(client.get(CONFIG_MAP, "ns", "a"), client.get(CONFIG_MAP, "ns", "a"))
    assert sleeps.now >= 7


async def test_calls_are_reported_and_limited(api):
    seen, inside, most = [], 0, 0
    send = api.send

    async def slow(call: Call):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        return await send(call)

    api.send = slow
    api.put(config_map("a"))
    client = Client(api, concurrency=2, on_call=lambda *call: seen.append(call[:3]))
    await asyncio.gather(*(client.get(CONFIG_MAP, "ns", "a") for _ in range(6)))
    assert most == 2
    assert seen == [("GET", "configmaps", 200)] * 6


async def test_a_lease_does_not_wait_for_calls_that_hang(api):
    hanging, answer = asyncio.Event(), api.send

    async def send(call):
        if "configmaps" in call.path:
            hanging.set()
            await asyncio.Event().wait()
        return await answer(call)

    api.send = send
    api.put({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": "ns", "name": "a"}})
    client = Client(api, concurrency=1)
    hung = asyncio.create_task(client.get(CONFIG_MAP, "ns", "a"))
    await hanging.wait()
    async with asyncio.timeout(60):
        assert (await client.get(LEASE, "ns", "a"))["metadata"]["name"] == "a"
    hung.cancel()


async def test_apply_names_the_field_manager_and_forces(api, client):
    await client.apply(CONFIG_MAP, config_map("a", x="1"))
    call = api.calls[-1]
    assert (call.method, call.content_type) == ("PATCH", "application/apply-patch+yaml")
    assert dict(call.query) == {"fieldManager": "slipway", "force": "true"}


async def test_delete_only_the_very_object(api, client):
    stored = api.put(config_map("a"))
    with pytest.raises(ConflictError):
        await client.delete(CONFIG_MAP, "ns", "a", uid="other")
    await client.delete(CONFIG_MAP, "ns", "a", uid=stored["metadata"]["uid"])
    assert api.find("configmaps", "ns", "a") is None


async def test_create_tells_a_taken_name(api, client):
    api.put(config_map("a"))
    with pytest.raises(ConflictError) as caught:
        await client.create(CONFIG_MAP, config_map("a"))
    assert caught.value.already_exists


@pytest.mark.parametrize(
    "text",
    [
        "failed to create typed patch object (/m; apps/v1, Kind=Deployment): .spec.template.spec.bogus: unknown",
        "failed to convert new object (ns/m; apps/v1, Kind=Deployment) to proper version: unable to convert "
        "unstructured object to apps/v1, Kind=Deployment: cannot convert float64 to int64 (bogus)",
    ],
)
async def test_an_object_that_does_not_fit_its_schema_is_refused_for_good_whatever_the_status_says(text):
    """The API server answers 500, as recorded in kube_wire, and would do so for ever."""
    api = MemoryApi()
    calls: list[Call] = []

    def refuse(call: Call) -> Answer:
        calls.append(call)
        return status(500, "", text)

    api.faults.append(refuse)
    client = Client(api, retry=RetryPolicy(attempts=3, first=0.0))
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "ns", "name": "m"}, "spec": {}}
    with pytest.raises(InvalidError, match="bogus"):
        await client.apply(DEPLOYMENT, body)
    assert len(calls) == 1
