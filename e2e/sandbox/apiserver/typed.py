"""Built-in objects as the real server's Go types would read and write them: unknown fields go, zero values appear."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from . import quantities
from .definitions import definitions, schema_of
from .failures import ApiError, bad_request
from .gotypes import ALWAYS, OMITTED, PLAIN_TIMES, POINTERS, REQUIRED_POINTERS, STRUCTS, short
from .schema import MISSING, Form, JsonDict, Schema

_ZERO: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": None, "object": None}
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "number": (int, float),
    "object": dict,
    "array": list,
}


@dataclass(slots=True)
class Decoding:
    """One run of the decoder: where it is and which fields nobody knows."""

    kind: str
    unknown: list[str] = field(default_factory=list)

    def wrong_type(self, found: Any, path: str, go_type: str) -> ApiError:
        """The 400 that a value of the wrong type gets."""
        what = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}[type(found)]
        message = f"json: cannot unmarshal {what} into Go struct field {self.kind}{path} of type {go_type}"
        return self.refused(message)

    def refused(self, message: str) -> ApiError:
        """The 400 for a body that cannot become the kind."""
        return bad_request(f'{self.kind} in version "v1" cannot be handled as a {self.kind}: {message}')


class StructCodec:
    """Reads and writes one Go struct. Codecs are made once per definition."""

    def __init__(self, name: str) -> None:
        self.schema = schema_of(name)
        self.zero_fields: dict[str, Any] = {}
        self.struct_fields: dict[str, Schema] = {}
        self.keeps_zero: set[str] = set()
        top_level = "x-kubernetes-group-version-kind" in definitions()[name]
        for key, child in self.schema.properties.items():
            self._plan(name, key, child, top_level)

    def _plan(self, name: str, key: str, child: Schema, top_level: bool) -> None:
        label, required = f"{short(name)}.{key}", key in self.schema.required
        is_struct = bool(child.name and child.properties)
        plain_struct = (required and label not in REQUIRED_POINTERS) or label in STRUCTS
        if is_struct and (plain_struct or (top_level and key in ("metadata", "spec", "status"))):
            self.struct_fields[key] = child
        elif f"{name}.{key}" in ALWAYS:
            self.zero_fields[key] = ALWAYS[f"{name}.{key}"]
        elif label in PLAIN_TIMES:
            self.zero_fields[key] = None
        elif required and label not in OMITTED:
            self.zero_fields[key] = 0 if child.form is Form.INT_OR_STRING else _ZERO.get(child.type)
        if required or label in POINTERS:
            self.keeps_zero.add(key)

    def read(self, value: Any, run: Decoding, path: str) -> JsonDict:
        """The struct as Go would write it back. Raises ApiError 400 for values of a wrong type."""
        if not isinstance(value, dict):
            raise run.wrong_type(value, path, short(self.schema.name))
        out: JsonDict = {}
        properties, keeps_zero = self.schema.properties, self.keeps_zero
        for key, item in value.items():
            child = properties.get(key)
            if child is None:
                run.unknown.append(f"{path}.{key}"[1:])
                continue
            if item is None:
                continue
            read = _read(item, child, run, f"{path}.{key}")
            if read or key in keeps_zero or child.form is Form.INT_OR_STRING or isinstance(read, dict):
                out[key] = read
        self._add_zero(out)
        return _without_empty(out, self)

    def _add_zero(self, out: JsonDict) -> None:
        for key, zero in self.zero_fields.items():
            if key not in out:
                out[key] = zero
        for key, child in self.struct_fields.items():
            if key not in out:
                out[key] = codec_of(child.name).zero()

    def zero(self) -> JsonDict:
        """The struct with nothing set."""
        out: JsonDict = {}
        self._add_zero(out)
        return out


def _without_empty(out: JsonDict, codec: StructCodec) -> JsonDict:
    """Drop empty maps that are no structs: Go omits them."""
    for key in [key for key, value in out.items() if value == {} and key not in codec.keeps_zero]:
        child = codec.schema.properties[key]
        if child.additional is not None:
            del out[key]
    return out


_codecs: dict[str, StructCodec] = {}


def codec_of(name: str) -> StructCodec:
    """The codec of a definition."""
    found = _codecs.get(name)
    if found is None:
        found = _codecs[name] = StructCodec(name)
    return found


def _read(value: Any, schema: Schema, run: Decoding, path: str) -> Any:
    if schema.form is not Form.PLAIN:
        return _read_form(value, schema, run, path)
    if schema.name and schema.properties:
        return codec_of(schema.name).read(value, run, path)
    if schema.type == "array":
        return _read_list(value, schema, run, path)
    if schema.type == "object" and schema.additional is not None:
        return _read_map(value, schema, run, path)
    return _read_scalar(value, schema, run, path)


def _read_list(value: Any, schema: Schema, run: Decoding, path: str) -> Any:
    if not isinstance(value, list):
        raise run.wrong_type(value, path, "[]" + _go_type(schema.items))
    assert schema.items is not None
    items = schema.items
    return [None if item is None else _read(item, items, run, f"{path}[{index}]") for index, item in enumerate(value)]


def _read_map(value: Any, schema: Schema, run: Decoding, path: str) -> Any:
    if not isinstance(value, dict):
        raise run.wrong_type(value, path, f"map[string]{_go_type(schema.additional)}")
    assert schema.additional is not None
    zero = _ZERO.get(schema.additional.type, "")
    return {
        key: zero if item is None else _read(item, schema.additional, run, f"{path}.{key}")
        for key, item in value.items()
    }


def _read_scalar(value: Any, schema: Schema, run: Decoding, path: str) -> Any:
    if schema.type == "integer":
        if isinstance(value, bool) or not isinstance(value, int):
            raise run.wrong_type(value, path, _go_type(schema))
        return value
    expected = _TYPES.get(schema.type)
    if expected is not None and (
        not isinstance(value, expected) or (isinstance(value, bool) and schema.type != "boolean")
    ):
        raise run.wrong_type(value, path, _go_type(schema))
    return value


def _read_form(value: Any, schema: Schema, run: Decoding, path: str) -> Any:
    if schema.form is Form.INT_OR_STRING:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise run.wrong_type(value, path, "intstr.IntOrString")
        return value
    if schema.form is Form.QUANTITY:
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise run.refused("quantities must be a string or a number")
        try:
            return quantities.canonical(str(value).strip())
        except ValueError as problem:
            raise run.refused(str(problem)) from problem
    if not isinstance(value, str):
        raise run.wrong_type(value, path, "time.Time" if schema.form is not Form.BYTES else "[]uint8")
    return value if schema.form is Form.BYTES else _read_time(value, schema.form, run)


def _read_time(value: str, form: Form, run: Decoding) -> str:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as problem:
        raise run.refused(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse') from problem
    if moment.tzinfo is None:
        raise run.refused(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"')
    moment = moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if form is Form.MICRO_TIME else "%Y-%m-%dT%H:%M:%SZ")


def _go_type(schema: Schema | None) -> str:
    if schema is None:
        return "interface {}"
    if schema.name:
        return short(schema.name)
    if schema.type == "integer":
        return str(schema.raw.get("format", "int64"))
    return {"boolean": "bool", "number": "float64"}.get(schema.type, schema.type or MISSING.__class__.__name__)


def decode(name: str, value: JsonDict, kind: str) -> tuple[JsonDict, list[str]]:
    """The object as the server stores it, and the paths of fields it does not know."""
    run = Decoding(kind)
    out = codec_of(name).read(value, run, "")
    return out, run.unknown


def zero(name: str) -> JsonDict:
    """An object of the kind with nothing set, as Go writes it."""
    return codec_of(name).zero()
