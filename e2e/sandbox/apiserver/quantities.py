"""Resource quantities (`500m`, `2Gi`): reading, comparing and the canonical spelling the API server stores."""

from __future__ import annotations

import re
from decimal import ROUND_UP, Decimal, localcontext
from functools import lru_cache

_SHAPE = re.compile(r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+))((?:[eE][+-]?\d+)|[KMGTPE]i|[numkMGTPE]|)$")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANO = Decimal("1e-9")
_LARGEST = Decimal(2**63 - 1)
"""With a binary suffix, more than that is taken for that."""
_FARTHEST = 1000
"""An exponent farther from 0 says no more: nobody counts that far."""
_SHORT = 18
"""Digits of a number that an int64 surely holds."""


@lru_cache(maxsize=4096)
def value_of(text: str) -> Decimal:
    """The number a quantity stands for, as `ParseQuantity` takes it. Raises ValueError if it is none."""
    number, suffix = _split(text)
    # Digits enough for the number as written, for the largest suffix and for a billionth.
    with localcontext(prec=len(text) + 40):
        if suffix in _BINARY:
            found = number * (Decimal(2) ** _BINARY[suffix])
            if abs(found) > _LARGEST:
                return _LARGEST.copy_sign(found)
        elif suffix in _DECIMAL:
            found = number.scaleb(_DECIMAL[suffix])
        else:
            found = number.scaleb(max(-_FARTHEST, min(_FARTHEST, int(suffix[1:]))))
        return found if found == found.to_integral_value() else found.quantize(_NANO, ROUND_UP)


def _split(text: str) -> tuple[Decimal, str]:
    match = _SHAPE.match(text)
    if match is None:
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return Decimal(match[1]), match[2]


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The spelling that is stored: no fraction and the largest suffix, in the family (binary, decimal, exponent) of the
    input. Some are kept as they were written, canonical or not.
    """
    _, suffix = _split(text)
    value = value_of(text)
    if value == 0:
        return "0"
    if suffix not in _BINARY and _is_kept(text, suffix):
        return text
    if suffix in _BINARY and value == value.to_integral_value() and abs(value) >= 1024:
        return _binary(value)
    exponent_form = suffix[:1] in ("e", "E") and len(suffix) > 1
    with localcontext(prec=len(text) + 40):
        return _decimal(value, exponent_form)


def _is_kept(text: str, suffix: str) -> bool:
    """Whether `ParseQuantity` takes the spelling of a short decimal number for canonical."""
    whole, _, fraction = text.removesuffix(suffix).lstrip("+-").partition(".")
    digits = (whole.lstrip("0") or "0") + fraction
    scale = (_DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])) - len(fraction)
    if len(digits) > _SHORT or scale < _DECIMAL["n"] or scale % 3:
        return False
    return not digits.endswith("000") and not digits.startswith("0")


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
            # By way of a decimal: Python writes no integer of thousands of digits.
            digits = f"{scaled.to_integral_value():f}"
            return f"{digits}e{power}" if exponent_form and power else f"{digits}{suffix}"
    return str(value)
