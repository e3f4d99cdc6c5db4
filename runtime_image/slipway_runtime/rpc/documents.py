"""Answers about server and model as protobuf: the protocol's JSON documents, written by tables of field numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slipway_runtime.rpc.wire import bytes_field, number_field, packed_field, text_field

_DATA_TYPES = (
    "TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16",
    "TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING", "TYPE_BF16",
)  # fmt: skip
_KINDS = ("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL")


@dataclass(frozen=True)
class Message:
    """The field numbers of a message by kind of value. Fields that a table does not name are not written."""

    texts: Mapping[str, int] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Integers and booleans."""
    packed: Mapping[str, int] = field(default_factory=dict)
    """Lists of integers."""
    names: Mapping[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    """Enums: the number and the words in the order of their values."""
    messages: Mapping[str, tuple[int, Message]] = field(default_factory=dict)
    """Embedded messages, or lists of them."""

    def encode(self, document: Mapping[str, Any]) -> bytes:
        """The message with the values of ``document``."""
        parts: list[bytes] = []
        for name, number in self.texts.items():
            parts += [text_field(number, item) for item in _items(document.get(name))]
        for name, number in self.numbers.items():
            value = document.get(name)
            parts += [number_field(number, int(value))] if value else []
        parts += [packed_field(number, document.get(name) or ()) for name, number in self.packed.items()]
        for name, (number, words) in self.names.items():
            parts += [number_field(number, words.index(document[name]))] if name in document else []
        for name, (number, table) in self.messages.items():
            parts += [bytes_field(number, table.encode(item)) for item in _items(document.get(name))]
        return b"".join(parts)


def _items(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


_TENSOR = Message(texts={"name": 1, "datatype": 2}, packed={"shape": 3})
_DURATION = Message(numbers={"count": 1, "ns": 2})
_INFER_STATISTICS = Message(
    messages={
        name: (number, _DURATION)
        for number, name in enumerate(
            ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"),
            start=1,
        )
    }
)
_BATCH_STATISTICS = Message(
    numbers={"batch_size": 1},
    messages={"compute_input": (2, _DURATION), "compute_infer": (3, _DURATION), "compute_output": (4, _DURATION)},
)
_MODEL_STATISTICS = Message(
    texts={"name": 1, "version": 2},
    numbers={"last_inference": 3, "inference_count": 4, "execution_count": 5},
    messages={"inference_stats": (6, _INFER_STATISTICS), "batch_stats": (7, _BATCH_STATISTICS)},
)
_CONFIG_INPUT = Message(texts={"name": 1}, names={"data_type": (2, _DATA_TYPES)}, packed={"dims": 4})
_CONFIG_OUTPUT = Message(texts={"name": 1}, names={"data_type": (2, _DATA_TYPES)}, packed={"dims": 3})
_INSTANCE_GROUP = Message(texts={"name": 1}, numbers={"count": 2}, names={"kind": (4, _KINDS)})
_CONFIG = Message(
    texts={"name": 1, "platform": 2, "backend": 17},
    numbers={"max_batch_size": 4},
    messages={
        "input": (5, _CONFIG_INPUT),
        "output": (6, _CONFIG_OUTPUT),
        "instance_group": (7, _INSTANCE_GROUP),
        "dynamic_batching": (11, Message(numbers={"max_queue_delay_microseconds": 2})),
        "model_transaction_policy": (19, Message(numbers={"decoupled": 1})),
    },
)

SERVER_METADATA = Message(texts={"name": 1, "version": 2, "extensions": 3})
MODEL_METADATA = Message(
    texts={"name": 1, "versions": 2, "platform": 3}, messages={"inputs": (4, _TENSOR), "outputs": (5, _TENSOR)}
)
MODEL_CONFIG = Message(messages={"config": (1, _CONFIG)})
MODEL_STATISTICS = Message(messages={"model_stats": (1, _MODEL_STATISTICS)})
REPOSITORY_INDEX = Message(messages={"models": (1, Message(texts={"name": 1, "version": 2, "state": 3, "reason": 4}))})


def trace_settings(document: Mapping[str, Any]) -> bytes:
    """``TraceSettingResponse``: a map of lists of strings."""
    entries = []
    for name, value in document.items():
        values = b"".join(bytes_field(1, item.encode()) for item in _items(value))
        entries.append(bytes_field(1, text_field(1, name) + bytes_field(2, values)))
    return b"".join(entries)


def log_settings(document: Mapping[str, Any]) -> bytes:
    """``LogSettingsResponse``: a map of booleans, numbers and strings."""
    entries = []
    for name, value in document.items():
        if isinstance(value, bool):
            encoded = number_field(1, value)
        elif isinstance(value, int):
            encoded = number_field(2, value)
        else:
            encoded = bytes_field(3, str(value).encode())
        entries.append(bytes_field(1, text_field(1, name) + bytes_field(2, encoded)))
    return b"".join(entries)
