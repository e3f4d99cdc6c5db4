"""How much an expression can cost at most, by the model of Kubernetes' CEL limits."""

from __future__ import annotations

import math
from collections.abc import Mapping

from .checker import check, element_of
from .shapes import DYN, Shape
from .tree import MACROS, Call, Ident, ListNode, Literal, MapNode, Node, Select

RULE_LIMIT = 10_000_000
TOTAL_LIMIT = 100_000_000
_LIST_COST, _MAP_COST, _STEP_COST = 10, 30, 3
_TRAVERSAL = 0.1
_SEARCHES = (
    "contains",
    "endsWith",
    "find",
    "findAll",
    "indexOf",
    "lastIndexOf",
    "matches",
    "replace",
    "split",
    "startsWith",
)
_WALKS = ("join", "lowerAscii", "max", "min", "isSorted", "sum", "substring", "trim", "upperAscii", "format")


def most(node: Node, names: Mapping[str, Shape]) -> float:
    """The most that evaluating an expression once can cost. The expression must have passed the checker."""
    if isinstance(node, Literal):
        return 0
    if isinstance(node, Ident):
        return 1
    if isinstance(node, Select):
        return most(node.operand, names) + 1
    if isinstance(node, ListNode):
        return _LIST_COST + sum(most(item, names) for item in node.items)
    if isinstance(node, MapNode):
        return _MAP_COST + sum(most(part, names) for entry in node.entries for part in entry)
    return _call(node, names)


def _call(node: Call, names: Mapping[str, Shape]) -> float:
    if node.target is not None and node.name in MACROS:
        return _comprehension(node, names)
    if node.name == "has" and node.target is None:
        return most(node.args[0], names)
    parts = [part for part in (node.target, *node.args) if part is not None]
    costs = [most(part, names) for part in parts]
    if node.name == "?:":
        return costs[0] + max(costs[1:])
    if node.name in ("&&", "||"):
        return sum(costs)
    return sum(costs) + _own(node.name, [check(part, names) for part in parts])


def _own(name: str, shapes: list[Shape]) -> float:
    first = shapes[0] if shapes else DYN
    if name in ("==", "!="):
        sizes = [shape.most for shape in shapes if shape.kind in ("string", "bytes", "list", "map")]
        return max(1, math.ceil(min(sizes) * _TRAVERSAL)) if sizes else 1
    if name == "in" and len(shapes) == 2:
        return max(1, shapes[1].most) if shapes[1].kind == "list" else 1
    if name == "+" and first.kind in ("string", "bytes"):
        return max(1, math.ceil(sum(shape.most for shape in shapes) * _TRAVERSAL))
    if name == "matches" and len(shapes) == 2:
        return max(1, math.ceil((first.most + 1) * _TRAVERSAL) * math.ceil(max(1, shapes[1].most) * 0.25))
    if name in _SEARCHES or name in _WALKS:
        return max(1, math.ceil(first.most * (_TRAVERSAL if first.kind != "list" else 1)))
    return 1


def _comprehension(node: Call, names: Mapping[str, Shape]) -> float:
    assert node.target is not None
    target = check(node.target, names)
    variable = node.args[0]
    assert isinstance(variable, Ident)
    inner = {**names, variable.name: element_of(target)}
    step = sum(most(arg, inner) for arg in node.args[1:]) + _STEP_COST
    if node.name in ("map", "filter"):
        step += _LIST_COST
    return most(node.target, names) + target.most * step + 1


def over(cost: float, limit: int) -> str:
    """By how much a cost is above its limit, in words."""
    factor = cost / limit
    return (
        "exceeds budget by factor of more than 100x" if factor > 100 else f"exceeds budget by factor of {factor:.1f}x"
    )
