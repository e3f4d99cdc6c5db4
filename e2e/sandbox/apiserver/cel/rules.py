"""The rules of a schema: checked when the definition is made, evaluated when objects are written."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import celpy
from celpy import celtypes

from ..failures import DUPLICATE, FORBIDDEN, INVALID, NOT_SUPPORTED, REQUIRED, Cause
from ..schema import MISSING, Form, JsonDict, ListType, Schema
from ..values import shown
from . import checker, cost
from .functions import FUNCTIONS, NONE, Optional
from .shapes import DYN, Shape, escape, most_items, shape_of
from .tree import Node, ParseError, fields_of, names, parse

_REASONS = {
    "FieldValueInvalid": INVALID,
    "FieldValueForbidden": FORBIDDEN,
    "FieldValueRequired": REQUIRED,
    "FieldValueDuplicate": DUPLICATE,
}
_HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)
_CONTRIBUTED = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
_TOTAL = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
_EVALUATION_ERRORS = (celpy.CELEvalError, ValueError, TypeError, KeyError, AttributeError, IndexError, re.error)
_environment = celpy.Environment()

Held = dict[bytes, None]
HELD = 4096
"""What a rule is remembered to have been true of, at most."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, ready to run."""

    text: str
    program: celpy.Runner
    message: str
    message_program: celpy.Runner | None
    reason: str
    field_path: str
    transition: bool
    optional_old: bool
    reads: frozenset[str] | None
    held: Held = field(default_factory=dict, compare=False)
    """What the rule was true of, newest last."""


@dataclass(slots=True)
class Place:
    """The rules at one node of a schema and at the nodes below it; branches without rules are left out."""

    schema: Schema
    rules: list[Rule] = field(default_factory=list)
    properties: dict[str, Place] = field(default_factory=dict)
    items: Place | None = None
    additional: Place | None = None

    def __bool__(self) -> bool:
        return bool(self.rules or self.properties or self.items or self.additional)


class RuleSet:
    """All rules of one schema."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __bool__(self) -> bool:
        return bool(self._place)

    def check(self, new: JsonDict, old: JsonDict | None) -> list[Cause]:
        """The rules that an object breaks. Rules over two states hold only where there was an old one."""
        return list(_broken(self._place, new, MISSING if old is None else old, ""))


def compile_schema(schema: Schema) -> RuleSet:
    """The rules of a schema that has passed `check_schema`."""
    return RuleSet(_compile(schema))


def _compile(schema: Schema) -> Place:
    place = Place(schema)
    for raw in schema.raw.get("x-kubernetes-validations") or ():
        place.rules.append(_rule(raw))
    for key, child in schema.properties.items():
        below = _compile(child) if not child.name else None
        if below:
            place.properties[key] = below
    for name in ("items", "additional"):
        child_schema = getattr(schema, name)
        if child_schema is not None:
            setattr(place, name, _compile(child_schema) or None)
    return place


def _program(text: str) -> tuple[celpy.Runner, Node]:
    tree, node = parse(_environment, text)
    return _environment.program(tree, functions=FUNCTIONS), node


def _rule(raw: JsonDict) -> Rule:
    program, node = _program(raw["rule"])
    expression = raw.get("messageExpression")
    return Rule(
        text=raw["rule"],
        program=program,
        message=raw.get("message") or "",
        message_program=_program(expression)[0] if expression else None,
        reason=_REASONS[raw.get("reason") or "FieldValueInvalid"],
        field_path=raw.get("fieldPath") or "",
        transition="oldSelf" in names(node),
        optional_old=bool(raw.get("optionalOldSelf")),
        reads=fields_of(node, "self") if not expression else None,
    )


def _broken(place: Place, new: Any, old: Any, path: str) -> Iterator[Cause]:
    if new is None:
        return
    unchanged = old is not MISSING and old == new
    for rule in place.rules:
        if rule.transition:
            if old is MISSING and not rule.optional_old:
                continue
        elif unchanged:
            continue
        cause = _run(rule, place.schema, new, old, path)
        if cause is not None:
            yield cause
    prefix = f"{path}." if path else ""
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        for key, below in place.properties.items():
            if key in new:
                yield from _broken(below, new[key], before.get(key, MISSING), prefix + key)
        if place.additional is not None:
            for key, value in new.items():
                if key not in place.schema.properties:
                    yield from _broken(place.additional, value, before.get(key, MISSING), prefix + key)
    elif isinstance(new, list) and place.items is not None:
        previous = _by_key(place.schema, old)
        for index, value in enumerate(new):
            yield from _broken(place.items, value, previous.get(_key(place.schema, value), MISSING), f"{path}[{index}]")


def _key(schema: Schema, item: Any) -> str:
    if schema.list_type is ListType.MAP and isinstance(item, dict):
        return shown([item.get(key) for key in schema.list_keys])
    return ""


def _by_key(schema: Schema, old: Any) -> dict[str, Any]:
    if schema.list_type is not ListType.MAP or not isinstance(old, list):
        return {}
    return {_key(schema, item): item for item in old}


def _read(rule: Rule, value: Any, path: str) -> Any:
    """What a rule reads of a value: objects are large, rules small. Of metadata it sees names only."""
    if not isinstance(value, dict) or rule.reads is None:
        return value
    seen = {key: inner for key, inner in value.items() if escape(key) in rule.reads}
    if not path and isinstance(seen.get("metadata"), dict):
        seen["metadata"] = {key: inner for key, inner in seen["metadata"].items() if key in ("name", "generateName")}
    return seen


def _run(rule: Rule, schema: Schema, new: Any, old: Any, path: str) -> Cause | None:
    seen = _read(rule, new, path)
    if path or rule.transition or rule.reads is None:
        return _evaluate(rule, schema, seen, new, old, path)
    # Rules of a whole object are asked at each write of its status as well: evaluating takes milliseconds here.
    digest = hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).digest()
    if digest in rule.held:
        return None
    cause = _evaluate(rule, schema, seen, new, old, path)
    if cause is None:
        rule.held[digest] = None
        if len(rule.held) > HELD:
            del rule.held[next(iter(rule.held))]
    return cause


def _evaluate(rule: Rule, schema: Schema, seen: Any, new: Any, old: Any, path: str) -> Cause | None:
    context = {"self": to_cel(schema, seen), "optional": celtypes.MapType({})}
    if rule.transition:
        before = to_cel(schema, old) if old is not MISSING else None
        if rule.optional_old:
            context["oldSelf"] = NONE if before is None else Optional(before, True)
        else:
            context["oldSelf"] = before
    where = path + rule.field_path if rule.field_path else path or "<nil>"
    where = where.removeprefix(".")
    try:
        if rule.program.evaluate(context):
            return None
    except _EVALUATION_ERRORS as problem:
        said = problem.args[0] if problem.args else problem
        words = f"rule evaluation error: {said} evaluating rule: {rule.message or rule.text.strip()}"
        return Cause(INVALID, path or "<nil>", f"Invalid value: {_type_word(new)}: {words}")
    return Cause(rule.reason, where, f"{_prefix(rule, new)}{_message(rule, context)}")


def _prefix(rule: Rule, value: Any) -> str:
    word = {INVALID: "Invalid value", FORBIDDEN: "Forbidden", REQUIRED: "Required value", DUPLICATE: "Duplicate value"}[
        rule.reason
    ]
    simple = isinstance(value, str | int | float)
    return f"{word}: {shown(value)}: " if simple and rule.reason in (INVALID, DUPLICATE) else f"{word}: "


def _type_word(value: Any) -> str:
    return '"object"' if isinstance(value, dict) else '"array"' if isinstance(value, list) else shown(value)


def _message(rule: Rule, context: dict[str, Any]) -> str:
    if rule.message_program is not None:
        try:
            found = str(rule.message_program.evaluate(context)).strip()
        except _EVALUATION_ERRORS:
            found = ""
        if found and "\n" not in found:
            return found
    return rule.message.strip() or f"failed rule: {rule.text.strip()}"


def to_cel(schema: Schema | None, value: Any) -> Any:
    """A JSON value as CEL sees it: by its schema's types, property names escaped."""
    if isinstance(value, dict):
        known = schema.properties if schema is not None else {}
        return celtypes.MapType(
            {
                celtypes.StringType(escape(key) if key in known else key): to_cel(
                    schema.child(key) if schema else None, item
                )
                for key, item in value.items()
            }
        )
    if isinstance(value, list):
        return celtypes.ListType([to_cel(schema.items if schema else None, item) for item in value])
    if (
        schema is not None
        and schema.type == "number"
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    ):
        return celtypes.DoubleType(value)
    if schema is not None and isinstance(value, str) and schema.form is Form.PLAIN:
        kind = shape_of(schema).kind
        if kind == "timestamp":
            return celtypes.TimestampType(value)
        if kind == "duration":
            return celtypes.DurationType(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        # What no int64 holds is read as a float64, as Kubernetes' JSON reader does.
        return celtypes.DoubleType(value)
    return celpy.json_to_cel(value)


# -- when a definition is made ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Costs:
    """What all rules of a schema can cost, each with its place."""

    by_rule: list[tuple[float, str]] = field(default_factory=list)

    @property
    def total(self) -> float:
        return sum(amount for amount, _ in self.by_rule)


def check_schema(schema: Schema, path: str) -> list[Cause]:
    """What is wrong with a schema's rules: they must compile, give a bool and not cost too much."""
    costs = _Costs()
    causes = list(_check_node(schema, path, 1, True, costs))
    if costs.total > cost.TOTAL_LIMIT:
        dearest = sorted(costs.by_rule, reverse=True)[:4]
        for amount, where in dearest:
            if amount > cost.TOTAL_LIMIT / 100:
                causes.append(Cause(FORBIDDEN, where, f"Forbidden: {_CONTRIBUTED}"))
        words = f"{_TOTAL} {cost.over(costs.total, cost.TOTAL_LIMIT)} {_HINT}"
        causes.append(Cause(FORBIDDEN, path, f"Forbidden: {words}"))
    return causes


def _check_node(schema: Schema, path: str, times: int, correlated: bool, costs: _Costs) -> Iterator[Cause]:
    for index, raw in enumerate(schema.raw.get("x-kubernetes-validations") or ()):
        yield from _check_rule(schema, raw, f"{path}.x-kubernetes-validations[{index}]", times, correlated, costs)
    for key, child in schema.properties.items():
        if not child.name:
            yield from _check_node(child, f"{path}.properties[{key}]", times, correlated, costs)
    if schema.items is not None:
        keyed = correlated and schema.list_type is ListType.MAP
        yield from _check_node(schema.items, f"{path}.items", times * most_items(schema), keyed, costs)
    if schema.additional is not None and schema.additional.type:
        below = f"{path}.additionalProperties"
        yield from _check_node(schema.additional, below, times * most_items(schema), correlated, costs)


def _check_rule(
    schema: Schema, raw: JsonDict, path: str, times: int, correlated: bool, costs: _Costs
) -> Iterator[Cause]:
    text = (raw.get("rule") or "").strip()
    if not text:
        yield Cause(REQUIRED, f"{path}.rule", "Required value: rule is not specified")
        return
    if raw.get("reason") and raw["reason"] not in _REASONS:
        listed = ", ".join(f'"{name}"' for name in sorted(_REASONS))
        yield Cause(
            NOT_SUPPORTED, f"{path}.reason", f"Unsupported value: {shown(raw['reason'])}: supported values: {listed}"
        )
    own = shape_of(schema)
    known: Mapping[str, Shape] = {"self": own, "oldSelf": DYN if raw.get("optionalOldSelf") else own}
    try:
        _, node = _program(text)
        result = checker.check(node, known)
        if result.kind not in ("bool", "dyn"):
            raise checker.CheckError("must evaluate to a bool")
    except (ParseError, checker.CheckError) as problem:
        yield Cause(
            INVALID, f"{path}.rule", f"Invalid value: {shown(raw)}: compilation failed: ERROR: <input>:1:1: {problem}"
        )
        return
    if "oldSelf" in names(node) and not correlated:
        words = "oldSelf cannot be used on the uncorrelatable portion of the schema"
        yield Cause(INVALID, f"{path}.rule", f"Invalid value: {shown(raw['rule'])}: {words}")
    yield from _check_message(raw, known, path)
    amount = cost.most(node, known) * times
    costs.by_rule.append((amount, f"{path}.rule"))
    if amount > cost.RULE_LIMIT:
        words = f"estimated rule cost {cost.over(amount, cost.RULE_LIMIT)} {_HINT}"
        yield Cause(FORBIDDEN, f"{path}.rule", f"Forbidden: {words}")


def _check_message(raw: JsonDict, known: Mapping[str, Shape], path: str) -> Iterator[Cause]:
    expression = raw.get("messageExpression")
    if not expression:
        return
    try:
        _, node = _program(expression)
        result = checker.check(node, known)
        if result.kind not in ("string", "dyn"):
            raise checker.CheckError("must evaluate to a string")
    except (ParseError, checker.CheckError) as problem:
        words = f"Invalid value: {shown(expression)}: messageExpression compilation failed: {problem}"
        yield Cause(INVALID, f"{path}.messageExpression", words)
