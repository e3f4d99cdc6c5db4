"""CEL expressions as small trees, made from cel-python's parse trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import celpy
import lark

MACROS = ("all", "exists", "exists_one", "map", "filter")


class ParseError(ValueError):
    """Text that is no CEL expression."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: its type name and its text."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Ident:
    """A name."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """A field of something."""

    operand: Node
    field: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator; methods and macros have a target."""

    name: str
    args: tuple[Node, ...]
    target: Node | None = None


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list in brackets."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MapNode:
    """A map in braces."""

    entries: tuple[tuple[Node, Node], ...]


Node = Literal | Ident | Select | Call | ListNode | MapNode

_LITERALS = {
    "INT_LIT": "int",
    "UINT_LIT": "uint",
    "FLOAT_LIT": "double",
    "STRING_LIT": "string",
    "MLSTRING_LIT": "string",
    "BYTES_LIT": "bytes",
    "BOOL_LIT": "bool",
    "NULL_LIT": "null",
}
_OPERATORS = {
    "relation_lt": "<",
    "relation_le": "<=",
    "relation_gt": ">",
    "relation_ge": ">=",
    "relation_eq": "==",
    "relation_ne": "!=",
    "relation_in": "in",
    "addition_add": "+",
    "addition_sub": "-",
    "multiplication_mul": "*",
    "multiplication_div": "/",
    "multiplication_mod": "%",
    "unary_not": "!",
    "unary_neg": "-",
}


def parse(environment: celpy.Environment, text: str) -> tuple[Any, Node]:
    """The parse tree to evaluate and the small tree to check. Raises ParseError."""
    try:
        tree = environment.compile(text)
    except celpy.CELParseError as problem:
        raise ParseError(f"Syntax error: {str(problem.args[0]).splitlines()[0]}") from problem
    return tree, _node(tree)


def _node(tree: lark.Tree[lark.Token]) -> Node:
    name, children = str(tree.data), [child for child in tree.children if child is not None]
    if name in ("conditionalor", "conditionaland") and len(children) == 2:
        return Call("||" if name == "conditionalor" else "&&", (_node(_tree(children[0])), _node(_tree(children[1]))))
    if name == "expr" and len(children) == 3:
        return Call("?:", tuple(_node(_tree(child)) for child in children))
    if name in ("relation", "addition", "multiplication") and len(children) == 2:
        operation = _tree(children[0])
        left = _node(_tree(operation.children[0]))
        return Call(_OPERATORS[str(operation.data)], (left, _node(_tree(children[1]))))
    if name == "unary" and len(children) == 2:
        return Call(_OPERATORS[str(_tree(children[0]).data)], (_node(_tree(children[1])),))
    if name in _BUILDERS:
        built: Node = _BUILDERS[name](children)
        return built
    return _node(_tree(children[0]))


def _tree(child: Any) -> lark.Tree[lark.Token]:
    assert isinstance(child, lark.Tree)
    return child


def _arguments(children: list[Any]) -> tuple[Node, ...]:
    if not children:
        return ()
    return tuple(_node(_tree(child)) for child in _tree(children[0]).children)


def _map(children: list[Any]) -> Node:
    if not children:
        return MapNode(())
    parts = [_node(_tree(child)) for child in _tree(children[0]).children]
    return MapNode(tuple(zip(parts[::2], parts[1::2], strict=True)))


_BUILDERS: dict[str, Any] = {
    "member_dot": lambda c: Select(_node(_tree(c[0])), str(c[1])),
    "member_dot_arg": lambda c: Call(str(c[1]), _arguments(c[2:]), _node(_tree(c[0]))),
    "member_index": lambda c: Call("[]", (_node(_tree(c[0])), _node(_tree(c[1])))),
    "ident_arg": lambda c: Call(str(c[0]), _arguments(c[1:])),
    "dot_ident_arg": lambda c: Call(str(c[0]), _arguments(c[1:])),
    "dot_ident": lambda c: Ident(str(c[0])),
    "ident": lambda c: Ident(str(c[0])),
    "list_lit": lambda c: ListNode(_arguments(c)),
    "map_lit": _map,
    "literal": lambda c: Literal(_LITERALS[c[0].type], str(c[0])),
}


def names(node: Node) -> Iterator[str]:
    """All names an expression mentions."""
    if isinstance(node, Ident):
        yield node.name
    elif isinstance(node, Select):
        yield from names(node.operand)
    for part in _parts(node):
        yield from names(part)


def fields_of(node: Node, name: str) -> frozenset[str] | None:
    """The fields of a variable that an expression reads; None if it needs the variable as a whole."""
    found: set[str] = set()
    return frozenset(found) if _only_fields(node, name, found) else None


def _only_fields(node: Node, name: str, found: set[str]) -> bool:
    if isinstance(node, Ident):
        return node.name != name
    if isinstance(node, Select):
        if node.operand == Ident(name):
            found.add(node.field)
            return True
        return _only_fields(node.operand, name, found)
    return all(_only_fields(part, name, found) for part in _parts(node))


def _parts(node: Node) -> Iterator[Node]:
    if isinstance(node, Call):
        yield from (part for part in (node.target, *node.args) if part is not None)
    elif isinstance(node, ListNode):
        yield from node.items
    elif isinstance(node, MapNode):
        for entry in node.entries:
            yield from entry
