"""Resource quantities (`500m`, `2Gi`): reading, comparing and the canonical spelling the API server stores."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

_SHAPE = re.compile(r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+))((?:[eE][+-]?\d+)|[KMGTPE]i|[numkMGTPE]|)$")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANO = Decimal("1e-9")


@lru_cache(maxsize=4096)
def value_of(text: str) -> Decimal:
    """The number a quantity stands for. Raises ValueError if it is none."""
    number, suffix = _split(text)
    if suffix in _BINARY:
        return number * (Decimal(2) ** _BINARY[suffix])
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:]))


def _split(text: str) -> tuple[Decimal, str]:
    match = _SHAPE.match(text)
    if match is None:
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return Decimal(match[1]), match[2]


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The spelling with no fraction and the largest suffix, in the family (binary, decimal, exponent) of the input."""
    _, suffix = _split(text)
    value = value_of(text)
    if value == 0:
        return "0"
    if value != value.quantize(_NANO, rounding=ROUND_CEILING):
        value = value.quantize(_NANO, rounding=ROUND_CEILING)
    if suffix in _BINARY and value == value.to_integral_value() and abs(value) >= 1024:
        return _binary(value)
    exponent_form = suffix[:1] in ("e", "E") and len(suffix) > 1
    return _decimal(value, exponent_form)


def _binary(value: Decimal) -> str:
    whole, best = int(value), ""
    for suffix, power in _BINARY.items():
        if whole % (1 << power) == 0:
            best = suffix
    return f"{whole >> _BINARY[best]}{best}" if best else str(whole)


def _decimal(value: Decimal, exponent_form: bool) -> str:
    for suffix, power in sorted(_DECIMAL.items(), key=lambda item: -item[1]):
        scaled = value.scaleb(-power)
        if scaled == scaled.to_integral_value():
            if exponent_form and power:
                return f"{int(scaled)}e{power}"
            return f"{int(scaled)}{suffix}"
    return str(value)
