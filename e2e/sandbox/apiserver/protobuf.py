"""Kubernetes' protobuf bodies: Go clients write built-in kinds this way. Answers are always JSON, which they accept.

`protobuf_fields.json` holds the numbers, names and types of the fields of the messages in use. A message's number never
changes; fields newer than the table are passed over.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from .definitions import definition_of, definitions
from .failures import bad_request
from .schema import JsonDict

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_META = "k8s.io.apimachinery.pkg.apis.meta.v1."
_TIME, _MICRO_TIME = _META + "Time", _META + "MicroTime"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIGN, _WRAP = 1 << 63, 1 << 64
Field = tuple[str, str, str]


@cache
def _messages() -> dict[str, dict[int, Field]]:
    raw = orjson.loads((files(__package__) / "protobuf_fields.json").read_bytes())
    return {name: {int(number): tuple(field) for number, field in fields.items()} for name, fields in raw.items()}


def decode(body: bytes) -> JsonDict:
    """The object in a protobuf body, as JSON says it. Raises ApiError 400."""
    if not body.startswith(_MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        meta = {number: value.decode() for number, value in _fields(envelope.get(1, b""))}
        api_version, kind = meta.get(1, ""), meta.get(2, "")
        return {**_message(_name(api_version, kind), envelope.get(2, b"")), "apiVersion": api_version, "kind": kind}
    except (ValueError, IndexError, KeyError, struct.error) as problem:
        raise bad_request(f"unable to decode protobuf body: {problem}") from problem


def _name(api_version: str, kind: str) -> str:
    if kind.endswith("Options"):
        return _META + kind
    group, _, version = api_version.rpartition("/")
    return definition_of(group, version, kind).replace("io.k8s.", "k8s.io.", 1)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _fields(body: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(body):
        key, at = _varint(body, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(body, at)
            yield number, value
        elif wire == _BYTES:
            size, at = _varint(body, at)
            yield number, body[at : at + size]
            at += size
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
            yield number, body[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {wire}")


def _message(name: str, body: bytes) -> JsonDict:
    known = _messages()[name]
    definition = definitions().get(name.replace("k8s.io.", "io.k8s.", 1))
    out: JsonDict = {}
    for number, raw in _fields(body):
        field = known.get(number)
        if field is None:
            continue
        key, shape, kind = field
        if shape == "map":
            entry = dict(_fields(raw))
            out.setdefault(key, {})[entry.get(1, b"").decode()] = _value(kind, entry.get(2, b""))
        elif shape == "list":
            out.setdefault(key, []).append(_value(kind, raw))
        elif definition is not None and key not in definition.get("properties", {}) and kind in _messages():
            out |= _message(kind, raw)
        else:
            out[key] = _value(kind, raw)
    return out


def _value(kind: str, raw: Any) -> Any:
    special = _SPECIAL.get(kind)
    if special is not None:
        return special(raw)
    if "." in kind:
        if kind.endswith((".ExtraValue", ".Verbs")):
            return _message(kind, raw).get("items", [])
        return _message(kind, raw)
    if kind == "double":
        return struct.unpack("<d", raw)[0]
    return raw


def _signed(raw: int) -> int:
    return raw - _WRAP if raw & _SIGN else raw


def _moment(raw: bytes, micro: bool) -> str | None:
    parts = dict(_fields(raw))
    if not parts:
        return None
    moment = datetime.fromtimestamp(_signed(parts.get(1, 0)), UTC)
    if micro:
        moment = moment.replace(microsecond=_signed(parts.get(2, 0)) // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def _first_text(raw: bytes) -> str:
    found: bytes = dict(_fields(raw)).get(1, b"")
    return found.decode()


def _int_or_string(raw: bytes) -> int | str:
    parts = dict(_fields(raw))
    if parts.get(1, 0) == 1:
        return str(parts.get(3, b"").decode())
    return _signed(parts.get(2, 0))


def _raw_json(raw: bytes) -> Any:
    found = dict(_fields(raw)).get(1, b"")
    return orjson.loads(found) if found else None


_SPECIAL: dict[str, Any] = {
    _TIME: lambda raw: _moment(raw, micro=False),
    _MICRO_TIME: lambda raw: _moment(raw, micro=True),
    _META + "FieldsV1": _raw_json,
    "k8s.io.apimachinery.pkg.runtime.RawExtension": _raw_json,
    "k8s.io.apimachinery.pkg.api.resource.Quantity": _first_text,
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "string": lambda raw: raw.decode(),
    "bytes": lambda raw: base64.b64encode(raw).decode(),
    "bool": bool,
    "int32": _signed,
    "int64": _signed,
}
