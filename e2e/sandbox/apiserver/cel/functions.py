"""The functions Kubernetes adds to CEL: strings, lists, regular expressions, quantities, addresses, optional values."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any
from urllib.parse import urlparse

from celpy import celtypes

from .. import quantities


@dataclass(frozen=True, slots=True)
class Method:
    """What the checker knows of a function: what it is called on (nothing: anything) and what it gives."""

    result: str
    receivers: tuple[str, ...] = ()


_TEXT, _LIST = ("string",), ("list",)
METHODS: dict[str, Method] = {
    "size": Method("int", ("string", "bytes", "list", "map")),
    "contains": Method("bool", _TEXT),
    "startsWith": Method("bool", _TEXT),
    "endsWith": Method("bool", _TEXT),
    "matches": Method("bool", _TEXT),
    "charAt": Method("string", _TEXT),
    "lowerAscii": Method("string", _TEXT),
    "upperAscii": Method("string", _TEXT),
    "replace": Method("string", _TEXT),
    "substring": Method("string", _TEXT),
    "trim": Method("string", _TEXT),
    "split": Method("strings", _TEXT),
    "find": Method("string", _TEXT),
    "findAll": Method("strings", _TEXT),
    "format": Method("string", _TEXT),
    "reverse": Method("receiver"),
    "indexOf": Method("int", ("string", "list")),
    "lastIndexOf": Method("int", ("string", "list")),
    "join": Method("string", _LIST),
    "isSorted": Method("bool", _LIST),
    "sum": Method("element", _LIST),
    "min": Method("element", _LIST),
    "max": Method("element", _LIST),
    "hasValue": Method("bool"),
    "value": Method("dyn"),
    "orValue": Method("dyn"),
    "none": Method("dyn"),
    "of": Method("dyn"),
    "quantity": Method("dyn"),
    "isQuantity": Method("bool"),
    "compareTo": Method("int"),
    "isGreaterThan": Method("bool"),
    "isLessThan": Method("bool"),
    "asInteger": Method("int"),
    "asApproximateFloat": Method("double"),
    "isInteger": Method("bool"),
    "isIP": Method("bool"),
    "ip": Method("dyn"),
    "isCIDR": Method("bool"),
    "cidr": Method("dyn"),
    "family": Method("int"),
    "isURL": Method("bool"),
    "url": Method("dyn"),
    "getHost": Method("string"),
    "getScheme": Method("string"),
    "getHostname": Method("string"),
    "getPort": Method("string"),
    "getEscapedPath": Method("string"),
    "getDate": Method("int"),
    "getDayOfMonth": Method("int"),
    "getDayOfWeek": Method("int"),
    "getDayOfYear": Method("int"),
    "getFullYear": Method("int"),
    "getHours": Method("int"),
    "getMilliseconds": Method("int"),
    "getMinutes": Method("int"),
    "getMonth": Method("int"),
    "getSeconds": Method("int"),
}


class Optional:
    """A value that may be missing, as `oldSelf` is in a rule with optionalOldSelf."""

    def __init__(self, value: Any = None, present: bool = False) -> None:
        self.value = value
        self.present = present


NONE = Optional()


def _text(value: Any) -> celtypes.StringType:
    return celtypes.StringType(value)


def _flag(value: bool) -> celtypes.BoolType:
    return celtypes.BoolType(value)


def _whole(value: int) -> celtypes.IntType:
    return celtypes.IntType(value)


def _value(optional: Optional) -> Any:
    if not optional.present:
        raise ValueError("optional.none() dereference")
    return optional.value


def _char_at(text: str, index: int) -> Any:
    if not 0 <= index <= len(text):
        raise ValueError(f"index out of range: {index}")
    return _text(text[index : index + 1])


def _substring(text: str, start: int, end: int | None = None) -> Any:
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise ValueError(f"invalid substring range. start: {start}, end: {stop}")
    return _text(text[start:stop])


def _replace(text: str, old: str, new: str, count: int = -1) -> Any:
    return _text(str(text).replace(old, new, int(count)))


def _split(text: str, separator: str, count: int = -1) -> Any:
    if count == 0:
        return celtypes.ListType([])
    parts = list(text) if separator == "" else text.split(separator, -1 if count < 0 else int(count) - 1)
    return celtypes.ListType([_text(part) for part in parts])


def _find(text: str, pattern: str) -> Any:
    match = re.search(pattern, text)
    return _text(match[0] if match else "")


def _find_all(text: str, pattern: str, count: int = -1) -> Any:
    found = [_text(match[0]) for match in re.finditer(pattern, text)]
    return celtypes.ListType(found if count < 0 else found[: int(count)])


def _index_of(where: Any, what: Any, start: int = 0) -> Any:
    if isinstance(where, str):
        return _whole(where.find(what, int(start)))
    return _whole(next((index for index, item in enumerate(where) if item == what), -1))


def _last_index_of(where: Any, what: Any) -> Any:
    if isinstance(where, str):
        return _whole(where.rfind(what))
    found = [index for index, item in enumerate(where) if item == what]
    return _whole(found[-1] if found else -1)


def _sum(items: Any) -> Any:
    total = items[0] if items else _whole(0)
    for item in items[1:]:
        total = total + item
    return total


def _format(text: str, arguments: Any) -> Any:
    parts = list(arguments)
    return _text(re.sub(r"%(?:\.\d+)?[sdfexXob]", lambda _: str(parts.pop(0)), text))


def _is_quantity(text: str) -> Any:
    try:
        quantities.value_of(text)
    except ValueError:
        return _flag(False)
    return _flag(True)


def _compare(left: Decimal, right: Decimal) -> Any:
    return _whole((left > right) - (left < right))


def _parses(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    def check(text: Any) -> Any:
        try:
            parse(str(text))
        except ValueError:
            return _flag(False)
        return _flag(True)

    return check


def _url(text: str) -> Any:
    parsed = urlparse(text)
    if not parsed.scheme and not text.startswith("/"):
        raise ValueError(f"URL parse error during conversion from string: {text!r}")
    return parsed


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "charAt": _char_at,
    "substring": _substring,
    "replace": _replace,
    "split": _split,
    "find": _find,
    "findAll": _find_all,
    "lowerAscii": lambda text: _text(text.lower()),
    "upperAscii": lambda text: _text(text.upper()),
    "trim": lambda text: _text(text.strip()),
    "format": _format,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "join": lambda items, separator="": _text(separator.join(items)),
    "sum": _sum,
    "min": min,
    "max": max,
    "reverse": lambda value: _text(value[::-1]) if isinstance(value, str) else celtypes.ListType(reversed(value)),
    "isSorted": lambda items: _flag(all(a <= b for a, b in pairwise(items))),
    "hasValue": lambda optional: _flag(optional.present),
    "value": _value,
    "orValue": lambda optional, other: optional.value if optional.present else other,
    "none": lambda _=None: NONE,
    "of": lambda _, value: Optional(value, True),
    "quantity": lambda text: quantities.value_of(str(text)),
    "isQuantity": _is_quantity,
    "compareTo": _compare,
    "isGreaterThan": lambda left, right: _flag(left > right),
    "isLessThan": lambda left, right: _flag(left < right),
    "asInteger": lambda amount: _whole(int(amount)),
    "asApproximateFloat": lambda amount: celtypes.DoubleType(float(amount)),
    "isInteger": lambda amount: _flag(amount == amount.to_integral_value()),
    "isIP": _parses(ipaddress.ip_address),
    "ip": lambda text: ipaddress.ip_address(str(text)),
    "isCIDR": _parses(ipaddress.ip_network),
    "cidr": lambda text: ipaddress.ip_network(str(text)),
    "family": lambda address: _whole(address.version),
    "isURL": _parses(_url),
    "url": lambda text: _url(str(text)),
    "getHost": lambda url: _text(url.netloc),
    "getScheme": lambda url: _text(url.scheme),
    "getHostname": lambda url: _text(url.hostname or ""),
    "getPort": lambda url: _text(url.port or ""),
    "getEscapedPath": lambda url: _text(url.path),
}
