"""The candidate's server as its shadow client sees it: binary tensors by HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import orjson

from slipway_runtime.protocol.answer import HEAD_LENGTH
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.protocol.rawdata import decode_raw, encode_raw
from slipway_runtime.telemetry.trace_context import TraceContext
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Tensor

SHADOW_HEADER = "x-slipway-shadow"
_UNANSWERED = (401, 403, 429, 503)
"""Not admitted, or not now: nothing is known of the answer."""
_OK = 200
_CHUNK = 256 * 1024
_UNREADABLE = (
    msgspec.MsgspecError, RequestFailure, KeyError, ValueError, TypeError, OverflowError, RecursionError, MemoryError,
)  # fmt: skip


class NoAnswer(Exception):  # noqa: N818 - nothing was learned; it is no error of the candidate
    """There was nothing to compare with: no connection, too late, or the candidate had too much to do."""


class WrongAnswer(Exception):  # noqa: N818 - what the candidate did
    """The candidate answered with an error, or with something that is no answer, where we had one."""


class _Output(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Any]


class _Head(msgspec.Struct):
    outputs: list[_Output]


class CandidateClient:
    """Sends repeated requests. Proxies named in the environment are used."""

    def __init__(self, model: str, timeout: float, connections: int, max_answer: int) -> None:
        """``timeout`` in seconds; ``max_answer`` in bytes."""
        self._path = f"/v2/models/{quote(model, safe='')}/infer"
        self._max_answer = max_answer
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=timeout),
            connector=aiohttp.TCPConnector(limit=connections),
            trust_env=True,
            # A candidate is not trusted: what it sends must not grow here, nor lead elsewhere.
            auto_decompress=False,
            headers={"Accept-Encoding": "identity"},
        )

    async def infer(
        self, target: str, inputs: Sequence[Tensor], authorization: str = "", trace: TraceContext | None = None
    ) -> tuple[Tensor, ...]:
        """The candidate's outputs for ``inputs``. Raises NoAnswer or WrongAnswer."""
        head, blobs = _encode(inputs)
        headers = {SHADOW_HEADER: "true", HEAD_LENGTH: str(len(head))}
        if authorization:
            headers["authorization"] = authorization
        if trace is not None:
            headers |= trace.headers
        try:
            async with self._session.post(
                target.rstrip("/") + self._path,
                data=b"".join((head, *blobs)),
                headers=headers,
                allow_redirects=False,
            ) as answer:
                if answer.status in _UNANSWERED:
                    raise NoAnswer(f"status {answer.status}")
                if answer.status != _OK:
                    raise WrongAnswer(f"status {answer.status}")
                if answer.headers.get("Content-Encoding", "identity") != "identity":
                    raise WrongAnswer("compressed, although that was not asked for")
                return _decode(await self._whole(answer), answer.headers.get(HEAD_LENGTH))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NoAnswer(type(error).__name__) from error

    async def _whole(self, answer: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        if (answer.content_length or 0) <= self._max_answer:
            async for chunk in answer.content.iter_chunked(_CHUNK):
                body += chunk
                if len(body) > self._max_answer:
                    break
            else:
                return bytes(body)
        answer.close()
        raise NoAnswer("the answer is too large to compare")

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


def _encode(inputs: Sequence[Tensor]) -> tuple[bytes, list[memoryview]]:
    blobs = [encode_raw(tensor.datatype, tensor.array) for tensor in inputs]
    entries = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
            "parameters": {"binary_data_size": len(blob)},
        }
        for tensor, blob in zip(inputs, blobs, strict=True)
    ]
    return orjson.dumps({"inputs": entries, "parameters": {"binary_data_output": True}}), blobs


def _decode(body: bytes, head_length: str | None) -> tuple[Tensor, ...]:
    try:
        size = int(head_length or len(body))
        head = msgspec.json.decode(body[:size], type=_Head)
        tensors: list[Tensor] = []
        for output in head.outputs:
            length = output.parameters["binary_data_size"]
            if type(length) is not int or not 0 <= length <= len(body) - size:
                raise ValueError("binary_data_size")
            end = size + length
            datatype = Datatype(output.datatype)
            array = decode_raw(output.name, datatype, tuple(output.shape), memoryview(body)[size:end])
            tensors.append(Tensor(output.name, datatype, array))
            size = end
    except _UNREADABLE as error:
        raise WrongAnswer(f"not an answer: {type(error).__name__}") from error
    return tuple(tensors)
