import asyncio
import copy
import re

import aiohttp
import pytest
from slipway.kube.kinds import MODEL_DEPLOYMENT
from slipway.web.answers import AT_ONCE, FRESH
from slipway.web.server import POLICY
from yarl import URL

from tests.web.scene import KEY, Scene

OBJECT = "/api/modeldeployments/n/m"


async def ask(scene: Scene, path: str, method: str = "GET", **headers: str) -> tuple[int, dict, str]:
    url = URL(scene.url + path, encoded=True)
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, headers=headers, allow_redirects=False) as response,
    ):
        return response.status, dict(response.headers), await response.text()


async def document(scene: Scene, path: str) -> dict:
    async with aiohttp.ClientSession() as session, session.get(scene.url + path) as response:
        assert (response.status, response.content_type) == (200, "application/json")
        found: dict = await response.json()
        return found


async def test_the_table_has_a_row_for_each_object():
    scene = Scene()
    scene.roll_out()
    scene.put(name="a", uid="a")
    async with scene.served():
        answer = await document(scene, "/api/modeldeployments")
    assert (answer["at"], answer["leading"]) == (scene.world.now, True)
    assert [item["name"] for item in answer["items"]] == ["a", "m"]
    row = answer["items"][1]
    assert (row["namespace"], row["phase"], row["stable"], row["candidate"], row["weight"], row["replicas"]) == (
        "n", "Progressing", "v1", "v2", 10, 3,
    )  # fmt: skip
    assert row["reason"] == "Holding"
    assert "the hold of step 1 ends in" in row["next"][0]


async def test_one_object_with_its_past():
    scene = Scene()
    scene.roll_out()
    async with scene.served():
        answer = await document(scene, OBJECT)
        newer = await document(scene, f"{OBJECT}?after={answer['recording']['samples'][-2]['at']}")
    samples = answer["recording"]["samples"]
    assert answer["recording"]["since"] == samples[0]["at"]
    assert newer["recording"]["samples"] == samples[-1:]
    v2 = scene.world.revision("v2")
    assert samples[-1]["versions"][v2]["intended"] == 10
    assert answer["bounds"] == {"harm": pytest.approx(1.301), "safe": pytest.approx(1.301)}
    assert answer["history"][0]["outcome"] == "Promoted"
    assert answer["rollout"]["to"] == "v2"
    assert {entry["name"] for entry in answer["versions"]} == {"v1", "v2"}


async def test_a_long_table_leaves_the_event_loop_its_turns_and_is_made_once_for_all_readers():
    scene = Scene()
    for number in range(100):
        scene.put(name=f"m{number}", uid=f"u{number}")
    turns = 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other_work())
    first, second = await asyncio.gather(*(scene.answers.overview(scene.world.now) for _ in range(2)))
    task.cancel()
    assert turns >= 100 // AT_ONCE
    assert first is second
    assert len(first) == 100
    scene.put(name="another", uid="another")
    assert len(await scene.answers.overview(scene.world.now + FRESH)) == 101


async def test_the_spec_is_not_told():
    scene = Scene()
    container = {"name": "server", "env": [{"name": "PASSWORD", "value": "hunter2"}]}
    scene.world.raw["spec"]["runtime"] = {"podTemplate": {"spec": {"containers": [container]}}}
    scene.put()
    async with scene.served():
        for path in (OBJECT, "/api/modeldeployments"):
            assert "hunter2" not in (await ask(scene, path))[2]


async def test_a_standby_says_so_and_serves_what_it_sees():
    scene = Scene(leading=False)
    scene.tick()
    async with scene.served():
        answer = await document(scene, OBJECT)
    assert answer["leading"] is False
    assert len(answer["recording"]["samples"]) == 1


async def test_an_object_that_cannot_be_read_is_told_and_hides_no_other():
    scene = Scene()
    broken = copy.deepcopy(scene.put(name="broken", uid="b"))
    broken["status"]["phase"] = ["no", "phase"]
    broken["metadata"]["resourceVersion"] = "9999"
    broken["spec"] = "no spec"
    scene.cache.put(MODEL_DEPLOYMENT, broken)
    scene.put()
    scene.records.measured()
    async with scene.served():
        answer = await document(scene, "/api/modeldeployments")
        detail = await document(scene, "/api/modeldeployments/n/broken")
    assert [item["reason"] for item in answer["items"]] == ["StatusUnreadable", "Ready"]
    assert (detail["bounds"], detail["recording"]["samples"]) == ({}, [])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/modeldeployments/n/other", 404),
        ("/api/modeldeployments/n", 404),
        (f"{OBJECT}?after=soon", 400),
        (f"{OBJECT}?after=nan", 400),
        ("/page/../server.py", 404),
        ("/page/%2e%2e/server.py", 404),
        ("/page/", 404),
        ("/metrics", 404),
    ],
)
async def test_what_is_not_there(path: str, status: int):
    scene = Scene()
    scene.put()
    async with scene.served():
        answered, headers, _ = await ask(scene, path)
    assert answered == status
    assert headers["Content-Security-Policy"] == POLICY


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/", OBJECT, "/api/modeldeployments"])
async def test_nothing_can_be_written(method: str, path: str):
    scene = Scene()
    before = scene.put()
    async with scene.served():
        status, headers, _ = await ask(scene, path, method)
    assert status == 405
    assert set(headers["Allow"].split(",")) == {"GET", "HEAD"}
    assert scene.cache.get(MODEL_DEPLOYMENT, KEY) == before


@pytest.mark.parametrize("path", ["/", "/page/main.js", "/page/style.css", OBJECT])
async def test_every_answer_says_what_a_browser_may_do_with_it(path: str):
    scene = Scene()
    scene.put()
    async with scene.served():
        status, headers, _ = await ask(scene, path)
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert "aiohttp" not in headers["Server"].lower()
    assert "Set-Cookie" not in headers
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8086", 200),
        ("127.0.0.1", 200),
        ("[::1]:8086", 200),
        ("evil.example", 421),
        ("evil.example:8086", 421),
        ("localhost.evil.example", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
async def test_a_page_for_this_host_is_opened_by_no_other_name(host: str, status: int):
    scene = Scene()
    scene.put()
    async with scene.served():
        assert (await ask(scene, OBJECT, Host=host))[0] == status


async def test_names_that_it_may_be_asked_for_by():
    scene = Scene()
    scene.put()
    async with scene.served(names=("slipway.example",)):
        assert (await ask(scene, OBJECT, Host="slipway.example:443"))[0] == 200
        assert (await ask(scene, OBJECT, Host="evil.example"))[0] == 421
    async with scene.served(host="0.0.0.0"):
        assert (await ask(scene, OBJECT, Host="any.example"))[0] == 200


async def test_the_page_names_no_address_but_its_own():
    scene = Scene()
    async with scene.served():
        start = (await ask(scene, "/"))[2]
        named = re.findall(r'(?:src|href)="([^"#]+)"', start)
        assert len(named) == 3
        texts = [start]
        for path in named:
            texts.append((await ask(scene, f"/{path}"))[2])
        modules = {name for text in texts for name in re.findall(r'from "\./([a-z]+\.js)"', text)}
        while modules:
            text = (await ask(scene, f"/page/{modules.pop()}"))[2]
            texts.append(text)
    addresses = {url for text in texts for url in re.findall(r"https?://[^\"'\s]+", text)}
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert all("innerHTML" not in text and "insertAdjacentHTML" not in text for text in texts)
