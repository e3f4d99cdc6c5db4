import asyncio
import gzip
import json
from typing import Any

import pytest
from slipway.api.observed import PodView
from slipway.api.revisions import Revision, revision_of
from slipway.engine.probe_client import MAX_JSON_BYTES
from slipway.engine.prober import Prober

from .servers import HonestServer, raw_server

POD = PodView(name="p-1", created_at=1.0, ready=True, ip="127.0.0.1")
INPUT = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}


def revision(**version: Any) -> Revision:
    entry = {"name": "v1", "uri": "file:///m.pt", **version}
    return revision_of("m", {"versions": [entry]}, "v1")


def goldens(data: list[float] | list[int], *, datatype: str = "FP32") -> dict[str, str]:
    response = {"outputs": [{"name": "y", "datatype": datatype, "shape": [1], "data": data}]}
    return {"smoke.json": json.dumps([{"request": {"inputs": [INPUT]}, "response": response}])}


WITH_GOLDENS = {"goldens": {"configMap": "g"}}
DECLARED = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
}


async def probe(server: HonestServer, wanted: Revision, texts: dict[str, str] | None = None) -> Any:
    async with server.running():
        return await Prober(port=server.port, request_timeout=60).probe(wanted, [POD], texts, "m")


async def test_a_good_server_passes_and_tells_its_digest() -> None:
    server = HonestServer()
    view = await probe(server, revision(sha256="a" * 64, **DECLARED, **WITH_GOLDENS), goldens([3.0005]))
    assert view.passed is True
    assert view.loaded_digest == "sha256:" + "a" * 64
    assert server.shadow_marks == {"true"}


async def test_a_pod_is_asked_at_its_own_address_by_the_name_that_a_proxy_knows() -> None:
    server, texts = HonestServer(), goldens([3.0])
    wanted = revision(**DECLARED, **WITH_GOLDENS)
    async with server.running():
        prober = Prober(port=server.port, host="m-pods.ns.svc.cluster.local", request_timeout=60)
        assert (await prober.probe(wanted, [POD], texts, "m")).passed is True
        assert server.hosts == {f"m-pods.ns.svc.cluster.local:{server.port}"}
        server.hosts.clear()
        assert (await Prober(port=server.port, request_timeout=60).probe(wanted, [POD], texts, "m")).passed is True
        assert server.hosts == {f"127.0.0.1:{server.port}"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inputs": [{"name": "z", "datatype": "FP32", "shape": [-1, 2]}]}, "input z is declared"),
        ({"inputs": [{"name": "x", "datatype": "INT64", "shape": [-1, 2]}]}, "declared as INT64"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]}, "shape [-1, 3]"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2]}]}, "shape [2]"),
        ({"outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}]}, "output y"),
    ],
)
async def test_a_declaration_that_the_model_does_not_keep_fails(change: dict[str, Any], words: str) -> None:
    view = await probe(HonestServer(), revision(**(DECLARED | change)))
    assert (view.passed, view.reason) == (False, "SignatureMismatch")
    assert words in view.message
    assert "p-1" in view.message


async def test_an_input_that_is_not_declared_fails_and_an_output_does_not() -> None:
    server = HonestServer()
    server.metadata["outputs"].append({"name": "debug", "datatype": "FP32", "shape": [-1]})
    assert (await probe(server, revision(**DECLARED))).passed is True
    server.metadata["inputs"].append({"name": "mask", "datatype": "FP32", "shape": [-1]})
    assert "mask" in (await probe(server, revision(**DECLARED))).message


async def test_another_digest_than_the_declared_one_fails() -> None:
    view = await probe(HonestServer(), revision(sha256="b" * 64))
    assert (view.passed, view.reason) == (False, "DigestMismatch")


@pytest.mark.parametrize("texts", [goldens([4.0]), goldens([3]), goldens([3.02])])
async def test_wrong_answers_fail(texts: dict[str, str]) -> None:
    server = HonestServer()
    if "[3]" in texts["smoke.json"]:
        server.outputs = [{"name": "y", "datatype": "FP32", "shape": [1], "data": [float("nan")]}]
    view = await probe(server, revision(**WITH_GOLDENS), texts)
    assert (view.passed, view.reason) == (False, "GoldensFailed")
    assert "smoke.json[0]" in view.message


async def test_other_datatypes_are_compared_exactly() -> None:
    server = HonestServer(outputs=[{"name": "y", "datatype": "BYTES", "shape": [1], "data": ["cat"]}])
    texts = {"a": json.dumps([{"request": {"inputs": [INPUT]}, "response": {"outputs": server.outputs}}])}
    assert (await probe(server, revision(**WITH_GOLDENS), texts)).passed is True
    server.outputs = [{"name": "y", "datatype": "BYTES", "shape": [1], "data": ["dog"]}]
    assert (await probe(server, revision(**WITH_GOLDENS), texts)).reason == "GoldensFailed"
    server.outputs = [{"name": "y", "datatype": "INT64", "shape": [1], "data": [1]}]
    assert "datatype INT64" in (await probe(server, revision(**WITH_GOLDENS), texts)).message


@pytest.mark.parametrize(
    "text",
    ["{", "{}", "[1]", '[{"request": {}}]', '[{"request": {"inputs": []}, "response": {"outputs": []}}]',
     '[{"request": {"inputs": [{"name": "x", "datatype": "FP32", "shape": [7], "data": [1]}]}, '
     '"response": {"outputs": [{"name": "y", "data": [1]}]}}]', "[]", "[" * 100000],
)  # fmt: skip
async def test_goldens_that_are_none_are_the_users_mistake(text: str) -> None:
    view = await probe(HonestServer(), revision(**WITH_GOLDENS), {"smoke.json": text})
    assert (view.passed, view.reason) == (False, "GoldensInvalid")


async def test_goldens_that_are_missing_are_waited_for() -> None:
    view = await probe(HonestServer(), revision(**WITH_GOLDENS), None)
    assert (view.passed, view.reason) == (None, "GoldensMissing")


@pytest.mark.parametrize(("status", "passed"), [(429, None), (503, None), (500, False), (400, False)])
async def test_a_busy_server_is_asked_again_and_a_broken_one_is_not(status: int, passed: bool | None) -> None:
    view = await probe(HonestServer(infer_status=status), revision(**WITH_GOLDENS), goldens([3.0]))
    assert view.passed is passed


async def test_a_server_that_is_not_ready_is_pending() -> None:
    assert (await probe(HonestServer(ready=False), revision())).passed is None


async def test_a_pod_is_asked_once_per_start_and_goldens() -> None:
    server = HonestServer()
    wanted = revision(**WITH_GOLDENS)
    async with server.running():
        prober = Prober(port=server.port)
        assert prober.cached(wanted, [POD], goldens([3.0])) is None
        for _ in range(3):
            assert (await prober.probe(wanted, [POD], goldens([3.0]), "m")).passed is True
        assert server.infers == 1
        assert prober.cached(wanted, [POD], goldens([3.0])) is not None
        restarted = PodView(name="p-1", created_at=1.0, ready=True, ip="127.0.0.1", restarts=1)
        assert prober.cached(wanted, [restarted], goldens([3.0])) is None
        assert (await prober.probe(wanted, [restarted], goldens([3.0]), "m")).passed is True
        assert (await prober.probe(wanted, [restarted], goldens([9.0]), "m")).passed is False
        assert server.infers == 3


async def test_nobody_ready_means_nothing_is_known() -> None:
    for pod in (PodView(name="p", created_at=1.0), PodView(name="p", created_at=1.0, ready=True, terminating=True)):
        assert (await Prober().probe(revision(), [pod], None, "m")).passed is None


def _answer(body: bytes, *, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


async def _hostile(metadata: bytes) -> Any:
    """A server that is ready and then sends these bytes as its metadata."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        writer.write(_answer(b"") if b"/ready" in request else metadata)
        await writer.drain()

    async with raw_server(talk) as port:
        prober = Prober(port=port, request_timeout=60, timeout=120)
        return await prober.probe(revision(**DECLARED), [POD], None, "m")


@pytest.mark.parametrize(
    "metadata",
    [
        _answer(b"\x00\xff garbage"),
        _answer(b"[]"),
        _answer(b"null"),
        _answer(b'{"inputs": 7}'),
        _answer(b'{"inputs": [{"name": 3}]}'),
        _answer(b'{"inputs": [{"name": "x", "datatype": [], "shape": {}}]}'),
        _answer(b'{"parameters": [1]}'),
        _answer(b"[" * 1_000_000),
        _answer(b"nonsense", status="418 Teapot"),
        _answer(b"", status="302 Found", headers="Location: http://127.0.0.1:1/v2\r\n"),
        _answer(gzip.compress(b"{}"), headers="Content-Encoding: gzip\r\n"),
        f"HTTP/1.1 200 OK\r\nContent-Length: {10**12}\r\n\r\n".encode() + b" " * (MAX_JSON_BYTES + 100_000),
    ],
    ids=range(12),
)
async def test_a_hostile_answer_fails_the_probe_and_nothing_else(metadata: bytes) -> None:
    view = await _hostile(metadata)
    assert view.passed is False
    assert view.reason in {"ProbeFailed", "SignatureMismatch"}
    assert len(view.message) <= 1000


@pytest.mark.parametrize("metadata", [b"", b"\x16\x03\x01 no http at all\r\n\r\n", _answer(b"{}")[:-1]])
async def test_a_broken_connection_is_pending(metadata: bytes) -> None:
    assert (await _hostile(metadata)).passed is None


async def test_a_server_that_never_answers_is_pending_in_bounded_time() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(talk) as port:
        view = await Prober(port=port, request_timeout=0.1, timeout=0.3).probe(revision(), [POD], None, "m")
    assert view.passed is None
    assert "no answer in time" in view.message


async def test_a_pod_that_nobody_can_reach_is_pending() -> None:
    async with raw_server(lambda reader, writer: asyncio.sleep(0)) as port:
        pass
    view = await Prober(port=port, request_timeout=60).probe(revision(), [POD], None, "m")
    assert view.passed is None
