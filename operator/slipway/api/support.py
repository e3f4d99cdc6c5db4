"""What this release does not do yet: such settings are refused, never silently ignored."""

from collections.abc import Iterator

from slipway.api.problems import FieldValue, Problem, fields_of
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.wire import SUPPORTED_KEY

__all__ = ["unsupported_settings"]


def unsupported_settings(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    """Every setting whose behaviour has yet to come; one problem for a block, none for what lies in it."""
    refused = ""
    for field in fields_of(spec, "spec"):
        if refused and field.path.startswith((f"{refused}.", f"{refused}[")):
            continue
        message = _refusal(field)
        if message:
            refused = field.path
            yield Problem(field.path, "NotYetSupported", message)


def _refusal(field: FieldValue) -> str:
    if field.is_default or field.value is None:
        return ""
    if field.marks.get("x-slipway-later"):
        default = field.default
        stays = f" or leave it at {default}" if isinstance(default, str | int | float) and default != "" else ""
        return f"is not supported yet; remove it{stays}"
    values = field.marks.get(SUPPORTED_KEY)
    if values is not None and str(field.value) not in values:
        return f"{field.value} is not supported yet; use {_one_of(values)}"
    return ""


def _one_of(values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} or {values[-1]}"
