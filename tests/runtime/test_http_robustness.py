"""What attackers do to HTTP/1.1: smuggling, floods, dawdling. Raw sockets; times are the server's own, made short."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from slipway_runtime.http.connection import Bounds

from tests.runtime.harness import (
    INFER,
    PATIENCE,
    FunctionModel,
    ServerThread,
    answer_to_flood,
    await_condition,
    echo,
    fetch,
    json_request,
    row_signature,
    talk,
)
from tests.runtime.test_runtime_http import statuses

BODY = json_request([[1.0, 2.0]])
HEAD = f"POST {INFER} HTTP/1.1\r\nHost: a\r\n".encode()
# What would be answered 200 if the request before it were read as it should not be.
SMUGGLED = b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def model() -> FunctionModel:
    return FunctionModel(row_signature(), echo)


def start(**bounds: float) -> ServerThread:
    return ServerThread(model(), bounds=Bounds(max_body=100_000, linger=0.2, **bounds))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with start() as started:
        yield started


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (HEAD + b"Content-Length: 4\r\n" + CHUNKED + b"\r\n0\r\n\r\n", 400),
        (HEAD + CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd", 400),
        (HEAD + b"Content-Length: 4\r\nContent-Length: 40\r\n\r\nabcd", 400),
        (HEAD + b"Content-Length: 4, 4\r\n\r\nabcd", 400),
        (HEAD + b"Content-Length: +4\r\n\r\nabcd", 400),
        (HEAD + b"Content-Length: 0x4\r\n\r\nabcd", 400),
        (HEAD + b"Content-Length:\r\n\r\n", 400),
        (HEAD + b"Content-Length : 4\r\n\r\nabcd", 400),
        (HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
        (HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
        (HEAD + CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (HEAD.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n0\r\n\r\n", 400),
        (HEAD + b"X: 1\r\n 2\r\n\r\n", 400),
        (HEAD + b"X: 1\r\n\t2\r\n\r\n", 400),
        (HEAD.replace(b"\r\n", b"\n") + b"\n", 400),
        (HEAD + b"X: 1\nContent-Length: 4\r\n\r\nabcd", 400),
        (HEAD + b"X: 1\rContent-Length: 4\r\n\r\nabcd", 400),
        (HEAD + b"\n", 400),
        (HEAD + b"X: a\x00b\r\n\r\n", 400),
        (HEAD + b"Host: b\r\n\r\n", 400),
        (HEAD + CHUNKED + b"\r\n1\na\r\n0\r\n\r\n", 400),
        (HEAD + CHUNKED + b"\r\n1\r\na\n0\r\n\r\n", 400),
        (HEAD + CHUNKED + b"\r\n-1\r\na\r\n0\r\n\r\n", 400),
        (HEAD + CHUNKED + b"\r\n0x1\r\na\r\n0\r\n\r\n", 400),
        (HEAD + CHUNKED + b"\r\nffffffffffffffffff\r\na\r\n0\r\n\r\n", 400),
        (HEAD + CHUNKED + b"\r\n1\r\na\r\n0\r\nContent-Length: 5\r\n\r\n", 400),
        (b"GET /v2\r\n\r\n", 505),
    ],
)
def test_what_two_parsers_may_read_differently_is_refused(server: ServerThread, data: bytes, status: int) -> None:
    received = talk(server.address, data + SMUGGLED)
    assert statuses(received) == [status]
    assert b"Connection: close" in received


def test_trailers_change_nothing(server: ServerThread) -> None:
    before = server.metrics()
    chunks = b"%x\r\n%s\r\n0\r\nx-slipway-shadow: true\r\n\r\n" % (len(BODY), BODY)
    assert statuses(talk(server.address, HEAD + CHUNKED + b"Connection: close\r\n\r\n" + chunks)) == [200]
    after = server.metrics()
    for shadow, count in (("false", 1), ("true", 0)):
        name = f'slipway_requests_total{{code="200",shadow="{shadow}"}}'
        assert after[name] == before[name] + count


def test_nothing_is_read_after_connection_close(server: ServerThread) -> None:
    received = talk(server.address, b"GET /v2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + SMUGGLED)
    assert statuses(received) == [200]


@pytest.mark.parametrize("start_of", [HEAD + b"X: ", HEAD, HEAD + CHUNKED + b"\r\n1\r\na\r\n0\r\nX: "])
def test_headers_without_end_are_not_kept(server: ServerThread, start_of: bytes) -> None:
    host, _, port = server.address.partition(":")
    part = (b"z" if start_of.endswith(b": ") else b"y") * 65536
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(start_of)
        assert statuses(answer_to_flood(connection, part, most=64_000_000)) == [431]


def test_slow_heads_and_bodies_are_told_and_parted_with() -> None:
    with start(head_time=0.2, body_time=0.4, body_stall=0.3) as server:
        for data in (b"POST /v2", HEAD, HEAD + b"X: 1\r\n"):
            assert statuses(talk(server.address, data)) == [408]
        assert statuses(talk(server.address, HEAD + b"Content-Length: 10\r\n\r\nabc")) == [408]
        # One that drips is not saved by dripping.
        host, _, port = server.address.partition(":")
        with socket.create_connection((host, int(port)), timeout=0.05) as connection:
            connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
            received = b""
            for _ in range(1000):
                try:
                    connection.sendall(b"x")
                    received = connection.recv(65536)
                except TimeoutError:
                    continue
                break
        assert statuses(received) == [408]
        assert server.metrics()['slipway_requests_total{code="408",shadow="false"}'] == 4


def test_an_idle_connection_ends_quietly() -> None:
    with start(idle_time=0.1, head_time=0.2) as server:
        assert talk(server.address, b"") == b""
        assert statuses(talk(server.address, b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n")) == [200]


def test_a_connection_serves_so_many_requests() -> None:
    with start(max_requests=3) as server:
        received = talk(server.address, b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n" * 5)
        assert statuses(received) == [200] * 3
        assert received.count(b"Connection: close") == 1


def test_idle_connections_make_room_and_busy_ones_do_not() -> None:
    with start(max_connections=2) as server:
        host, _, port = server.address.partition(":")
        address = (host, int(port))
        with socket.create_connection(address, timeout=PATIENCE) as idle, socket.create_connection(address) as busy:
            busy.sendall(HEAD)
            await_condition(
                lambda: server.on_loop(lambda: [one.idle for one in server.listener._connections].count(False))
            )
            # The idle one, which has nothing to say, is ended for one that has.
            assert fetch(server.address, "GET", "/v2")[0] == 200
            assert idle.recv(1) == b""
            with socket.create_connection(address, timeout=PATIENCE) as second:
                second.sendall(HEAD)
                await_condition(
                    lambda: server.on_loop(lambda: [one.idle for one in server.listener._connections]) == [False, False]
                )
                status, body, headers = fetch(server.address, "GET", "/v2")
                assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
                assert b"too many connections" in body
            busy.sendall(b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
            assert statuses(busy.recv(65536)) == [200]
