"""From an object as the API server stores it to a typed spec, or to all that is wrong with it in the API's terms."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from slipway.api.admission import ineffective_admission
from slipway.api.advice import questionable_settings
from slipway.api.consistency import inconsistencies
from slipway.api.engine_limits import beyond_engine
from slipway.api.open_parts import misshapen
from slipway.api.problems import Problem, unknown_fields
from slipway.api.provider_limits import beyond_provider
from slipway.api.scalars import DecimalString, Duration, Quantity
from slipway.api.sizes import oversized
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.stored import typed_spec
from slipway.api.support import unsupported_settings
from slipway.api.versions import IMAGE, OBJECT_NAME

__all__ = ["Problem", "Validated", "validate"]

_NOTATIONS = {
    Duration.pattern: "a duration such as 300ms, 30s or 1h30m",
    Quantity.pattern: "a quantity such as 64Mi or 2",
    DecimalString.pattern: 'a decimal in quotes such as "0.001"',
    OBJECT_NAME: "the name of an object: lower-case letters, digits, hyphens and dots",
    IMAGE: "text without spaces",
}
_TYPES = {
    "string_type": "must be a string (in quotes, if it looks like a number)",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "tuple_type": "must be a list",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "missing": "is required",
}
_MOST_SHOWN = 10
_BOUNDS = {"ge": "at least", "gt": "greater than", "le": "at most", "lt": "less than"}


@dataclass(frozen=True, slots=True)
class Validated:
    """The outcome: a spec without problems, or problems without a spec."""

    spec: ModelDeploymentSpec | None
    problems: tuple[Problem, ...] = ()
    """Errors; never empty when there is no spec."""
    warnings: tuple[Problem, ...] = ()

    @property
    def reason(self) -> str:
        """Reason for a condition: InvalidSpec before NotYetSupported; empty for a valid spec."""
        reasons = {problem.reason for problem in self.problems}
        return next((reason for reason in ("InvalidSpec", "NotYetSupported") if reason in reasons), "")

    @property
    def message(self) -> str:
        """The problems in one text, the first ten of them; empty for a valid spec."""
        text = "; ".join(str(problem) for problem in self.problems[:_MOST_SHOWN])
        rest = len(self.problems) - _MOST_SHOWN
        return f"{text}; and {rest} more" if rest > 0 else text


def validate(raw: Mapping[str, Any]) -> Validated:
    """Validate a whole ModelDeployment in its JSON form (``metadata.name`` and ``spec`` count). Never raises."""
    spec = raw.get("spec")
    metadata = raw.get("metadata")
    if not isinstance(spec, Mapping):
        return Validated(None, (Problem("spec", "InvalidSpec", "is required and must be an object"),))
    try:
        typed = typed_spec(spec)
    except ValidationError as error:
        return Validated(None, _parse_problems(error, spec))
    name = str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""
    problems = (
        *inconsistencies(name, typed),
        *beyond_provider(typed),
        *beyond_engine(typed),
        *ineffective_admission(typed),
        *misshapen(typed),
        *oversized(spec),
        *unsupported_settings(typed),
    )
    warnings = (*_unknown(typed, spec), *questionable_settings(typed))
    return Validated(None if problems else typed, problems, warnings)


def _unknown(typed: ModelDeploymentSpec, spec: Mapping[str, Any]) -> Iterator[Problem]:
    for path in unknown_fields(typed, spec, "spec"):
        hint = ' (a bare on is read as true in YAML: write "on")' if path.endswith(".True") else ""
        yield Problem(path, "UnknownField", f"is not a field of the API and is dropped{hint}")


def _parse_problems(error: ValidationError, spec: Mapping[str, Any]) -> tuple[Problem, ...]:
    """One problem per field; of alternatives the last, which is the text form, speaks."""
    messages: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        path = _path(detail["loc"], spec)
        if detail["type"] == "too_short" and detail["input"]:
            continue  # entries that are wrong themselves do not count, and have their own problem
        if path in messages and isinstance(detail["input"], int) and not isinstance(detail["input"], bool):
            continue  # a number in place of a quantity is told its bounds, not that it could have been a text
        messages[path] = _message(detail)
    return tuple(Problem(path, "InvalidSpec", message) for path, message in messages.items())


def _path(location: Sequence[str | int], spec: Mapping[str, Any]) -> str:
    """The location by the API's names; what pydantic adds for alternatives of a type is left out."""
    path = "spec"
    here: Any = spec
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
            here = here[part] if isinstance(here, Sequence) and not isinstance(here, str) else None
        elif isinstance(here, Mapping):
            path += f".{part}"
            here = here.get(part)
    return path


def _message(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    kind = detail["type"]
    shown = _shown(detail["input"]) if kind != "missing" else ""
    if kind in _TYPES:
        return f"{_TYPES[kind]}{shown}"
    if kind == "enum":
        return f"must be {str(context['expected']).replace(chr(39), '')}{shown}"
    if kind == "string_pattern_mismatch":
        pattern = str(context["pattern"])
        return f"must be {_NOTATIONS.get(pattern, f'text that matches {pattern}')}{shown}"
    if kind == "too_short":
        return f"needs at least {context['min_length']} entry"
    if kind == "too_long":
        return f"may have at most {context['max_length']} entries, not {context['actual_length']}"
    for key, words in _BOUNDS.items():
        if key in context:
            return f"must be {words} {context[key]}{shown}"
    text = detail["msg"]
    return f"{text[:1].lower()}{text[1:]}{shown}"


def _shown(given: Any) -> str:
    return f", not {shorten(repr(given), 60)}" if isinstance(given, str | int | float) else ""
