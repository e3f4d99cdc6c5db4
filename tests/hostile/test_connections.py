"""Connections made to hurt: other protocols, floods, bombs, clients that do not read; of HTTP and of gRPC."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from slipway_runtime.http.connection import Bounds
from slipway_runtime.settings import Limits
from slipway_runtime.tensors.datatypes import Datatype

from tests.runtime.harness import (
    PATIENCE,
    ServerProcess,
    ServerThread,
    answer_to_flood,
    await_condition,
    echo_model,
    fetch,
    json_request,
    serving,
    talk,
)
from tests.runtime.programs import Doubler, script
from tests.runtime.test_http_robustness import CHUNKED, HEAD, SMUGGLED
from tests.runtime.test_runtime_http import statuses

MAX_BODY = 1_000_000
MOST_GROWTH = 120 * 1024
"""KiB by which a server's process may grow over all attacks of a test."""
CROWD = 300
"""Connections at a time; fewer than any system lets a process have."""
GOOD = json_request([[1.0, 2.0]])
MODEL_INFER = "/inference.GRPCInferenceService/ModelInfer"
GET = b"GET /v2 HTTP/1.1\r\nHost: a\r\n"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    script(Doubler().eval(), folder / "model.pt")
    with serving(folder, str(folder / "model.pt"), "--max-request-bytes", str(MAX_BODY)) as started:
        started.await_ready()
        yield started


def peak(process: ServerProcess) -> int:
    """The most memory that the process has had, in KiB."""
    lines = Path(f"/proc/{process.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


@pytest.fixture
def unharmed(process: ServerProcess) -> Iterator[ServerProcess]:
    """The process, which is to be alive, serving and hardly larger afterwards."""
    before = peak(process)
    yield process
    assert process.process.poll() is None
    assert fetch(process.address, "GET", "/v2/health/ready")[0] == 200
    assert fetch(process.address, "POST", "/v2/models/m/infer", GOOD)[0] == 200
    with grpc.insecure_channel(f"127.0.0.1:{process.grpc_port}") as channel:
        assert channel.unary_unary("/inference.GRPCInferenceService/ServerReady")(b"", timeout=PATIENCE) == b"\x08\x01"
    assert peak(process) - before < MOST_GROWTH


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread(echo_model(Datatype.FP32), bounds=Bounds(max_body=MAX_BODY, linger=0.2)) as started:
        yield started


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", 400),
        (GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", 200),
        (GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 200),
        (b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        (b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: a\r\n\r\n" + b"X", 404),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), 400),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET /v2 HTTP/1.1\r\n\r\n", 400),
        (b"GET /v2 HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"\x00" * 1000, 400),
    ],
    ids=["HTTP/2", "h2c", "websocket", "CONNECT", "a proxy's request", "TLS", "PROXY", "version", "zeros"],
)  # fmt: skip
def test_other_protocols_are_not_spoken(server: ServerThread, data: bytes, status: int) -> None:
    received = talk(server.address, data + SMUGGLED)
    assert statuses(received)[0] == status
    # Of what follows nothing is answered, except where it is a request of its own after a complete one.
    assert statuses(received)[1:] in ([], [400])


def test_extensions_of_chunks_mean_nothing_and_have_an_end(server: ServerThread) -> None:
    chunk = b'%x;name="value";other\r\n%s\r\n0;last\r\n\r\n' % (len(GOOD), GOOD)
    assert statuses(talk(server.address, HEAD + CHUNKED + b"Connection: close\r\n\r\n" + chunk)) == [200]
    with contextlib.closing(connected(server.port)) as connection:
        connection.sendall(HEAD + CHUNKED + b"\r\n1;")
        assert statuses(answer_to_flood(connection, b"x" * 65536, most=64_000_000)) == [431]


def test_a_flood_that_nobody_reads_the_answers_to_is_not_read_on(server: ServerThread) -> None:
    with contextlib.closing(connected(server.port)) as connection:
        connection.setblocking(False)
        sent = 0
        flood = b"GET /v2/models/my%20model/config HTTP/1.1\r\nHost: a\r\n\r\n" * 1000

        def accepted() -> int:
            try:
                return connection.send(flood)
            except BlockingIOError:
                return 0

        def stopped() -> bool:
            nonlocal sent
            sent += accepted()
            busy = server.on_loop(lambda: [one for one in server.listener._connections if one._paused])
            return bool(busy)

        await_condition(stopped)
        assert sent < 64_000_000
        assert fetch(server.address, "GET", "/v2")[0] == 200
    await_condition(lambda: server.on_loop(lambda: not server.listener.busy))


def test_a_client_that_does_not_read_a_large_answer_loses_it() -> None:
    """Sixteen megabytes are not kept for ever until somebody reads them."""
    tensor = {"name": "x", "shape": [1, 4_000_000], "datatype": "FP32", "parameters": {"binary_data_size": 16_000_000}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    sizes = b"Content-Length: %d\r\nInference-Header-Content-Length: %d\r\n\r\n"
    request = HEAD + sizes % (len(head) + 16_000_000, len(head)) + head + bytes(16_000_000)
    bounds = Bounds(max_body=20_000_000, write_stall=0.3, body_stall=60.0, head_time=0.5)
    with ServerThread(echo_model(Datatype.FP32), Limits(max_request_bytes=20_000_000), bounds) as server:
        with contextlib.closing(connected(server.port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            connection.sendall(request)
            await_condition(lambda: server.metrics()['slipway_requests_total{code="200",shadow="false"}'] == 1)
            # One that reads a little is not saved by that; on a slow machine it may be too late already.
            with contextlib.suppress(ConnectionError):
                connection.recv(100)
            await_condition(
                lambda: server.on_loop(lambda: not server.listener.busy and not server.listener._connections)
            )
        assert fetch(server.address, "GET", "/v2")[0] == 200


def test_bombs_in_bodies_are_not_inflated(unharmed: ServerProcess) -> None:
    packed = gzip.compress(bytes(400_000_000))
    nested = gzip.compress(packed)
    assert len(packed) < MAX_BODY

    def ask(body: bytes, encoding: str) -> int:
        return fetch(unharmed.address, "POST", "/v2/models/m/infer", body, {"Content-Encoding": encoding})[0]

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(lambda _: ask(packed, "gzip"), range(40))) == {413}
    assert ask(nested, "gzip") == 400
    assert ask(nested, "gzip, gzip") == 415
    # Many empty members: nothing comes out, however long it is read.
    assert ask(gzip.compress(b"") * 40_000, "gzip") == 400


def test_bombs_in_messages_are_not_inflated(unharmed: ServerProcess) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{unharmed.grpc_port}") as channel:
        call = channel.unary_unary(MODEL_INFER)
        for size in (MAX_BODY + 1, 200_000_000):
            with pytest.raises(grpc.RpcError) as caught:
                call(bytes(size), timeout=PATIENCE, compression=grpc.Compression.Gzip)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_crowd_that_says_nothing_is_in_nobodys_way(unharmed: ServerProcess) -> None:
    with contextlib.ExitStack() as crowd:
        for port in (unharmed.port, unharmed.grpc_port):
            for _ in range(CROWD):
                crowd.enter_context(contextlib.closing(connected(port)))
        assert fetch(unharmed.address, "POST", "/v2/models/m/infer", GOOD)[0] == 200
        with grpc.insecure_channel(f"127.0.0.1:{unharmed.grpc_port}") as channel:
            ready = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")
            assert ready(b"", timeout=PATIENCE) == b"\x08\x01"


@pytest.mark.parametrize(
    "data",
    [
        b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00" + bytes(500),
        bytes(100_000),
        PREFACE + b"\xff" * 10_000,
        PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(1000),
        PREFACE + b"\x00\x00\x04\x04\x00\x00\x00\x00\x00\xff\xff\xff\xff",
        PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\x00\x05\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff\xff",
    ],
    ids=["HTTP/1", "TLS", "zeros", "no frames", "a huge frame", "settings", "headers"],
)
def test_garbage_on_the_port_of_grpc_ends_its_own_connection(unharmed: ServerProcess, data: bytes) -> None:
    with contextlib.closing(connected(unharmed.grpc_port)) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(data)
        while connection.recv(65536):
            pass


@pytest.mark.parametrize(
    "metadata",
    [
        (("x-big", "y" * 100_000),),
        tuple((f"x-{number}", "y") for number in range(3000)),
        (("x-bin", b"\xff" * 50_000),),
    ],
    ids=["long", "many", "binary"],
)
def test_metadata_at_their_worst_are_refused(
    unharmed: ServerProcess, metadata: tuple[tuple[str, str | bytes], ...]
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{unharmed.grpc_port}") as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(MODEL_INFER)(b"", timeout=PATIENCE, metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
