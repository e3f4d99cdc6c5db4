"""How large a version may be: its definition is stored twice over in one object, and etcd takes none above 1.5 MiB."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from slipway.api.problems import Problem
from slipway.api.revisions import definition_of

__all__ = ["LARGEST_DEFINITION", "oversized"]

LARGEST_DEFINITION = 512 * 1024
"""Bytes of a version, with spec.runtime, as JSON. A ControllerRevision holds it and the pod template made of it."""


def oversized(spec: Mapping[str, Any]) -> Iterator[Problem]:
    """Versions of a spec in its JSON form, valid otherwise, that no object could hold."""
    for index, version in enumerate(spec["versions"]):
        definition = definition_of(spec, version["name"])
        size = _size(definition)
        if size > LARGEST_DEFINITION:
            runtime = {f"runtime.{name}": value for name, value in definition["runtime"].items()}
            parts = {name: _size(value) for name, value in (definition["version"] | runtime).items()}
            largest = max(parts, key=lambda name: parts[name])
            yield Problem(
                f"spec.versions[{index}]",
                "InvalidSpec",
                f"takes {size} bytes together with spec.runtime, {parts[largest]} of them {largest}; "
                f"may take {LARGEST_DEFINITION}, since it is kept in one object",
            )


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
