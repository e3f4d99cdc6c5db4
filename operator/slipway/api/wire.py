"""How Python types map to the JSON of the API: camelCase names, frozen values, docstrings as descriptions."""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

__all__ = ["LATER", "WireModel"]

LATER: dict[str, Any] = {"x-slipway-later": True}
"""Marks a field (``json_schema_extra=LATER``) whose behaviour has yet to come: any value but its default is refused."""


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
