"""A spec read as strictly as an API server reads it, so that what it refuses is refused without one as well.

Offline commands take files that no API server has seen. There ``minReplicas: "2"`` must not pass for a number.
"""

import json
from collections.abc import Mapping
from typing import Any

from slipway.api.spec import ModelDeploymentSpec

__all__ = ["typed_spec"]

EXACT = 2.0**53
"""Up to here a float holds every whole number."""


def typed_spec(raw: Mapping[str, Any]) -> ModelDeploymentSpec:
    """The typed form; raises ``pydantic.ValidationError``.

    What JSON does not know, such as the date that YAML makes of an unquoted text, is the text again.
    """
    text = json.dumps(_whole(raw), default=str, skipkeys=True)
    return ModelDeploymentSpec.model_validate_json(text, strict=True)


def _whole(value: Any) -> Any:
    """The value with 5.0 as 5, which are one number in JSON."""
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _whole(below) for key, below in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value
