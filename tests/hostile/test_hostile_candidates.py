"""A candidate that answers repeated requests so as to hurt the servers in production, which ask it."""

from __future__ import annotations

import gzip
import tracemalloc

import numpy as np
import pytest
from slipway_runtime.shadow.candidate import CandidateClient, NoAnswer, WrongAnswer
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Tensor

from tests.hostile.test_hostile_prometheus import ENDLESS, HEAD, Pretender, whole
from tests.probe.servers import raw_server

MOST = 1_000_000
INPUTS = (Tensor("x", Datatype.FP32, np.ones((1, 2), dtype=np.float32)),)


async def asked(pretender: Pretender, timeout: float = 60.0) -> tuple[Tensor, ...]:
    async with raw_server(pretender.talk) as port:
        client = CandidateClient("m", timeout, connections=1, max_answer=MOST)
        try:
            return await client.infer(f"http://127.0.0.1:{port}", INPUTS, "Bearer of-the-user")
        finally:
            pretender.over.set()
            await client.close()


def answer(text: str, data: bytes = b"", length: object = None) -> Pretender:
    head = text.encode()
    size = len(head) if length is None else length
    return Pretender(whole(head + data, f"Inference-Header-Content-Length: {size}".encode()))


OUTPUT = '{{"outputs": [{{"name": "y", "datatype": "{}", "shape": {}, "parameters": {}}}]}}'


async def test_an_honest_answer_is_read() -> None:
    honest = answer(OUTPUT.format("FP32", [1, 2], '{"binary_data_size": 8}'), bytes(8))
    (output,) = await asked(honest)
    assert output.array.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    "pretender",
    [
        Pretender(whole(b"\x00 garbage")),
        Pretender(whole(b"")),
        Pretender(whole(b"[" * 500_000)),
        answer('{"outputs": 7}'),
        answer('{"outputs": [{"name": "y", "parameters": ' + '{"a":' * 100_000),
        answer(OUTPUT.format("FP99", [1], '{"binary_data_size": 4}'), bytes(4)),
        answer(OUTPUT.format("FP32", [-1], '{"binary_data_size": 4}'), bytes(4)),
        answer(OUTPUT.format("FP32", [-1, -1], '{"binary_data_size": 4}'), bytes(4)),
        answer(OUTPUT.format("FP32", [2**62, 4], '{"binary_data_size": 4}'), bytes(4)),
        answer(OUTPUT.format("FP32", [1], '{"binary_data_size": -4}'), bytes(4)),
        answer(OUTPUT.format("FP32", [1], '{"binary_data_size": 1e308}'), bytes(4)),
        answer(OUTPUT.format("FP32", [1], '{"binary_data_size": "x"}'), bytes(4)),
        answer(OUTPUT.format("FP32", [1], "{}"), bytes(4)),
        answer(OUTPUT.format("BYTES", [2**40], '{"binary_data_size": 4}'), b"\xff" * 4),
        answer("{}", length="9" * 5000),
        answer("{}", length=-5),
        Pretender(whole(gzip.compress(bytes(100_000_000)), b"Content-Encoding: gzip")),
        Pretender(whole(b"{}", status=b"500 No")),
    ],
    ids=range(18),
)
async def test_garbage_is_the_candidates_fault(pretender: Pretender) -> None:
    with pytest.raises(WrongAnswer):
        await asked(pretender)


@pytest.mark.parametrize("head", [b"", b"Content-Length: 1000000000000\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_gigabytes_are_not_read(head: bytes) -> None:
    block = b"%x\r\n%s\r\n" % (len(ENDLESS), ENDLESS) if b"chunked" in head else ENDLESS
    pretender = Pretender(HEAD + head + b"\r\n", block)
    tracemalloc.start()
    with pytest.raises(NoAnswer, match="too large"):
        await asked(pretender)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * MOST
    assert pretender.sent < 50 * MOST


@pytest.mark.parametrize("status", [b"302 Found", b"307 Temporary Redirect"])
async def test_requests_of_users_are_not_led_elsewhere(status: bytes) -> None:
    elsewhere = Pretender(whole(b"{}"))
    async with raw_server(elsewhere.talk) as port:
        location = b"Location: http://127.0.0.1:%d/v2/models/m/infer" % port
        with pytest.raises(WrongAnswer):
            await asked(Pretender(whole(b"", location, status=status)))
    assert elsewhere.asked == 0


@pytest.mark.parametrize(
    "pretender",
    [Pretender(b"H", pause=3600), Pretender(HEAD + b"\r\n", b" ", pause=0.05), Pretender(b"")],
    ids=["never", "drips", "closes"],
)
async def test_who_does_not_answer_has_not_answered(pretender: Pretender) -> None:
    with pytest.raises(NoAnswer):
        await asked(pretender, timeout=0.5)
