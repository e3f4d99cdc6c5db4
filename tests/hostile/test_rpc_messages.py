"""Messages of any form to every gRPC method: the answer is a code that blames the client, never UNKNOWN or INTERNAL."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slipway_runtime.rpc.wire import bytes_field, number_field, packed_field, text_field, varint
from slipway_runtime.settings import Limits
from slipway_runtime.telemetry.switches import Switches
from slipway_runtime.tensors.datatypes import Datatype
from tritonclient.grpc import service_pb2 as messages

from tests.runtime.harness import ServerThread, await_condition, echo_model

SERVICE = "/inference.GRPCInferenceService/"
METHODS = sorted(method.name for method in messages.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods)
CODES = {
    grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED,
}  # fmt: skip
PATIENCE = 30.0
MAX_BYTES = 1_000_000


@pytest.fixture(scope="module", params=[Datatype.FP32, Datatype.BYTES])
def server(request: pytest.FixtureRequest) -> Iterator[ServerThread]:
    def observe(sheet: Any) -> Any:
        return Switches(traceable=True, loggable=True), None

    limits = Limits(max_request_bytes=MAX_BYTES)
    with ServerThread(echo_model(request.param, batched=True), limits, observe=observe) as started:
        yield started


@pytest.fixture(scope="module")
def channel(server: ServerThread) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.grpc_address) as opened:
        yield opened


@pytest.fixture(autouse=True)
def serving(server: ServerThread, channel: grpc.Channel) -> Iterator[None]:
    yield
    assert called(channel, "ServerReady", b"") is grpc.StatusCode.OK
    assert called(channel, "ModelInfer", good(server)) is grpc.StatusCode.OK
    await_condition(lambda: server.metrics()["slipway_requests_in_flight"] == 0)


def good(server: ServerThread) -> bytes:
    datatype = server.model.signature.inputs[0].datatype
    # Four zeros are a number, or the length of an empty text.
    return message([tensor("x", datatype, [1, 1])], [bytes(4)])


def called(channel: grpc.Channel, method: str, data: bytes) -> grpc.StatusCode:
    try:
        if method == "ModelStreamInfer":
            list(channel.stream_stream(SERVICE + method)(iter([data, data]), timeout=PATIENCE))
        else:
            channel.unary_unary(SERVICE + method)(data, timeout=PATIENCE)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def tensor(name: str, datatype: str, shape: list[int], *more: bytes) -> bytes:
    return text_field(1, name) + text_field(2, datatype) + packed_field(3, shape) + b"".join(more)


def message(tensors: list[bytes], raw: list[bytes], *more: bytes, model: str = "my model") -> bytes:
    inputs = b"".join(bytes_field(5, one) for one in tensors)
    return text_field(1, model) + inputs + b"".join(bytes_field(7, one) for one in raw) + b"".join(more)


TEXTS = st.sampled_from(
    [b"my model", b"", b"x", b"y", b"v1", b"trace_rate", b"log_info", b"\xff", b"\x00", b"a" * 9000]
)
NUMBERS = st.sampled_from([0, 1, 2, 127, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
TAGS = st.integers(0, 12)


def field(number: int, value: Any) -> bytes:
    return number_field(number, value) if isinstance(value, int) else bytes_field(number, value)


def joined(parts: list[tuple[int, Any]]) -> bytes:
    return b"".join(field(*one) for one in parts)


PARTS: st.SearchStrategy[Any] = st.recursive(
    TEXTS | NUMBERS | st.binary(max_size=12),
    lambda inner: st.lists(st.tuples(TAGS, inner), max_size=4).map(joined),
    max_leaves=12,
)  # fmt: skip


@st.composite
def any_messages(draw: st.DrawFn) -> bytes:
    """Fields of any kind within each other, some with a byte changed, cut off, or of another wire type."""
    data = bytearray(joined(draw(st.lists(st.tuples(TAGS, PARTS), max_size=6))))
    if data and draw(st.booleans()):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: len(data) - draw(st.sampled_from([0, 0, 1, 3]))])


def test_there_are_all_methods() -> None:
    assert len(METHODS) > 15 and "ModelStreamInfer" in METHODS


@pytest.mark.parametrize("method", METHODS)
def test_no_message_to_any_method_is_a_defect(channel: grpc.Channel, method: str) -> None:
    @given(any_messages())
    @settings(max_examples=20)
    def ask(data: bytes) -> None:
        assert called(channel, method, data) in CODES

    ask()


SIZES = st.sampled_from([-1, 0, 1, 2, 3, 2**16, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63)])
DATATYPES = st.sampled_from([*map(str, Datatype), "", "FP8", "fp32", "BYTES "])
CONTENTS = st.lists(
    st.tuples(st.integers(1, 9), st.binary(max_size=16) | NUMBERS | st.lists(NUMBERS, max_size=5).map(
        lambda numbers: b"".join(map(varint, numbers))
    )),
    max_size=3,
).map(joined)  # fmt: skip
PARAMETERS = st.lists(
    st.tuples(
        st.sampled_from(["timeout", "priority", "sequence_id", "classification", "shared_memory_region", "cache"]),
        st.tuples(st.integers(1, 6), NUMBERS | TEXTS | st.just(struct.pack("<d", float("nan")))),
    ),
    max_size=3,
).map(lambda given: [text_field(1, name) + bytes_field(2, field(*value)) for name, value in given])


@st.composite
def inferences(draw: st.DrawFn) -> bytes:
    """Requests whose parts each make sense: shapes, datatypes, contents, raw contents, parameters, outputs."""
    tensors = []
    for _ in range(draw(st.integers(0, 3))):
        more = [bytes_field(4, one) for one in draw(PARAMETERS)]
        if draw(st.booleans()):
            more.append(bytes_field(5, draw(CONTENTS)))
        shape = draw(st.lists(SIZES, max_size=5) | st.just([1] * 40))
        tensors.append(tensor(draw(st.sampled_from(["x", "x", "y", ""])), draw(DATATYPES), shape, *more))
    raw = draw(st.lists(st.binary(max_size=12), max_size=3)) if draw(st.booleans()) else []
    outputs = [
        bytes_field(6, text_field(1, name)) for name in draw(st.lists(st.sampled_from(["y", "z", ""]), max_size=2))
    ]
    parameters = [bytes_field(4, one) for one in draw(PARAMETERS)]
    return message(tensors, raw, *outputs, *parameters, model=draw(st.sampled_from(["my model", "other", ""])))


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_no_request_for_inference_is_a_defect(server: ServerThread, channel: grpc.Channel, method: str) -> None:
    before = server.metrics().get('slipway_requests_total{code="500",shadow="false"}', 0)

    @given(inferences())
    @settings(max_examples=120)
    def ask(data: bytes) -> None:
        # A timeout of a microsecond is a wish like any other.
        assert called(channel, method, data) in CODES | {grpc.StatusCode.DEADLINE_EXCEEDED}

    ask()
    assert server.metrics().get('slipway_requests_total{code="500",shadow="false"}', 0) == before


@pytest.mark.parametrize(
    "method", ["ModelInfer", "ModelStreamInfer", "ModelMetadata", "TraceSetting", "RepositoryModelLoad", "ServerLive"]
)
@pytest.mark.parametrize(
    "data",
    [
        bytes(MAX_BYTES + 1),
        b"\x0a" * 400_000,
        bytes_field(4, b"\x22\x7f" * 300_000),
        b"\x0b" * 1000,
        bytes_field(1, b"\xff" * 100_000),
        number_field(3, 2**64 - 1) * 1000,
    ],
    ids=["too large", "cut off", "deep", "groups", "no text", "numbers"],
)
def test_messages_at_their_worst_are_the_clients_fault(channel: grpc.Channel, method: str, data: bytes) -> None:
    assert called(channel, method, data) in CODES


def test_what_is_too_large_is_told(channel: grpc.Channel) -> None:
    assert called(channel, "ModelInfer", bytes(MAX_BYTES + 1)) is grpc.StatusCode.RESOURCE_EXHAUSTED
