"""Static checks of an expression: fields that do not exist, functions nobody knows, operands that do not fit."""

from __future__ import annotations

from collections.abc import Mapping

from .functions import METHODS
from .shapes import BOOL, DOUBLE, DURATION, DYN, INT, NULL, TIMESTAMP, TYPE, UINT, Shape, is_numeric, listed, text
from .tree import MACROS, Call, Ident, ListNode, Literal, MapNode, Node, Select

_TYPE_NAMES = (
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "timestamp",
    "type",
    "uint",
)
_LITERALS = {"int": INT, "uint": UINT, "double": DOUBLE, "bool": BOOL, "null": NULL, "bytes": Shape("bytes")}
_CASTS = {
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "bool": BOOL,
    "string": text(),
    "bytes": Shape("bytes"),
    "duration": DURATION,
    "timestamp": TIMESTAMP,
    "type": TYPE,
    "dyn": DYN,
}
_ORDERED = ("int", "uint", "double", "string", "bytes", "bool", "timestamp", "duration")


class CheckError(ValueError):
    """An expression that cannot be right."""


def check(node: Node, names: Mapping[str, Shape]) -> Shape:
    """The type of an expression. Raises CheckError."""
    if isinstance(node, Literal):
        return text(len(node.text)) if node.kind == "string" else _LITERALS[node.kind]
    if isinstance(node, Ident):
        return _name(node.name, names)
    if isinstance(node, Select):
        return select(check(node.operand, names), node.field)
    if isinstance(node, ListNode):
        shapes = [check(item, names) for item in node.items]
        return listed(shapes[0] if shapes and all(s.kind == shapes[0].kind for s in shapes) else DYN, len(shapes))
    if isinstance(node, MapNode):
        values = [check(part, names) for entry in node.entries for part in entry][1::2]
        return Shape(
            "map", values[0] if values and all(v.kind == values[0].kind for v in values) else DYN, most=len(values)
        )
    return _call(node, names)


def _name(name: str, names: Mapping[str, Shape]) -> Shape:
    if name in names:
        return names[name]
    if name in _TYPE_NAMES:
        return TYPE
    if name == "optional":
        return DYN
    raise CheckError(f"undeclared reference to '{name}' (in container '')")


def select(operand: Shape, field: str) -> Shape:
    """The type of a field. Raises CheckError if there is no such field."""
    if operand.kind == "object":
        found = operand.field(field)
        if found is None:
            raise CheckError(f"undefined field '{field}'")
        return found
    if operand.kind == "map":
        return operand.element or DYN
    if operand.kind == "dyn":
        return DYN
    raise CheckError(f"type '{operand}' does not support field selection")


def _call(node: Call, names: Mapping[str, Shape]) -> Shape:
    if node.name == "has" and node.target is None:
        if len(node.args) != 1 or not isinstance(node.args[0], Select):
            raise CheckError("invalid argument to has() macro")
        check(node.args[0], names)
        return BOOL
    if node.target is not None and node.name in MACROS:
        return _macro(node, names)
    target = check(node.target, names) if node.target is not None else None
    args = [check(arg, names) for arg in node.args]
    if (target is None and not node.name.isidentifier()) or node.name == "in":
        return _operator(node.name, args)
    return _function(node.name, target, args)


def element_of(shape: Shape) -> Shape:
    """What a comprehension's variable is: an item of a list, a key of a map."""
    if shape.kind == "list":
        return shape.element or DYN
    return text() if shape.kind == "map" else DYN


def _macro(node: Call, names: Mapping[str, Shape]) -> Shape:
    assert node.target is not None
    target = check(node.target, names)
    if target.kind not in ("list", "map", "dyn"):
        raise CheckError(
            f"expression of type '{target}' cannot be range of a comprehension (must be list, map, or dynamic)"
        )
    if len(node.args) < 2 or not isinstance(node.args[0], Ident):
        raise CheckError("argument must be a simple name")
    inner = {**names, node.args[0].name: element_of(target)}
    results = [check(arg, inner) for arg in node.args[1:]]
    if node.name == "map":
        return listed(results[-1], target.most)
    if results[0].kind not in ("bool", "dyn"):
        raise CheckError(f"expected type 'bool' but found '{results[0]}'")
    if node.name == "filter":
        return target if target.kind == "list" else listed(element_of(target), target.most)
    return BOOL


def _mismatch(name: str, args: list[Shape]) -> CheckError:
    label = {"?:": "_?_:_", "[]": "_[_]", "!": "!_", "in": "@in"}.get(
        name, f"_{name}_" if len(args) > 1 else f"{name}_"
    )
    return CheckError(f"found no matching overload for '{label}' applied to '({', '.join(map(str, args))})'")


def _operator(name: str, args: list[Shape]) -> Shape:
    kinds = [arg.kind for arg in args]
    dynamic = "dyn" in kinds
    if name in ("&&", "||", "!"):
        if any(kind not in ("bool", "dyn") for kind in kinds):
            raise _mismatch(name, args)
        return BOOL
    if name == "?:":
        if kinds[0] not in ("bool", "dyn"):
            raise _mismatch(name, args)
        return args[1] if kinds[1] == kinds[2] else DYN
    if name in ("==", "!="):
        return _equality(name, args)
    if name in ("<", "<=", ">", ">="):
        numbers = all(is_numeric(arg) for arg in args)
        if not dynamic and not numbers and (kinds[0] != kinds[1] or kinds[0] not in _ORDERED):
            raise _mismatch(name, args)
        return BOOL
    if name == "in":
        if kinds[1] not in ("list", "map", "dyn") or not _comparable(args[0], element_of(args[1])):
            raise _mismatch(name, args)
        return BOOL
    if name == "[]":
        return _index(args)
    return _arithmetic(name, args, dynamic)


def _comparable(left: Shape, right: Shape) -> bool:
    if "dyn" in (left.kind, right.kind) or left.kind == right.kind or "null" in (left.kind, right.kind):
        return True
    return {left.kind, right.kind} <= {"object", "map"}


def _equality(name: str, args: list[Shape]) -> Shape:
    if not _comparable(args[0], args[1]):
        raise _mismatch(name, args)
    return BOOL


def _index(args: list[Shape]) -> Shape:
    container, index = args
    if container.kind == "list" and index.kind in ("int", "uint", "dyn"):
        return container.element or DYN
    if container.kind == "map" and index.kind in ("string", "dyn"):
        return container.element or DYN
    if container.kind == "dyn":
        return DYN
    raise _mismatch("[]", args)


def _arithmetic(name: str, args: list[Shape], dynamic: bool) -> Shape:
    if dynamic:
        return DYN
    kinds = tuple(arg.kind for arg in args)
    if name == "-" and len(args) == 1 and kinds[0] in ("int", "double"):
        return args[0]
    if len(args) == 2 and kinds[0] == kinds[1]:
        if is_numeric(args[0]) and not (name == "%" and kinds[0] == "double"):
            return args[0]
        if name == "+" and kinds[0] in ("string", "bytes", "list"):
            return Shape(kinds[0], args[0].element, most=args[0].most + args[1].most)
    times = {
        ("timestamp", "duration"): TIMESTAMP,
        ("duration", "timestamp"): TIMESTAMP,
        ("duration", "duration"): DURATION,
    }
    if name == "-":
        times[("timestamp", "timestamp")] = DURATION
    if name in ("+", "-") and kinds in times:
        return times[kinds]
    raise _mismatch(name, args)


def _function(name: str, target: Shape | None, args: list[Shape]) -> Shape:
    if target is None and name in _CASTS:
        return _CASTS[name]
    known = METHODS.get(name)
    if known is None:
        raise CheckError(f"undeclared reference to '{name}' (in container '')")
    receiver = target if target is not None else (args[0] if args else DYN)
    if known.receivers and receiver.kind not in (*known.receivers, "dyn"):
        shown = f"{receiver}.({', '.join(map(str, args))})" if target is not None else f"({', '.join(map(str, args))})"
        raise CheckError(f"found no matching overload for '{name}' applied to '{shown}'")
    if known.result == "element":
        return receiver.element or DYN
    if known.result == "strings":
        return listed(text(receiver.most), receiver.most)
    if known.result == "receiver":
        return receiver
    if known.result == "string":
        return text(receiver.most or MOST_TEXT)
    return Shape(known.result)


MOST_TEXT = text().most
