"""Label selectors as they stand in objects."""

from __future__ import annotations

from collections.abc import Mapping

from .client import Obj


def matches(selector: Obj | None, labels: Mapping[str, str] | None) -> bool:
    """Whether labels satisfy a LabelSelector. None selects nothing, an empty selector everything."""
    if selector is None:
        return False
    labels = labels or {}
    for name, value in (selector.get("matchLabels") or {}).items():
        if labels.get(name) != value:
            return False
    return all(expression_matches(part, labels) for part in selector.get("matchExpressions") or ())


def expression_matches(expression: Obj, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy one requirement, of a LabelSelector or a NodeSelector."""
    value = labels.get(expression["key"])
    values = expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
    return False


def is_empty(selector: Obj | None) -> bool:
    """Whether the selector has no requirement at all."""
    return not selector or not (selector.get("matchLabels") or selector.get("matchExpressions"))
