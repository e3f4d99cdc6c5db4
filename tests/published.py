"""The published schemas of Kubernetes, each read once."""

import functools
from typing import Any

import kubernetes_validate

# It reads and parses a megabyte at every call, and changes none of it.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


def validate(obj: dict[str, Any], version: str) -> None:
    """Compare an object with the schemas of a minor version; raises ValidationError, also for unknown fields."""
    kubernetes_validate.validate(obj, version, strict=True)
