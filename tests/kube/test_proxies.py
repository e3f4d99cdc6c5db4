"""What the environment has to do with calls to the API server: a proxy that it names, and nothing else."""

from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.configuration import Configuration
from slipway.kube.transport import ApiTransport, Call


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def _server(seen: list[tuple[str, str]]) -> TestServer:
    async def answer(request: web.Request) -> web.Response:
        seen.append((str(request.url), request.headers.get("Authorization", "")))
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    return server


async def _get(host: str) -> int:
    configuration = Configuration(host=host, api_key={"BearerToken": "t"}, api_key_prefix={"BearerToken": "Bearer"})
    transport = ApiTransport(configuration)
    try:
        return (await transport.send(Call("GET", "/version"))).status
    finally:
        await transport.close()


async def test_a_netrc_file_is_neither_read_nor_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    seen: list[tuple[str, str]] = []
    server = await _server(seen)
    try:
        assert await _get(f"http://127.0.0.1:{server.port}") == 200
    finally:
        await server.close()
    assert [authorization for _, authorization in seen] == ["Bearer t"]


@pytest.mark.parametrize("through", [True, False])
async def test_a_proxy_of_the_environment_is_used_where_it_applies(
    through: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []
    proxy, server = await _server(seen), await _server([])
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("no_proxy", "elsewhere.example.com" if through else "127.0.0.1")
    host = "http://api.example.com" if through else f"http://127.0.0.1:{server.port}"
    try:
        assert await _get(host) == 200
    finally:
        await proxy.close()
        await server.close()
    assert [url for url, _ in seen] == (["http://api.example.com/version"] if through else [])
