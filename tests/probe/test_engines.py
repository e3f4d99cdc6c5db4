"""Which server of which engine is asked what, and where."""

import json
from typing import Any

import pytest
from aiohttp import web
from slipway.api.observed import PodView
from slipway.api.revisions import Revision, revision_from_definition, revision_of, with_template
from slipway.engine.prober import Prober
from slipway.resources.engines import http_port

DIGEST = f"sha256:{'a' * 64}"
POD = PodView(name="p-1", created_at=1.0, ready=True, ip="127.0.0.1", fetched_digest=DIGEST)


def revision(engine: str, **runtime: Any) -> Revision:
    spec = {"versions": [{"name": "v1", "uri": "hf://o/llama"}], "runtime": {"engine": engine, **runtime}}
    return revision_of("chat", spec, "v1")


@pytest.mark.parametrize(
    ("status", "text", "passed", "words"),
    [
        (200, json.dumps({"data": [{"id": "chat"}, {"id": "lora"}]}), True, ""),
        (200, json.dumps({"data": [{"id": "meta/llama"}]}), False, "the server has the models meta/llama, not chat"),
        (200, "<html>", False, "cannot be read"),
        (200, json.dumps({"models": []}), False, "cannot be read"),
        (503, "", None, "503"),
        (404, "", False, "404"),
    ],
)
async def test_a_server_of_openais_protocol_has_to_know_the_model(
    status: int, text: str, passed: bool | None, words: str
) -> None:
    async def models(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text, content_type="application/json")

    app = web.Application()
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        port = runner.addresses[0][1]
        view = await Prober(port=port, request_timeout=60).probe(revision("vllm"), [POD], None, "chat")
    finally:
        await runner.cleanup()
    assert view.passed is passed
    assert not passed or view.loaded_digest == DIGEST
    assert words in view.message


def test_each_engine_is_asked_at_its_port() -> None:
    ports = {engine: http_port(revision(engine)) for engine in ("slipway", "triton", "vllm", "custom")}
    assert ports == {"slipway": 8080, "triton": 8000, "vllm": 8000, "custom": 8080}


def test_a_port_of_the_users_counts_and_so_do_the_pods_as_they_were_made() -> None:
    server = {"name": "server", "ports": [{"name": "http", "containerPort": 5000}]}
    custom = revision("custom", podTemplate={"spec": {"containers": [server]}})
    assert http_port(custom) == 5000
    made = {"spec": {"containers": [{"name": "server", "ports": [{"name": "http", "containerPort": 6000}]}]}}
    assert http_port(revision_from_definition("chat", with_template(custom.data, made))) == 6000
