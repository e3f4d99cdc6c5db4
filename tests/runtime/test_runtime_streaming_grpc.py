"""Answers in parts over gRPC with tritonclient, unmodified, and a Python handler that yields."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio

from tests.runtime.counting import FAILING, MODEL, CountingModel, codes, events, parked, sent
from tests.runtime.harness import PATIENCE, ServerThread, await_condition, fetch, serving


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread(CountingModel()) as started:
        yield started


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
            await asyncio.to_thread(await_condition, lambda: server.on_loop(lambda: parked(server)))
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
