"""Answers in parts: server-sent events over HTTP, ``ModelStreamInfer`` over gRPC, and clients that leave or dawdle."""

from __future__ import annotations

import asyncio
import http.client
import json
import queue
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from slipway_runtime.models.model import OutOfMemory
from slipway_runtime.serving.streaming import BUFFER
from slipway_runtime.settings import Limits
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, Tensor, TensorSpec
from tritonclient.utils import InferenceServerException

from tests.runtime.harness import PATIENCE, FunctionModel, ServerThread, await_condition, echo, fetch, serving

MODEL = "my model"
GENERATE, STREAM = "/v2/models/my%20model/generate", "/v2/models/my%20model/generate_stream"
FAILING, SHORT_OF_MEMORY = 666, 667


class CountingModel:
    """A number comes back as so many parts, 0 and up. Every part from ``free`` on waits for a permission."""

    signature = Signature(
        (TensorSpec("x", Datatype.INT32, (-1,)),), (TensorSpec("y", Datatype.INT32, (-1,)),), False, streams=True
    )
    platform = "test"
    on_accelerator = False

    def __init__(self, free: int = 1_000_000) -> None:
        self.free = free
        self.permits = threading.Semaphore(0)
        self.made = 0
        self.closed: queue.Queue[int] = queue.Queue()

    def infer(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return next(self.stream(inputs, {}))

    def stream(self, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Iterator[tuple[Tensor, ...]]:
        count = int(inputs[0].array[0])
        number = 0
        try:
            for number in range(count):
                if number >= self.free:
                    assert self.permits.acquire(timeout=PATIENCE)
                if number == 1 and count in (FAILING, SHORT_OF_MEMORY):
                    raise ValueError("secret") if count == FAILING else OutOfMemory
                self.made += 1
                yield (Tensor("y", Datatype.INT32, np.array([number], np.int32)),)
        finally:
            self.closed.put(number)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread(CountingModel()) as started:
        yield started


def sent(count: int) -> triton.InferInput:
    tensor = triton.InferInput("x", [1], "INT32")
    tensor.set_data_from_numpy(np.array([count], np.int32))
    return tensor


def events(body: bytes) -> list[Any]:
    parts = body.decode().split("\n\n")
    assert parts[-1] == "" and all(part.startswith("data: ") for part in parts[:-1])
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-1]]


def codes(server: ServerThread) -> dict[str, float]:
    start = "slipway_requests_total{code="
    return {
        name.split('"')[1]: value
        for name, value in server.metrics().items()
        if name.startswith(start) and 'shadow="false"' in name and value
    }


def body(count: int, **more: Any) -> bytes:
    return json.dumps({"x": count, **more}).encode()


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
        await_condition(lambda: server.on_loop(lambda: _parked(server)))
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


def _parked(server: ServerThread) -> bool:
    runner = server.batcher.streams
    assert runner is not None
    return any(not stream.room and not stream.running for stream in runner._active)


def test_a_short_timeout_ends_a_stream() -> None:
    model = CountingModel(free=1)
    with ServerThread(model, Limits(timeout=0.3)) as server:
        status, data, _ = fetch(server.address, "POST", STREAM, body(5))
        assert status == 200
        assert events(data)[-1] == {"error": "the request did not finish within its timeout"}
        model.permits.release(5)
        status, data, _ = fetch(server.address, "POST", STREAM, body(100_000_000, parameters={"timeout": 50_000}))
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


Answers = queue.Queue[tuple[Any, Any]]


def test_the_client_streams_many_requests_and_errors_end_nothing(server: ServerThread) -> None:
    answers: Answers = queue.Queue()
    with triton.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        counts = {"a": 30, "b": FAILING, "c": 0, "d": 3}
        for name, count in counts.items():
            client.async_stream_infer(MODEL, [sent(count)], request_id=name, enable_empty_final_response=True)
        client.async_stream_infer("none", [sent(1)], request_id="e")
        seen: dict[str, list[Any]] = {}
        failures: list[str] = []
        while len([one for one in seen.values() if one[-1] is None]) < 3 or len(failures) < 2:
            result, error = answers.get(timeout=PATIENCE)
            if error is not None:
                failures.append(str(error))
                continue
            response = result.get_response()
            last = response.parameters["triton_final_response"].bool_param
            assert bool(response.outputs) != last
            seen.setdefault(response.id, []).append(None if last else int(result.as_numpy("y")[0]))
        client.stop_stream()
    assert seen == {"a": [*range(30), None], "b": [0], "c": [None], "d": [0, 1, 2, None]}
    assert sorted("no model" in text or "model failed" in text for text in failures) == [True, True]


def test_without_being_asked_nobody_sends_an_empty_response(server: ServerThread) -> None:
    answers: Answers = queue.Queue()
    with triton.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer(MODEL, [sent(2)], request_id="a")
        first, second = answers.get(timeout=PATIENCE)[0], answers.get(timeout=PATIENCE)[0]
        client.stop_stream()
    assert [int(one.as_numpy("y")[0]) for one in (first, second)] == [0, 1]
    assert "triton_final_response" not in second.get_response().parameters
    assert answers.empty()


async def test_the_asyncio_client_streams(server: ServerThread) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for number in range(3):
            yield {"model_name": MODEL, "inputs": [sent(number)], "request_id": str(number)}

    async with triton_aio.InferenceServerClient(server.grpc_address) as client:
        seen = [
            (result.get_response().id, int(result.as_numpy("y")[0]))
            async for result, error in client.stream_infer(requests())
            if error is None
        ]
    assert sorted(seen) == [("1", 0), ("2", 0), ("2", 1)]


def test_a_cancelled_stream_ends_its_generators() -> None:
    model = CountingModel(free=2)
    with ServerThread(model) as server, triton.InferenceServerClient(server.grpc_address) as client:
        answers: Answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer(MODEL, [sent(90_000)])
        for _ in range(2):
            assert answers.get(timeout=PATIENCE)[1] is None
        client.stop_stream(cancel_requests=True)
        await_condition(lambda: codes(server) == {"499": 1})
        model.permits.release()
        assert model.closed.get(timeout=PATIENCE) == 2
        await_condition(lambda: server.on_loop(lambda: server.service.unfinished) == 0)


async def test_a_grpc_client_that_reads_slowly_stops_the_model() -> None:
    model = CountingModel()
    with ServerThread(model) as server:
        async with triton_aio.InferenceServerClient(server.grpc_address) as client:

            async def requests() -> AsyncIterator[dict[str, Any]]:
                yield {"model_name": MODEL, "inputs": [sent(1_000_000)]}
                await asyncio.Event().wait()

            responses = client.stream_infer(requests())
            assert (await anext(responses))[1] is None
            await asyncio.to_thread(await_condition, lambda: server.on_loop(lambda: _parked(server)))
            assert model.made < 100_000
            responses.cancel()
            await asyncio.to_thread(model.closed.get, timeout=PATIENCE)


def test_streams_take_turns() -> None:
    model = CountingModel()
    with ServerThread(model) as server, triton.InferenceServerClient(server.grpc_address) as client:
        answers: Answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer(MODEL, [sent(1_000_000)], request_id="long")
        client.async_stream_infer(MODEL, [sent(5)], request_id="short")
        short = 0
        while short < 5:
            result, error = answers.get(timeout=PATIENCE)
            assert error is None
            short += result.get_response().id == "short"
        client.stop_stream(cancel_requests=True)


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


HANDLER = """
class Speller:
    def load(self, context):
        self.folder = context.folder

    def preprocess(self, inputs):
        return inputs["text_input"].reshape(-1)[0].decode()

    def predict(self, text, parameters):
        try:
            for number, letter in enumerate(text[: parameters.get("max_tokens", 100)]):
                if letter == "!":
                    raise ValueError("secret")
                yield letter
        finally:
            (self.folder.parent / "closed").touch()

    def postprocess(self, letter):
        return {"text_output": [letter.upper()]}
"""


def test_a_handler_that_yields(tmp_path: Path) -> None:
    folder = tmp_path / "speller"
    folder.mkdir()
    (folder / "handler.py").write_text(HANDLER)
    tensor = "{name: text_NAME, datatype: BYTES, shape: [1]}"
    declared = [f"{kind}s: [{tensor.replace('NAME', kind)}]" for kind in ("input", "output")]
    (folder / "config.yaml").write_text("\n".join(["handler: handler.py", *declared]))
    with serving(tmp_path, folder.as_uri()) as server:
        server.await_ready()
        path = "/v2/models/m/generate_stream"

        def spell(text: str, **more: Any) -> list[Any]:
            status, data, _ = fetch(server.address, "POST", path, json.dumps({"text_input": text, **more}).encode())
            assert status == 200
            return [one.get("text_output", one.get("error")) for one in events(data)]

        assert spell("ab\n\u00e9") == ["A", "B", "\n", "\u00c9"]
        assert spell("abcdef", max_tokens=2) == ["A", "B"]
        assert spell("ab!c") == ["A", "B", "the model failed on this request"]
        assert spell("abcdef", parameters={"max_tokens": 3}) == ["A", "B", "C"]
        assert (tmp_path / "closed").exists()
        answers: Answers = queue.Queue()
        text = triton.InferInput("text_input", [1], "BYTES")
        text.set_data_from_numpy(np.array([b"abcdef"], dtype=object))
        with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            client.async_stream_infer("m", [text], parameters={"max_tokens": 2})
            spelt = [answers.get(timeout=PATIENCE)[0].as_numpy("text_output").tolist() for _ in range(2)]
            client.stop_stream()
        assert spelt == [[b"A"], [b"B"]]
