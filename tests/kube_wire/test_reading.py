"""Lists and watches beyond the recording: pages of one moment, resuming, expired versions, tables; restarts."""

import asyncio

import pytest

from e2e.sandbox.apiserver import ApiServer, store

from .conftest import TOKENS, client_of

CONFIGS = "/api/v1/namespaces/team/configmaps"


def config(name, **labels):
    return {"metadata": {"name": name, "labels": labels}, "data": {}}


async def test_pages_show_the_moment_of_the_first(client):
    for name in "abcd":
        await client.post(CONFIGS, config(name))
    first = await client.get(f"{CONFIGS}?limit=2")
    await client.delete(f"{CONFIGS}/d")
    await client.post(CONFIGS, config("e"))
    token = first.body["metadata"]["continue"]
    second = await client.get(f"{CONFIGS}?limit=2&continue={token}")
    assert [item["metadata"]["name"] for item in second.body["items"]] == ["c", "d"]
    assert second.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
    version = first.body["metadata"]["resourceVersion"]
    exact = await client.get(f"{CONFIGS}?resourceVersion={version}&resourceVersionMatch=Exact")
    assert [item["metadata"]["name"] for item in exact.body["items"]] == ["a", "b", "c", "d"]


async def test_watches_resume_where_they_were(client):
    made = await client.post(CONFIGS, config("a"))
    await client.patch(f"{CONFIGS}/a", {"data": {"k": "v"}})
    await client.delete(f"{CONFIGS}/a")
    version = made.body["metadata"]["resourceVersion"]
    events = [event async for event in client.watch(f"{CONFIGS}?watch=1&resourceVersion={version}&timeoutSeconds=1")]
    assert [event["type"] for event in events] == ["MODIFIED", "DELETED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


async def test_forgotten_changes_end_a_watch_with_410(client, monkeypatch):
    monkeypatch.setattr(store, "KEPT_CHANGES", 3)
    made = await client.post(CONFIGS, config("a"))
    for value in range(6):
        await client.patch(f"{CONFIGS}/a", {"data": {"k": str(value)}})
    version = made.body["metadata"]["resourceVersion"]
    events = [event async for event in client.watch(f"{CONFIGS}?watch=1&resourceVersion={version}&timeoutSeconds=1")]
    assert [(event["type"], event["object"]["code"]) for event in events] == [("ERROR", 410)]


async def test_a_watch_of_tables_sends_its_columns_once(client):
    await client.post(CONFIGS, config("a"))
    await client.post(CONFIGS, config("b"))
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    events = [event async for event in client.watch(f"{CONFIGS}?watch=1&timeoutSeconds=1", Accept=accept)]
    assert [bool(event["object"]["columnDefinitions"]) for event in events] == [True, False]


async def test_versions_of_the_future_are_too_large(client):
    answer = await client.get(f"{CONFIGS}?resourceVersion=999999")
    assert (answer.code, answer.body["reason"]) == (504, "Timeout")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("a", "xy"),
        ("!a", "z"),
        ("a!=1", "yz"),
        ("a in (1, 2),b", "x"),
        ("a notin (1)", "yz"),
        ("a=1,b=2", "x"),
        ("a>1", "y"),
        ("b=", ""),
    ],
)
async def test_label_selectors(client, selector, names):
    for name, labels in (("x", {"a": "1", "b": "2"}), ("y", {"a": "2"}), ("z", {})):
        await client.post(CONFIGS, config(name, **labels))
    found = await client.send("GET", f"{CONFIGS}?labelSelector={selector.replace('!', '%21').replace(' ', '+')}")
    assert "".join(item["metadata"]["name"] for item in found.body["items"]) == names


async def test_a_namespace_goes_with_its_content_and_takes_no_more(client):
    await client.post(CONFIGS, config("a"))
    await client.post(CONFIGS, {"metadata": {"name": "held", "finalizers": ["a.b/hold"]}})
    leaving = await client.delete("/api/v1/namespaces/team")
    assert leaving.body["status"]["phase"] == "Terminating"
    refused = await client.post(CONFIGS, config("late"))
    assert (refused.code, refused.body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    assert (await client.get(f"{CONFIGS}/a")).code == 404
    await client.patch(f"{CONFIGS}/held", {"metadata": {"finalizers": []}})
    assert (await client.get("/api/v1/namespaces/team")).code == 404


async def test_a_restart_keeps_objects_and_versions(tmp_path):
    async def running():
        server = ApiServer(tokens=TOKENS, data_dir=tmp_path, keep=True)
        await server.start()
        return server, client_of(server)

    server, client = await running()
    await client.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    made = await client.post(CONFIGS, config("a"))
    await client.session.close()
    await server.stop()
    server, client = await running()
    assert (await client.get(f"{CONFIGS}/a")).body == made.body
    assert int((await client.get(CONFIGS)).body["metadata"]["resourceVersion"]) >= int(
        made.body["metadata"]["resourceVersion"]
    )
    await client.session.close()
    await server.stop()


async def test_faults_can_be_put_before_requests(server, client):
    from e2e.sandbox.apiserver import ApiError

    async def fault(method: str, path: str) -> ApiError | None:
        await asyncio.sleep(0)
        return ApiError(503, "ServiceUnavailable", "not now") if method == "PUT" else None

    server.set_fault(fault)
    await client.post(CONFIGS, config("a"))
    assert (await client.put(f"{CONFIGS}/a", config("a"))).code == 503
    server.set_fault(None)
    assert (await client.put(f"{CONFIGS}/a", config("a"))).code == 200
