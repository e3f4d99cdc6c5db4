"""The CEL types of a schema, with how large their values can be."""

from __future__ import annotations

from dataclasses import dataclass

from ..schema import MISSING, Form, Schema

MOST_REQUEST_BYTES = 3 * 1024 * 1024
_FORMATS = {"date-time": "timestamp", "date": "timestamp", "duration": "duration", "byte": "bytes"}
_RESERVED = (
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
)
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))


@dataclass(frozen=True, slots=True)
class Shape:
    """A CEL type: `kind` is int, string, list, map, object, dyn and so on; `most` bounds its size."""

    kind: str
    element: Shape | None = None
    fields: tuple[tuple[str, Schema], ...] = ()
    most: int = 0

    def field(self, name: str) -> Shape | None:
        """The type of an object's field, or None."""
        found = dict(self.fields).get(name)
        return None if found is None else shape_of(found)

    def __str__(self) -> str:
        if self.kind == "list":
            return f"list({self.element})"
        if self.kind == "map":
            return f"map(string, {self.element})"
        return self.kind


DYN, BOOL, INT, UINT, DOUBLE, NULL = (
    Shape("dyn"),
    Shape("bool"),
    Shape("int"),
    Shape("uint"),
    Shape("double"),
    Shape("null"),
)
TIMESTAMP, DURATION, TYPE = Shape("timestamp"), Shape("duration"), Shape("type")


def text(most: int = MOST_REQUEST_BYTES - 2) -> Shape:
    """A string of at most so many bytes."""
    return Shape("string", most=most)


def listed(element: Shape, most: int) -> Shape:
    """A list of at most so many items."""
    return Shape("list", element, most=most)


def escape(name: str) -> str:
    """A property name as CEL expressions write it."""
    if name in _RESERVED:
        return f"__{name}__"
    for plain, escaped in _ESCAPES:
        name = name.replace(plain, escaped)
    return name


def shape_of(schema: Schema) -> Shape:
    """The CEL type of a schema."""
    if schema.form is Form.INT_OR_STRING or not schema.type:
        return DYN
    if schema.type == "object":
        return _object(schema)
    if schema.type == "array":
        element = schema.items or Schema()
        most = schema.raw.get("maxItems")
        return listed(
            shape_of(element), (MOST_REQUEST_BYTES - 2) // (least_size(element) + 1) if most is None else most
        )
    if schema.type == "string":
        return _string(schema)
    return {"integer": INT, "number": DOUBLE, "boolean": BOOL}[schema.type]


def _object(schema: Schema) -> Shape:
    if schema.additional is not None and not schema.properties:
        most = schema.raw.get("maxProperties")
        pairs = (MOST_REQUEST_BYTES - 2) // (least_size(schema.additional) + 6) if most is None else most
        return Shape("map", shape_of(schema.additional), most=pairs)
    if schema.preserve and not schema.properties:
        return DYN
    return Shape("object", fields=tuple((escape(key), child) for key, child in schema.properties.items()))


def _string(schema: Schema) -> Shape:
    raw = schema.raw
    kind = _FORMATS.get(raw.get("format", ""))
    if kind == "bytes":
        return Shape("bytes", most=raw.get("maxLength", MOST_REQUEST_BYTES - 2))
    if kind is not None:
        return Shape(kind)
    if raw.get("maxLength") is not None:
        return text(raw["maxLength"] * 4)
    if raw.get("enum"):
        return text(max(len(str(option).encode()) for option in raw["enum"]))
    return text()


def least_size(schema: Schema) -> int:
    """The fewest bytes a value can take in a request."""
    if schema.type == "object":
        size = 2
        for key in schema.required:
            child = schema.properties.get(key)
            if child is not None and child.default is MISSING:
                size += len(key) + 3 + least_size(child)
        return size
    sizes: dict[str, int] = {"array": 2, "string": 2, "boolean": 4}
    return sizes.get(schema.type, 1)


def most_items(schema: Schema) -> int:
    """How many values there can be below a list or map."""
    return max(1, shape_of(schema).most)


def is_numeric(shape: Shape) -> bool:
    """Whether a type is a number."""
    return shape.kind in ("int", "uint", "double")
