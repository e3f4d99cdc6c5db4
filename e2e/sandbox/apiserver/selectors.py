"""Label and field selectors: reading them and matching objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .failures import bad_request
from .schema import JsonDict

_TOKEN = re.compile(r"\s*(==|!=|=|!|,|\(|\)|<|>|[^\s=!,()<>]+)")
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_LABEL_KEY = re.compile(
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
)
_LONGEST = 63


class Operator(Enum):
    """How a requirement compares."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    ABSENT = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet it. A missing label meets `!=` and `notin`."""
        value = labels.get(self.key)
        if self.operator is Operator.EXISTS:
            return value is not None
        if self.operator is Operator.ABSENT:
            return value is None
        if self.operator is Operator.IN:
            return value in self.values
        if self.operator is Operator.NOT_IN:
            return value is None or value not in self.values
        return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        bound = next(iter(self.values))
        if value is None or not value.lstrip("-").isdigit():
            return False
        return int(value) > int(bound) if self.operator is Operator.GREATER else int(value) < int(bound)


LabelSelector = tuple[Requirement, ...]


def matches(selector: LabelSelector, labels: Mapping[str, str] | None) -> bool:
    """Whether labels meet all requirements."""
    return all(requirement.matches(labels or {}) for requirement in selector)


def _parse_error(found: str, expected: str) -> Exception:
    return bad_request(f"unable to parse requirement: found '{found}' expected: {expected}")


class _Tokens:
    def __init__(self, text: str) -> None:
        self.items = [match[1] for match in _TOKEN.finditer(text)]
        self.at = 0

    def peek(self) -> str:
        return self.items[self.at] if self.at < len(self.items) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token


def parse_labels(text: str) -> LabelSelector:
    """Read `a=b,c in (d,e),!f`. Raises ApiError 400."""
    tokens, out = _Tokens(text), []
    while tokens.peek():
        out.append(_requirement(tokens))
        following = tokens.take()
        if following not in ("", ","):
            raise _parse_error(following, "',' or 'end of string'")
        if following == "," and not tokens.peek():
            raise _parse_error("", "identifier after ','")
    return tuple(out)


def _requirement(tokens: _Tokens) -> Requirement:
    if tokens.peek() == "!":
        tokens.take()
        return Requirement(_key(tokens.take()), Operator.ABSENT)
    key = _key(tokens.take())
    operator = tokens.peek()
    if operator in ("", ","):
        return Requirement(key, Operator.EXISTS)
    tokens.take()
    if operator in ("=", "==", "!="):
        value = "" if tokens.peek() in ("", ",") else tokens.take()
        return Requirement(key, Operator.NOT_IN if operator == "!=" else Operator.IN, frozenset((_value(key, value),)))
    if operator in (">", "<"):
        value = tokens.take()
        if not value.lstrip("-").isdigit():
            raise bad_request(
                f"unable to parse requirement: for 'Gt', 'Lt' operators, the value must be an integer: {value!r}"
            )
        return Requirement(key, Operator.GREATER if operator == ">" else Operator.LESS, frozenset((value,)))
    if operator in ("in", "notin"):
        return Requirement(key, Operator.IN if operator == "in" else Operator.NOT_IN, _values(key, tokens))
    raise _parse_error(operator, "in, notin, =, ==, !=, gt, lt")


def _values(key: str, tokens: _Tokens) -> frozenset[str]:
    if tokens.peek() != "(":
        raise _parse_error(tokens.peek(), "'('")
    tokens.take()
    values: set[str] = set()
    while True:
        word = tokens.take()
        if word in (",", ")"):
            values.add("")
        else:
            values.add(_value(key, word))
            word = tokens.take()
        if word == ")":
            return frozenset(values)
        if word != ",":
            raise _parse_error(word, "',' or ')'")


def _key(text: str) -> str:
    if not text or not _LABEL_KEY.match(text) or len(text.rpartition("/")[2]) > _LONGEST:
        raise bad_request(
            f'unable to parse requirement: <nil>: Invalid value: "{text}": name part must be a qualified name'
        )
    return text


def _value(key: str, text: str) -> str:
    if not is_label_value(text):
        raise bad_request(
            f'unable to parse requirement: values[0][{key}]: Invalid value: "{text}": a valid label must be …'
        )
    return text


def is_label_value(text: str) -> bool:
    """Whether a text may be a label's value."""
    return len(text) <= _LONGEST and bool(_LABEL_VALUE.match(text))


def is_label_key(text: str) -> bool:
    """Whether a text may be a label's key."""
    return bool(_LABEL_KEY.match(text)) and len(text.rpartition("/")[2]) <= _LONGEST


def from_object(selector: JsonDict | None) -> LabelSelector | None:
    """The requirements of a `matchLabels` and `matchExpressions` object; None (null) selects nothing."""
    if selector is None:
        return None
    out = [
        Requirement(key, Operator.IN, frozenset((value,))) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for entry in selector.get("matchExpressions") or ():
        out.append(Requirement(entry["key"], Operator(entry["operator"]), frozenset(entry.get("values") or ())))
    return tuple(out)


def as_text(selector: JsonDict | None) -> str:
    """A selector object in the short form: `app=web,tier in (a,b)`."""
    parts = []
    for requirement in sorted(from_object(selector) or (), key=lambda r: r.key):
        values = sorted(requirement.values)
        if requirement.operator is Operator.IN and len(values) == 1:
            parts.append(f"{requirement.key}={values[0]}")
        elif requirement.operator in (Operator.IN, Operator.NOT_IN):
            parts.append(f"{requirement.key} {requirement.operator.value.lower()} ({','.join(values)})")
        else:
            parts.append(requirement.key if requirement.operator is Operator.EXISTS else f"!{requirement.key}")
    return ",".join(parts)


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One condition on one field."""

    field: str
    value: str
    equal: bool


FieldSelector = tuple[FieldTerm, ...]
FieldReader = Callable[[JsonDict], str]


def parse_fields(text: str, allowed: Iterable[str]) -> FieldSelector:
    """Read `metadata.name=a,status.phase!=Running`. Raises ApiError 400 for fields that cannot be selected by."""
    known, terms = set(allowed), []
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        match = re.match(r"^(.*?)(!=|==|=)(.*)$", part, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        field, operator, value = match.groups()
        if field not in known:
            raise bad_request(f"field label not supported: {field}")
        terms.append(FieldTerm(field, re.sub(r"\\([\\,=])", r"\1", value), operator != "!="))
    return tuple(terms)


def field_value(obj: JsonDict, path: str) -> str:
    """The value a field selector compares: the text of a scalar; empty where there is nothing."""
    node: Any = obj
    for key in path.split("."):
        node = node.get(key) if isinstance(node, dict) else None
    if node is None:
        return ""
    if isinstance(node, bool):
        return "true" if node else "false"
    return str(node)


def fields_match(selector: FieldSelector, obj: JsonDict) -> bool:
    """Whether an object meets all conditions on its fields."""
    return all((field_value(obj, term.field) == term.value) is term.equal for term in selector)
