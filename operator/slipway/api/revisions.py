"""Revisions: a version's own definition with spec.runtime, named by a hash of what the user wrote.

The hash covers the JSON as written and never a default, so that neither a new release of the operator nor a new
default in the schema gives a revision another name; the schema therefore has no defaults below ``versions`` and
``runtime``.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slipway.api.versions import Runtime, Version

__all__ = [
    "Revision",
    "definition_of",
    "revision_from_definition",
    "revision_of",
    "template_of",
    "with_image",
    "with_template",
]

HASH_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Revision:
    """A named revision with its typed definition."""

    name: str
    """Deployment, subset and metric label: ``<model deployment>-<version>-<hash>``."""
    version: Version
    runtime: Runtime
    """spec.runtime with the version's own settings merged over it."""
    data: Mapping[str, Any]
    """The definition as written."""


def definition_of(spec: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The definition of a version in the JSON form of a spec: ``{"version": …, "runtime": …}``, merged.

    Raises KeyError when the spec has no such version.
    """
    entry = next((item for item in spec.get("versions", ()) if item.get("name") == version), None)
    if entry is None:
        raise KeyError(version)
    own = {key: value for key, value in entry.items() if key != "runtime"}
    runtime = _merge(spec.get("runtime") or {}, entry.get("runtime") or {})
    return {"version": own, "runtime": runtime}


def revision_of(name: str, spec: Mapping[str, Any], version: str) -> Revision:
    """The revision of a version in the JSON form of the spec of the ModelDeployment ``name``."""
    return revision_from_definition(name, definition_of(spec, version))


def revision_from_definition(name: str, data: Mapping[str, Any]) -> Revision:
    """Rebuild a revision from its stored definition."""
    written = {"version": data["version"], "runtime": data.get("runtime") or {}}
    canonical = json.dumps(written, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest, version, runtime = _read(canonical)
    if not runtime.image and data.get("image"):
        runtime = runtime.model_copy(update={"image": data["image"]})
    return Revision(
        name=f"{name}-{version.name}-{digest}",
        version=version,
        runtime=runtime,
        data=data,
    )


@functools.lru_cache(maxsize=2048)
def _read(canonical: str) -> tuple[str, Version, Runtime]:
    """The hash of a definition and what it says; every look at an object reads all its definitions."""
    written = json.loads(canonical)
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:HASH_LENGTH]
    return digest, Version.model_validate(written["version"]), Runtime.model_validate(written["runtime"])


def with_image(data: Mapping[str, Any], image: str) -> dict[str, Any]:
    """A definition that remembers the default image it was first run with.

    The image is no part of the hash. A revision keeps it for life, so that a new release of the operator, which brings
    a new default image, restarts no pod.
    """
    return {**data, "image": image}


def with_template(data: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """A definition that remembers the pod template it was first run with.

    It is no part of the hash either. What a release of the operator makes of a definition may change; the pods of a
    revision do not, or every upgrade of the operator would restart every model.
    """
    return {**data, "template": dict(template)}


def template_of(revision: "Revision") -> Mapping[str, Any] | None:
    """The pod template that a revision was first run with; None for one that has never run."""
    template = revision.data.get("template")
    return template if isinstance(template, Mapping) else None


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Objects merge, everything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = value
    return merged
