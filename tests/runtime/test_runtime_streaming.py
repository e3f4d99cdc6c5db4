"""Answers in parts over HTTP: server-sent events, and clients that leave or dawdle."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import tritonclient.grpc as triton
from slipway_runtime.serving.streaming import BUFFER
from slipway_runtime.settings import Limits
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, Tensor, TensorSpec
from tritonclient.utils import InferenceServerException

from tests.runtime.counting import (
    FAILING,
    GENERATE,
    MODEL,
    SHORT_OF_MEMORY,
    STREAM,
    CountingModel,
    body,
    codes,
    events,
    parked,
    sent,
)
from tests.runtime.harness import PATIENCE, FunctionModel, ServerThread, await_condition, echo, fetch


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread(CountingModel()) as started:
        yield started


def test_parts_come_as_events(server: ServerThread) -> None:
    status, data, headers = fetch(server.address, "POST", STREAM, body(40, id="a7"))
    assert status == 200
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["transfer-encoding"] == "chunked" and headers["x-model-version"] == "v1"
    want = [{"model_name": MODEL, "model_version": "v1", "id": "a7", "y": number} for number in range(40)]
    assert events(data) == want
    assert fetch(server.address, "POST", "/v2/models/my%20model/versions/v1/generate_stream", body(0))[:2] == (200, b"")


def test_a_connection_serves_on_after_a_stream(server: ServerThread) -> None:
    connection = http.client.HTTPConnection(server.address, timeout=PATIENCE)
    for count in (3, 0, 5):
        connection.request("POST", STREAM, body(count))
        assert len(events(connection.getresponse().read())) == count
    connection.close()


def test_pipelined_streams_are_answered_in_turn(server: ServerThread) -> None:
    request = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n%s"
    data = request % (STREAM.encode(), 9, b"", b'{"x": 30}') + request % (
        STREAM.encode(), 8, b"Connection: close\r\n", b'{"x": 2}',
    )  # fmt: skip
    received = raw(server, data)
    first, second = received.split(b"HTTP/1.1 200 OK")[1:]
    assert first.count(b"data: ") == 30 and second.count(b"data: ") == 2
    assert b"Connection: close" in second


def raw(server: ServerThread, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(data)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received


def test_an_old_client_gets_its_stream_until_the_connection_ends(server: ServerThread) -> None:
    received = raw(server, b"POST %s HTTP/1.0\r\nContent-Length: 8\r\n\r\n" % STREAM.encode() + b'{"x": 3}')
    head, _, rest = received.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head and b"Connection: close" in head
    assert [one["y"] for one in events(rest)] == [0, 1, 2]


def test_generate_takes_answers_of_one_part(server: ServerThread) -> None:
    status, data, headers = fetch(server.address, "POST", GENERATE, body(1, parameters={"priority": 1}))
    assert (status, json.loads(data)["y"], headers["content-type"]) == (200, 0, "application/json")
    for count in (0, 2, 300):
        status, data, _ = fetch(server.address, "POST", GENERATE, body(count))
        assert status == 400 and "generate_stream" in json.loads(data)["error"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "JSON"), (b"[]", "object"), (b"{}", "no inputs"), (b'{"x": "a"}', "'x'"), (b'{"x": [[1], []]}', "'x'"),
        (b'{"x": 1, "id": 3}', "id"), (b'{"x": 1, "parameters": 3}', "parameters"),
        (b'{"x": 1, "timeout": "a"}', "timeout"),
        (b'{"x": ' + b"[" * 40 + b"]" * 40 + b"}", "nested"), (b'{"x": {}}', "'x'"), (b'{"x": [[1, 2]]}', "shape"),
    ],
)  # fmt: skip
def test_bad_bodies_are_400(server: ServerThread, data: bytes, words: str) -> None:
    for path in (GENERATE, STREAM):
        status, answer, _ = fetch(server.address, "POST", path, data)
        assert status == 400 and words in json.loads(answer)["error"]


def test_other_ways_to_ask_say_what_to_use(server: ServerThread) -> None:
    assert fetch(server.address, "GET", STREAM)[0] == 405
    assert fetch(server.address, "POST", "/v2/models/none/generate_stream", body(1))[0] == 404
    request = {"inputs": [{"name": "x", "datatype": "INT32", "shape": [1], "data": [1]}]}
    status, data, _ = fetch(server.address, "POST", "/v2/models/my%20model/infer", json.dumps(request).encode())
    assert status == 501 and "generate_stream" in json.loads(data)["error"]
    with triton.InferenceServerClient(server.grpc_address) as client:
        with pytest.raises(InferenceServerException) as caught:
            client.infer(MODEL, [sent(1)])
        assert caught.value.status() == "StatusCode.UNIMPLEMENTED"


def test_the_configuration_says_decoupled(server: ServerThread) -> None:
    config = json.loads(fetch(server.address, "GET", "/v2/models/my%20model/config")[1])
    assert config["model_transaction_policy"] == {"decoupled": True} and config["max_batch_size"] == 0
    with triton.InferenceServerClient(server.grpc_address) as client:
        assert client.get_model_config(MODEL).config.model_transaction_policy.decoupled


def test_what_fails_in_the_middle_is_the_last_event() -> None:
    with ServerThread(CountingModel()) as server:
        status, data, _ = fetch(server.address, "POST", STREAM, body(FAILING))
        first, last = events(data)
        assert status == 200 and first["y"] == 0
        assert last == {"error": "the model failed on this request"}
        status, data, headers = fetch(server.address, "POST", GENERATE, body(SHORT_OF_MEMORY))
        assert (status, headers["retry-after"]) == (503, "1")
        assert codes(server) == {"500": 1, "503": 1}
        assert server.model.closed.qsize() == 2
        assert server.service.unfinished == 0


def test_what_fails_before_the_first_part_is_a_plain_error() -> None:
    class Refusing(CountingModel):
        def stream(self, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Iterator[tuple[Tensor, ...]]:
            raise ValueError("secret")

    with ServerThread(Refusing()) as server:
        status, data, headers = fetch(server.address, "POST", STREAM, body(1))
        assert (status, headers["content-type"]) == (500, "application/json")
        assert json.loads(data) == {"error": "the model failed on this request"}


@pytest.mark.parametrize("path", [GENERATE, STREAM])
def test_a_model_of_one_part_has_the_extension_too(path: str) -> None:
    signature = Signature(
        (TensorSpec("text_input", Datatype.BYTES, (-1, 1)),), (TensorSpec("y", Datatype.BYTES, (-1, 1)),), True
    )
    with ServerThread(FunctionModel(signature, echo), Limits(cache_bytes=100_000)) as server:
        for hit in (None, "hit"):
            status, data, headers = fetch(server.address, "POST", path, b'{"text_input": "a\\nb", "temperature": 0.5}')
            document = json.loads(data) if path == GENERATE else events(data)[0]
            assert status == 200 and document["y"] == "a\nb"
            assert headers.get("x-slipway-cache") == hit
        status, data, _ = fetch(server.address, "POST", path, b'{"text_input": ["a", "b"]}')
        document = json.loads(data) if path == GENERATE else events(data)[0]
        assert (status, document["y"]) == (200, ["a", "b"])
        assert fetch(server.address, "POST", path, b'{"text_input": 1}')[0] == 400


def test_a_client_that_leaves_ends_the_generator() -> None:
    model = CountingModel(free=2)
    with ServerThread(model) as server:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        connection.sendall(b"POST %s HTTP/1.1\r\nContent-Length: 12\r\n\r\n" % STREAM.encode() + b'{"x": 90000}')
        received = b""
        while received.count(b"data: ") < 2:
            received += connection.recv(4096)
        connection.close()
        await_condition(lambda: codes(server) == {"499": 1})
        # It is in the model: as soon as that gives the next part, it is closed.
        model.permits.release()
        assert model.closed.get(timeout=PATIENCE) == 2
        await_condition(lambda: server.on_loop(lambda: server.service.unfinished) == 0)


def test_a_client_that_reads_slowly_stops_the_model() -> None:
    model = CountingModel()
    with ServerThread(model) as server:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.settimeout(PATIENCE)
        connection.sendall(b"POST %s HTTP/1.1\r\nContent-Length: 14\r\n\r\n" % STREAM.encode() + b'{"x": 1000000}')
        await_condition(lambda: server.on_loop(lambda: parked(server)))
        made = model.made
        assert made < 100_000
        assert fetch(server.address, "GET", "/v2/health/ready")[0] == 200
        # Another client is served meanwhile, and the slow one goes on when it reads.
        assert len(events(fetch(server.address, "POST", STREAM, body(3))[1])) == 3
        received = 0
        while model.made < made + 3 + BUFFER:
            received += len(connection.recv(65536))
        connection.close()
        await_condition(lambda: server.on_loop(lambda: server.service.unfinished) == 0)


def test_a_short_timeout_ends_a_stream() -> None:
    model = CountingModel(free=1)
    with ServerThread(model, Limits(timeout=2.0)) as server:
        status, data, _ = fetch(server.address, "POST", STREAM, body(5))
        assert status == 200
        assert events(data)[-1] == {"error": "the request did not finish within its timeout"}
        model.permits.release(5)
        status, data, _ = fetch(server.address, "POST", STREAM, body(100_000_000, parameters={"timeout": 1_500_000}))
        assert "timeout" in events(data)[-1]["error"]
        assert codes(server) == {"504": 2}


def test_so_many_streams_at_once() -> None:
    model = CountingModel(free=1)
    with ServerThread(model, Limits(max_concurrency=1)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as first:
            first.sendall(b"POST %s HTTP/1.1\r\nContent-Length: 8\r\n\r\n" % STREAM.encode() + b'{"x": 2}')
            assert b"200 OK" in first.recv(4096)
            status, _, headers = fetch(server.address, "POST", STREAM, body(2))
            assert (status, headers["retry-after"]) == (429, "1")
            model.permits.release(5)
        await_condition(lambda: server.on_loop(lambda: server.service.unfinished) == 0)


def test_a_stream_that_waits_at_the_end_of_a_drain_is_cut_off() -> None:
    model = CountingModel(free=1)
    with ServerThread(model) as server, socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection:
        connection.sendall(b"POST %s HTTP/1.1\r\nContent-Length: 8\r\n\r\n" % STREAM.encode() + b'{"x": 9}')
        received = connection.recv(4096)
        server.on_loop(server.service.refuse_waiting)
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.recv(4096)
        assert b"shutting down" in received
        model.permits.release(9)
        assert model.closed.get(timeout=PATIENCE) == 1
