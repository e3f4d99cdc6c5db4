"""Documents for programs, in the notation that ``-o`` asks for."""

import json
from typing import Any

import yaml

from slipway.api.schema import PlainDumper

__all__ = ["written"]


def written(document: Any, output: str) -> str:
    """A document as json or yaml, without the last line's end."""
    if output == "json":
        return json.dumps(document, indent=2)
    return yaml.dump(document, Dumper=PlainDumper, sort_keys=False, width=120).rstrip("\n")
