"""How Python types map to the JSON of the API: camelCase names, frozen values, docstrings as descriptions."""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

__all__ = ["LATER", "SET", "SUPPORTED_KEY", "WireModel", "keyed_by", "supported"]

LATER: dict[str, Any] = {"x-slipway-later": True}
"""Marks a field (``json_schema_extra=LATER``) whose behaviour has yet to come: any value but its default is refused."""

SUPPORTED_KEY = "x-slipway-supported"

SET: dict[str, Any] = {"x-kubernetes-list-type": "set"}
"""Marks a list without order or duplicates."""


def keyed_by(key: str) -> dict[str, Any]:
    """Mark a list (``json_schema_extra=keyed_by("name")``) whose entries are told apart by a key."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


def supported(*values: str) -> dict[str, Any]:
    """Mark a field of which only some values have their behaviour already; the others are refused."""
    return {SUPPORTED_KEY: [str(value) for value in values]}


class WireModel(BaseModel):
    """A frozen part of a ModelDeployment; the docstring under each field is its description in the schema."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        validate_default=True,
    )

    def to_wire(self) -> dict[str, Any]:
        """The JSON form, by the API's names, without fields that are ``None``."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")
