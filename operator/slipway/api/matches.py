"""Conditions of an experiment, as Istio's ``HTTPMatchRequest``: what Istio would not read as it is meant.

An API server drops a field that Istio's schema does not know, and what is left of the condition then holds for more
requests than somebody wanted: ``header`` instead of ``headers`` would send all of production to the experiment.
"""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["misread_parts"]

_TEXTS = frozenset({"uri", "scheme", "method", "authority"})
"""Conditions on one text."""
_MAPS = frozenset({"headers", "withoutHeaders", "queryParams"})
"""Conditions on texts by name; an empty one asks for the name alone."""
_OTHERS = frozenset({"port", "sourceLabels", "gateways", "sourceNamespace"})
_REMARKS = frozenset({"name", "statPrefix", "ignoreUriCase"})
"""Fields that exclude no request by themselves."""
_KINDS = ("exact", "prefix", "regex")


def misread_parts(match: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each such part with what is wrong; the part is empty where the whole condition holds for every request."""
    known = _TEXTS | _MAPS | _OTHERS | _REMARKS
    for field, value in match.items():
        if field not in known:
            text = f"is no field of Istio's HTTPMatchRequest, which has {', '.join(sorted(known))}"
            yield field, text
        elif field in _TEXTS and not _is_text(value):
            yield field, _one_of()
        elif field in _MAPS:
            yield from _named_texts(field, value)
    if not any(match.get(field) for field in _TEXTS | _MAPS | _OTHERS):
        yield "", "names no condition, so that every request would go to the experiment; give it one, or leave it out"


def _named_texts(field: str, value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, Mapping):
        yield field, "must be an object: a condition by name"
        return
    for name, condition in value.items():
        if condition != {} and not _is_text(condition):
            yield f"{field}.{name}", _one_of()


def _is_text(condition: Any) -> bool:
    """Whether it is one of the three kinds of Istio's StringMatch."""
    if not isinstance(condition, Mapping) or len(condition) != 1:
        return False
    [(kind, text)] = condition.items()
    return kind in _KINDS and isinstance(text, str)


def _one_of() -> str:
    return f"must have exactly one of {', '.join(_KINDS)}, a text"
