"""HTTP/1.1 as clients, proxies and attackers speak it. After each of these the server still answers."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from slipway_runtime.http.connection import Bounds
from slipway_runtime.settings import Limits
from slipway_runtime.tensors.datatypes import Datatype

from tests.runtime.harness import INFER, PATIENCE, ServerThread, await_condition, echo_model, fetch, json_request, talk

MAX_BODY = 100_000
BODY = json_request([[1.0, 2.0]])
HEAD = f"POST {INFER} HTTP/1.1\r\nHost: a\r\n".encode()


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    bounds = Bounds(max_body=MAX_BODY, max_chunks=20, head_time=1.0, body_stall=1.0, idle_time=60, linger=0.5)
    limits = Limits(max_request_bytes=MAX_BODY)
    with ServerThread(echo_model(Datatype.FP32, batched=True), limits, bounds) as started:
        yield started


@pytest.fixture(autouse=True)
def still_serving(server: ServerThread) -> Iterator[None]:
    yield
    assert server.infer([[1.0, 2.0]])[0] == 200
    await_condition(lambda: server.metrics()["slipway_requests_in_flight"] == 0)


def post(server: ServerThread, body: bytes, **headers: str) -> tuple[int, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    status, answer, _ = fetch(server.address, "POST", INFER, body, named)
    return status, answer


def with_length(body: bytes, extra: bytes = b"") -> bytes:
    return HEAD + extra + b"Content-Length: %d\r\n\r\n" % len(body) + body


def statuses(received: bytes) -> list[int]:
    return [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v2 HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        HEAD + b"Content-Length: abc\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"bad header\r\n\r\n",
    ],
)
def test_malformed_http_is_answered_400(server: ServerThread, data: bytes) -> None:
    received = talk(server.address, data)
    assert statuses(received) == [400]
    assert b"Connection: close" in received
    assert "error" in json.loads(received.rpartition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (HEAD + b"Content-Length: 2147483649\r\n\r\n", 413),
        (HEAD + b"Content-Length: %d\r\n\r\n" % (MAX_BODY + 1), 413),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 30 + b"0\r\n\r\n", 413),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % (MAX_BODY + 5) + b"x" * (MAX_BODY + 5), 413),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
        (HEAD + b"".join(b"x-%d: 1\r\n" % number for number in range(200)) + b"\r\n", 431),
        (HEAD + b"x: " + b"y" * 70_000 + b"\r\n\r\n", 431),
    ],
)
def test_bounds(server: ServerThread, data: bytes, status: int) -> None:
    assert statuses(talk(server.address, data)) == [status]


def test_a_body_over_the_limit_is_counted_once(server: ServerThread) -> None:
    series = 'slipway_requests_total{code="413",shadow="false"}'
    before = server.metrics().get(series, 0)
    assert post(server, b"x" * (MAX_BODY + 1))[0] == 413
    assert server.metrics()[series] == before + 1


def test_chunked_bodies(server: ServerThread) -> None:
    middle = len(BODY) // 2
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:middle], BODY[middle:]))
    received = talk(
        server.address, HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    )
    assert statuses(received) == [200]


def test_pipelined_requests_are_answered_in_order(server: ServerThread) -> None:
    requests = b""
    for number in range(100):
        body = json.dumps({**json.loads(json_request([[float(number)]])), "id": str(number)}).encode()
        requests += with_length(body) + b"GET /v2/health/live HTTP/1.1\r\n\r\n"
    requests += b"GET /v2 HTTP/1.1\r\nConnection: close\r\n\r\n"
    received = talk(server.address, requests)
    assert statuses(received) == [200] * 201
    ids = [int(part.partition(b'"')[0]) for part in received.split(b'"id":"')[1:]]
    assert ids == list(range(100))


def test_a_drain_answers_all_that_was_pipelined() -> None:
    with ServerThread(echo_model(Datatype.FP32, batched=True)) as draining:
        draining.on_loop(draining.listener.announce_close)
        received = talk(draining.address, with_length(BODY) * 5)
        assert statuses(received) == [200] * 5
        assert received.count(b"Connection: close") == 1


def test_byte_by_byte(server: ServerThread) -> None:
    host, _, port = server.address.partition(":")
    data = with_length(BODY, b"Connection: close\r\n")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(data)):
            connection.sendall(data[at : at + 1])
        assert statuses(connection.recv(65536)) == [200]


def test_expect_continue(server: ServerThread) -> None:
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY))
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(BODY)
        assert statuses(connection.recv(65536)) == [200]


def test_keep_alive_old_http_and_head(server: ServerThread) -> None:
    received = talk(server.address, b"GET /v2 HTTP/1.0\r\n\r\n")
    assert statuses(received) == [200] and b"Connection: close" in received
    received = talk(
        server.address,
        b"HEAD /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\nHEAD /metrics HTTP/1.1\r\nConnection: close\r\n\r\n",
    )
    assert statuses(received) == [200, 200]
    assert b"Connection: keep-alive" in received and received.endswith(b"\r\n\r\n")
    assert b"Content-Length: 0" not in received


def test_an_upgrade_is_not_taken(server: ServerThread) -> None:
    request = b"GET /v2 HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nPRI * HTTP/2.0\r\n\r\n"
    assert statuses(talk(server.address, request)) == [200]


@pytest.mark.parametrize("data", [b"POST /v2", HEAD, HEAD + b"Content-Length: 10\r\n\r\nabc"])
def test_slow_clients_are_parted_with(server: ServerThread, data: bytes) -> None:
    assert statuses(talk(server.address, data)) == [408]


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/", "GET", 404),
        ("/v2/nothing", "GET", 404),
        ("/v2/models/other", "GET", 404),
        ("/v2/models/my%20model/versions/9", "GET", 404),
        ("/v2/models/my%20model/nothing", "GET", 404),
        ("/v2/models/my%20model/versions/v1/config", "GET", 200),
        ("/v2/models/my%20model/config?verbose=1", "GET", 200),
        ("/v2/models/my%20model", "DELETE", 405),
        ("/metrics", "POST", 405),
        (INFER, "GET", 405),
        ("/v2/repository/index", "GET", 405),
        ("/v2/../../etc/passwd", "GET", 404),
        ("/v2/models/my%20model/ready", "HEAD", 200),
        ("/v2/models/stats", "GET", 200),
        ("/v2/trace/setting", "GET", 200),
        ("/v2/models/my%20model/trace/setting", "GET", 200),
        ("/v2/logging", "GET", 200),
        ("/v2/logging", "PUT", 405),
    ],
)
def test_paths(server: ServerThread, path: str, method: str, status: int) -> None:
    code, body, _ = fetch(server.address, method, path)
    assert code == status
    if status >= 400:
        assert set(json.loads(body)) == {"error"}


def test_content_type_does_not_matter(server: ServerThread) -> None:
    for kind in ("application/json", "application/octet-stream", "text/plain", ""):
        assert post(server, BODY, Content_Type=kind)[0] == 200


def test_compressed_bodies(server: ServerThread) -> None:
    packed = gzip.compress(BODY)
    assert post(server, packed, Content_Encoding="gzip")[0] == 200
    assert post(server, zlib.compress(BODY), Content_Encoding="deflate")[0] == 200
    for body, encoding, status in [
        (packed[:-9], "gzip", 400),
        (packed + b"x", "gzip", 400),
        (BODY, "gzip", 400),
        (packed, "br", 415),
        (gzip.compress(b"x" * (MAX_BODY + 1)), "gzip", 413),
    ]:
        assert post(server, body, Content_Encoding=encoding)[0] == status


def test_head_length_refers_to_the_inflated_body(server: ServerThread) -> None:
    values = np.zeros((1, 500), dtype=np.float32)
    head = json.dumps(
        {
            "parameters": {"note": "-" * 500},
            "inputs": [
                {"name": "x", "shape": [1, 500], "datatype": "FP32", "parameters": {"binary_data_size": values.nbytes}}
            ],
        }
    ).encode()
    packed = gzip.compress(head + values.tobytes())
    assert len(packed) < len(head)
    status, _ = post(server, packed, Content_Encoding="gzip", Inference_Header_Content_Length=str(len(head)))
    assert status == 200
    status, answer = post(server, head + values.tobytes())
    assert status == 400 and b"JSON" in answer


def test_library_default_accept_encoding_gets_plain_tensors(server: ServerThread) -> None:
    _, _, headers = fetch(server.address, "POST", INFER, BODY, {"Accept-Encoding": "gzip, deflate, br"})
    assert "content-encoding" not in headers
    _, body, headers = fetch(server.address, "POST", INFER, BODY, {"Accept-Encoding": "gzip"})
    assert headers["content-encoding"] == "gzip" and json.loads(gzip.decompress(body))


def test_large_json_goes_through_the_codec_thread() -> None:
    values = np.arange(100_000, dtype=np.float32).reshape(1, -1)
    with ServerThread(echo_model(Datatype.FP32, batched=True)) as server:
        status, answer = server.infer(values)
        assert status == 200
        assert answer["outputs"][0]["data"] == values.reshape(-1).tolist()
        status, answer = server.infer(values, timeout="never")
        assert status == 400


def test_error_texts_repeat_nothing_of_the_data(server: ServerThread) -> None:
    secret = "s3cr3t-value"
    body = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [secret]}]}
    status, answer = post(server, json.dumps(body).encode())
    assert status == 400 and secret.encode() not in answer
