"""What can be wrong with a spec, as values, and the walk over its fields that finds it."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic.fields import FieldInfo

from slipway.api.wire import WireModel

__all__ = ["FieldValue", "Problem", "fields_of", "unknown_fields"]

ProblemReason = Literal["InvalidSpec", "NotYetSupported", "UnknownField", "Questionable"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong at one field."""

    field: str
    """Path by the API's names, such as ``spec.rollout.steps[1].weight``."""
    reason: ProblemReason
    """InvalidSpec and NotYetSupported are errors, the others warnings."""
    message: str
    """What is wrong and what to do, without the path."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A field of a typed spec with its value."""

    path: str
    info: FieldInfo
    value: Any
    default: Any
    """What the field is where nothing is written."""

    @property
    def marks(self) -> Mapping[str, Any]:
        """What ``json_schema_extra`` says of the field."""
        extra = self.info.json_schema_extra
        return extra if isinstance(extra, dict) else {}

    @property
    def is_default(self) -> bool:
        """Whether the value is the field's default."""
        return bool(self.value == self.default)


def fields_of(model: WireModel, path: str) -> Iterator[FieldValue]:
    """Every field of a model and of the models in it, with its path."""
    for name, info, default in _declared(type(model)):
        field = FieldValue(f"{path}.{info.alias or name}", info, getattr(model, name), default)
        yield field
        for below, value in _models_in(field.value, field.path):
            yield from fields_of(value, below)


@functools.cache
def _declared(model: type[WireModel]) -> tuple[tuple[str, FieldInfo, Any], ...]:
    """Fields with their defaults, which take long to make: pydantic copies them each time."""
    return tuple(
        (name, info, info.get_default(call_default_factory=True, validated_data={}))
        for name, info in model.model_fields.items()
    )


def unknown_fields(model: WireModel, raw: Mapping[str, Any], path: str) -> Iterator[str]:
    """Paths in the JSON form that no field of the model takes; an API server drops them."""
    aliases = {info.alias or name: name for name, info in type(model).model_fields.items()}
    for key, value in raw.items():
        if key not in aliases:
            yield f"{path}.{key}"
            continue
        typed = getattr(model, aliases[key])
        if isinstance(typed, WireModel) and isinstance(value, Mapping):
            yield from unknown_fields(typed, value, f"{path}.{key}")
        elif isinstance(typed, tuple) and isinstance(value, list):
            for index, (item, raw_item) in enumerate(zip(typed, value, strict=False)):
                if isinstance(item, WireModel) and isinstance(raw_item, Mapping):
                    yield from unknown_fields(item, raw_item, f"{path}.{key}[{index}]")


def _models_in(value: Any, path: str) -> Iterator[tuple[str, WireModel]]:
    if isinstance(value, WireModel):
        yield path, value
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            if isinstance(item, WireModel):
                yield f"{path}[{index}]", item
