"""Requests that take seconds: what is in flight when a version goes."""

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp
import grpc
from tritonclient.grpc import service_pb2 as messages

from tests.integration.bench import Bench

__all__ = ["slow_request", "stream"]

PIECES = 16
GRPC_PORT = 9000
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


async def slow_request(bench: Bench, name: str, version: str, seconds: float) -> str:
    """An HTTP request whose body takes that long to send; gives the HTTP status and who answered."""
    tensor = {"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [0.1] * 64}
    body = json.dumps({"inputs": [tensor]}).encode()
    headers = {"Host": bench.host(name), "x-model-version": version, "Content-Type": "application/json"}
    url = f"{bench.cluster.gateway_url}/v2/models/{name}/infer"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=_trickle(body, seconds), headers=headers) as response,
    ):
        await response.read()
        return f"{response.status} by {response.headers.get('x-model-version', '')}"


async def _trickle(body: bytes, seconds: float) -> AsyncIterator[bytes]:
    size = -(-len(body) // PIECES)
    for begin in range(0, len(body), size):
        yield body[begin : begin + size]
        await asyncio.sleep(seconds / PIECES)


async def stream(bench: Bench, name: str, version: str, seconds: float) -> str:
    """A gRPC stream that asks again and again for that long; gives the number of answers, who gave them, the code."""
    request = messages.ModelInferRequest(model_name=name)
    tensor = request.inputs.add(name="pixels", datatype="FP32", shape=(1, 64))
    tensor.contents.fp32_contents.extend([0.1] * 64)
    address = urlsplit(bench.cluster.gateway_url).netloc
    authority = f"{bench.host(name)}:{GRPC_PORT}"
    async with grpc.aio.insecure_channel(address, options=[("grpc.default_authority", authority)]) as channel:
        call = channel.stream_stream(_STREAM)(metadata=(("x-model-version", version),), timeout=10 * seconds)
        answered = 0
        for _ in range(PIECES):
            await call.write(request.SerializeToString())
            answer = messages.ModelStreamInferResponse.FromString(await call.read())
            answered += not answer.error_message
            await asyncio.sleep(seconds / PIECES)
        await call.done_writing()
        code = await call.code()
        trailers = dict(await call.trailing_metadata() or ())
        return f"{answered} of {PIECES} by {trailers.get('x-model-version', '')}, {code.name}"
