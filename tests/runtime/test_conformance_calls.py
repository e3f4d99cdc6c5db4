"""Every public method of tritonclient's four clients, unmodified: answered, or refused in words."""

from __future__ import annotations

import inspect
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as grpc_aio_client
import tritonclient.http as http_client
import tritonclient.http.aio as http_aio_client
from slipway_runtime.tensors.datatypes import Datatype
from tritonclient.utils import InferenceServerException

from tests.runtime.harness import PATIENCE, ServerThread, echo_model

MODEL = "my model"
ARRAY = np.array([[1.0, 2.5]], dtype=np.float32)
REFUSALS = {"501", "403", "StatusCode.UNIMPLEMENTED", "StatusCode.PERMISSION_DENIED"}
ANSWERED: dict[str, tuple[Any, ...]] = {
    "is_server_live": (),
    "is_server_ready": (),
    "is_model_ready": (MODEL,),
    "get_server_metadata": (),
    "get_model_metadata": (MODEL, "v1"),
    "get_model_config": (MODEL, "v1"),
    "get_model_repository_index": (),
    "get_inference_statistics": (MODEL,),
    "get_trace_settings": (MODEL,),
    "get_log_settings": (),
    "update_log_settings": ({"log_info": True},),
    "update_trace_settings": (None, {"trace_level": ["OFF"]}),
    "get_system_shared_memory_status": (),
    "get_cuda_shared_memory_status": (),
}
"""Methods that a server answers, with the arguments of the call."""
REFUSED: dict[str, tuple[Any, ...]] = {
    "load_model": (MODEL,),
    "unload_model": (MODEL,),
    "register_system_shared_memory": ("r", "/r", 8),
    "unregister_system_shared_memory": ("r",),
    "register_cuda_shared_memory": ("r", b"aGFuZGxl", 0, 8),
    "unregister_cuda_shared_memory": ("r",),
}
"""Methods that this server refuses: it was started without leave to load, and has no shared memory."""
INFERENCE = {"infer", "async_infer", "start_stream", "async_stream_infer", "stop_stream", "stream_infer"}
LOCAL = {
    "close",
    "plugin",
    "register_plugin",
    "unregister_plugin",
    "generate_request_body",
    "parse_response_body",
}
"""What asks no server."""
CLIENTS = {
    "http": http_client,
    "http.aio": http_aio_client,
    "grpc": grpc_client,
    "grpc.aio": grpc_aio_client,
}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread(echo_model(Datatype.FP32)) as started:
        yield started


@pytest.fixture(params=CLIENTS)
async def client(request: pytest.FixtureRequest, server: ServerThread) -> AsyncIterator[Any]:
    address = server.address if "http" in request.param else server.grpc_address
    opened = CLIENTS[request.param].InferenceServerClient(address)
    yield opened
    await settled(opened.close())


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def methods(module: Any) -> set[str]:
    return {name for name in dir(module.InferenceServerClient) if not name.startswith("_")}


def sent(module: Any) -> list[Any]:
    tensor = module.InferInput("x", list(ARRAY.shape), "FP32")
    tensor.set_data_from_numpy(ARRAY)
    return [tensor]


@pytest.mark.parametrize("module", CLIENTS.values(), ids=CLIENTS)
def test_no_method_of_the_clients_is_left_out(module: Any) -> None:
    assert methods(module) - LOCAL - INFERENCE == {*ANSWERED, *REFUSED}


@pytest.mark.parametrize("method", ANSWERED)
async def test_methods_that_are_answered(client: Any, method: str) -> None:
    answer = await settled(getattr(client, method)(*ANSWERED[method]))
    assert answer is not False and answer is not None


@pytest.mark.parametrize("method", REFUSED)
async def test_methods_that_are_refused_in_words(client: Any, method: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        await settled(getattr(client, method)(*REFUSED[method]))
    assert caught.value.status() in REFUSALS
    assert caught.value.message()


async def test_inference(client: Any) -> None:
    [module] = [one for one in CLIENTS.values() if isinstance(client, one.InferenceServerClient)]
    result = await settled(client.infer(MODEL, sent(module), request_id="7"))
    assert result.as_numpy("y").tolist() == ARRAY.tolist()


def test_asynchronous_inference(server: ServerThread) -> None:
    with http_client.InferenceServerClient(server.address) as client:
        waiting = client.async_infer(MODEL, sent(http_client))
        assert waiting.get_result().as_numpy("y").tolist() == ARRAY.tolist()
    results: queue.Queue[tuple[Any, Any]] = queue.Queue()
    collect: Callable[[Any, Any], None] = lambda result, error: results.put((result, error))  # noqa: E731
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        client.async_infer(MODEL, sent(grpc_client), collect)
        result, error = results.get(timeout=PATIENCE)
        assert error is None and result.as_numpy("y").tolist() == ARRAY.tolist()
        client.start_stream(collect)
        client.async_stream_infer(MODEL, sent(grpc_client), request_id="9")
        result, error = results.get(timeout=PATIENCE)
        assert error is None and result.get_response().id == "9"
        client.stop_stream()


async def test_streams_of_the_asyncio_client(server: ServerThread) -> None:
    async def questions() -> AsyncIterator[dict[str, Any]]:
        for number in range(3):
            yield {"model_name": MODEL, "inputs": sent(grpc_aio_client), "request_id": str(number)}

    async with grpc_aio_client.InferenceServerClient(server.grpc_address) as client:
        found = []
        async for result, error in client.stream_infer(questions()):
            assert error is None
            found.append(result.get_response().id)
    assert found == ["0", "1", "2"]


@pytest.mark.parametrize("module", [http_client, http_aio_client])
async def test_bodies_made_and_read_without_a_client(module: Any, server: ServerThread) -> None:
    import urllib.request

    made, size = module.InferenceServerClient.generate_request_body(sent(module))
    headers = {"Inference-Header-Content-Length": str(size)}
    url = f"http://{server.address}/v2/models/my%20model/infer"
    with urllib.request.urlopen(urllib.request.Request(url, bytes(made), headers), timeout=PATIENCE) as answer:  # noqa: ASYNC210
        length = answer.headers.get("Inference-Header-Content-Length")
        body = answer.read()
    read = module.InferenceServerClient.parse_response_body(body, header_length=None if length is None else int(length))
    assert read.as_numpy("y").tolist() == ARRAY.tolist()
