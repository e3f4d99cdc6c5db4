"""Scalars of the API that travel as strings: durations (``30s``), quantities (``64Mi``), decimals (``"0.001"``).

They stay the string that the user wrote, so that a default in the schema, a value in Git and a value in the
cluster compare equal; their number is a property.
"""

import math
import re
from decimal import ROUND_UP, Decimal, localcontext
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

__all__ = ["DecimalString", "Duration", "Quantity", "format_duration", "quantity_value"]

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_LONGEST_PLAIN = 24
_QUANTITY = re.compile(r"^([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$")
_SUFFIX: dict[str, Decimal] = (
    {"": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
    | {letter: Decimal(10 ** (3 * power)) for power, letter in enumerate("kMGTPE", start=1)}
    | {f"{letter}i": Decimal(2 ** (10 * power)) for power, letter in enumerate("KMGTPE", start=1)}
)
_NANO = Decimal("1e-9")
_LARGEST = Decimal(2**63 - 1)
_LONGEST_EXPONENT = 3


class _PatternString(str):
    """A string with a pattern: validated by pydantic, published as ``pattern`` in the schema."""

    pattern: ClassVar[str]
    max_length: ClassVar[int] = 32

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner = core_schema.str_schema(pattern=cls.pattern, max_length=cls.max_length)
        return core_schema.no_info_after_validator_function(
            cls, inner, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "pattern": cls.pattern, "maxLength": cls.max_length}


class Duration(_PatternString):
    """A length of time in Go's notation, such as ``300ms``, ``30s``, ``10m`` or ``1h30m``; days (``2d``) as well."""

    pattern = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(self))

    @classmethod
    def of(cls, seconds: float) -> Self:
        """The shortest notation of a number of seconds."""
        return cls(format_duration(seconds))


class Quantity(_PatternString):
    """A Kubernetes quantity, such as ``64Mi``, ``500m`` or ``2``."""

    pattern = r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E|m)?$"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = super().__get_pydantic_core_schema__(source, handler)
        number = core_schema.no_info_after_validator_function(
            lambda value: cls(str(value)), core_schema.int_schema(ge=0, strict=True)
        )
        return core_schema.union_schema(
            [number, text], mode="left_to_right", serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "minimum": 0,
            "pattern": cls.pattern,
            "maxLength": cls.max_length,
        }

    @property
    def value(self) -> float:
        """The quantity as a plain number (bytes, cores, devices)."""
        return float(quantity_value(self))


class DecimalString(_PatternString):
    """A decimal number written as a string, since JSON numbers lose their notation on the way."""

    pattern = r"^-?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?$"

    @property
    def number(self) -> float:
        """The number."""
        return float(self)

    @classmethod
    def of(cls, number: float, digits: int = 4) -> Self:
        """A number rounded to significant digits, with an exponent only where it would be long without.

        Raises ValueError for a number that is not finite.
        """
        if not math.isfinite(number):
            raise ValueError(f"{number!r} is not a finite number")
        short = f"{number:.{digits}g}"
        plain = format(Decimal(short), "f")
        return cls(plain if len(plain) <= _LONGEST_PLAIN else short.replace("e+", "e"))


def quantity_value(text: str) -> Decimal:
    """The number that a quantity stands for, in any notation that Kubernetes knows, as an API server takes it.

    That is: a fraction of a billionth is rounded up, and with a binary suffix, what is beyond 2**63 - 1 is that. Raises
    ValueError for a text that is no quantity. Source: ``ParseQuantity`` of Kubernetes' apimachinery.
    """
    match = _QUANTITY.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, suffix = match[1], match[2] or ""
    # Digits enough for the number as written, for the largest suffix and for a billionth.
    with localcontext(prec=len(number) + 40):
        factor = _SUFFIX.get(suffix)
        found = Decimal(number) * factor if factor is not None else Decimal(f"{number}{_bounded(suffix)}")
        if suffix.endswith("i") and abs(found) > _LARGEST:
            return _LARGEST.copy_sign(found)
        return found if found == found.to_integral_value() else found.quantize(_NANO, ROUND_UP)


def _bounded(exponent: str) -> str:
    """An exponent that a decimal can have: beyond a thousand places nobody counts."""
    sign = exponent[1] if exponent[1] in "+-" else ""
    digits = exponent[1 + len(sign) :].lstrip("0") or "0"
    return f"e{sign}{digits if len(digits) <= _LONGEST_EXPONENT else '9' * _LONGEST_EXPONENT}"


def format_duration(seconds: float) -> str:
    """Write seconds in the notation of :class:`Duration`: ``90`` becomes ``1m30s``."""
    if seconds < 1:
        return f"{round(max(seconds, 0) * 1000)}ms"
    rest = round(seconds)
    text = ""
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            text += f"{count}{unit}"
    return text
