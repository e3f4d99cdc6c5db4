"""Which guard and shape expressions of an exported program are arithmetic and nothing else."""

from __future__ import annotations

import ast

MAX_LENGTH = 20_000
_NAMES = frozenset(
    {
        "L", "Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Mod", "PythonMod", "FloorDiv",
        "CeilDiv", "CleanDiv", "IntTrueDiv", "ModularIndexing", "Max", "Min", "Abs", "Eq", "Ne", "Lt", "Le",
        "Gt", "Ge", "And", "Or", "Not", "ToFloat", "TruncToInt", "max", "min", "math", "true", "false",
    }
)  # fmt: skip
_ATTRIBUTES = frozenset({"size", "stride", "storage_offset", "dim", "floor", "ceil", "trunc"})
_NODES = (
    ast.Expression, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.keyword, ast.Subscript,
    ast.Name, ast.Load, ast.Constant, ast.Attribute, ast.boolop, ast.operator, ast.unaryop, ast.cmpop,
    ast.Tuple,
)  # fmt: skip


def is_harmless_expression(text: object) -> bool:
    """Whether ``text`` consists of numbers, shape symbols, comparisons and arithmetic only."""
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(_allowed(node) for node in ast.walk(tree))


def _allowed(node: ast.AST) -> bool:
    if not isinstance(node, _NODES):
        return False
    if isinstance(node, ast.Name):
        return node.id in _NAMES or _is_shape_symbol(node.id)
    if isinstance(node, ast.Attribute):
        return node.attr in _ATTRIBUTES
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) or (isinstance(node.func, ast.Name) and node.func.id in _NAMES)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        # Names of inputs and symbols; sympy would evaluate anything longer than a name.
        return node.value.isidentifier() or node.value.isdigit()
    return not isinstance(node, ast.Constant) or isinstance(node.value, (int, float, bool))


def _is_shape_symbol(name: str) -> bool:
    """Symbols of torch's shape environment: a letter or two and a number, e.g. s17, u0, zf3."""
    return name.rstrip("0123456789") in ("s", "u", "zf", "zuf") and name[-1].isdigit()
