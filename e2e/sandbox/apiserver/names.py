"""Names, labels and other metadata every object carries: what the API server accepts."""

from __future__ import annotations

import random
import re

from .failures import FORBIDDEN, INVALID, REQUIRED, Cause
from .schema import JsonDict
from .selectors import is_label_key, is_label_value

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_RE = re.compile(rf"^{_LABEL}(\.{_LABEL})*$")
_LABEL_RE = re.compile(rf"^{_LABEL}$")
_LABEL_1035_RE = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_SUBDOMAIN, _LONGEST_LABEL, _LONGEST_BASE, _SUFFIX = 253, 63, 248, 5
_MOST_ANNOTATION_BYTES = 256 * 1024

_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NO_NEW_FINALIZERS = (
    "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string"
)
_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must "
    "start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end "
    "with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def generated(base: str, chance: random.Random) -> str:
    """A name from `generateName`: the base and five characters."""
    return base[:_LONGEST_BASE] + "".join(chance.choice(_ALPHABET) for _ in range(_SUFFIX))


def is_label_name(text: str) -> bool:
    """Whether a text is an RFC 1123 label, as container and port names are."""
    return len(text) <= _LONGEST_LABEL and bool(_LABEL_RE.match(text))


def is_subdomain(text: str) -> bool:
    """Whether a text is an RFC 1123 subdomain."""
    return len(text) <= _LONGEST_SUBDOMAIN and bool(_SUBDOMAIN_RE.match(text))


def name_problem(name: str, pattern: str) -> str:
    """Why a name does not do, or nothing. `pattern` is subdomain, label, label1035 or path."""
    if pattern == "path":
        if name in (".", ".."):
            return f"may not be '{name}'"
        return next((f"may not contain '{bad}'" for bad in ("/", "%") if bad in name), "")
    shapes = {
        "subdomain": (_SUBDOMAIN_RE, _LONGEST_SUBDOMAIN, _SUBDOMAIN_WORDS),
        "label": (_LABEL_RE, _LONGEST_LABEL, _LABEL_WORDS),
        "label1035": (_LABEL_1035_RE, _LONGEST_LABEL, _LABEL_1035_WORDS),
    }
    shape, longest, words = shapes[pattern]
    if len(name) > longest:
        return f"must be no more than {longest} bytes"
    return "" if shape.match(name) else words


def check_metadata(metadata: JsonDict, pattern: str) -> list[Cause]:
    """What is wrong with an object's metadata."""
    causes: list[Cause] = []
    name = metadata.get("name", "")
    if not name:
        causes.append(Cause(REQUIRED, "metadata.name", "Required value: name or generateName is required"))
    else:
        problem = name_problem(name, pattern)
        if problem:
            causes.append(Cause(INVALID, "metadata.name", f'Invalid value: "{name}": {problem}'))
    causes += check_labels(metadata.get("labels"), "metadata.labels")
    causes += _annotations(metadata.get("annotations"))
    causes += _owners(metadata.get("ownerReferences") or [])
    for finalizer in metadata.get("finalizers") or ():
        if not is_label_key(finalizer):
            causes.append(
                Cause(
                    INVALID, "metadata.finalizers", f'Invalid value: "{finalizer}": name part must be a qualified name'
                )
            )
    return causes


def check_labels(labels: dict[str, str] | None, path: str) -> list[Cause]:
    """What is wrong with a set of labels."""
    causes = []
    for key, value in (labels or {}).items():
        if not is_label_key(key):
            causes.append(
                Cause(INVALID, path, f'Invalid value: "{key}": name part must consist of alphanumeric characters')
            )
        if not is_label_value(value):
            causes.append(
                Cause(INVALID, path, f'Invalid value: "{value}": a valid label must be an empty string or consist of …')
            )
    return causes


def _annotations(annotations: dict[str, str] | None) -> list[Cause]:
    causes, size = [], 0
    for key, value in (annotations or {}).items():
        size += len(key.encode()) + len(value.encode())
        if not is_label_key(key.lower()):
            causes.append(
                Cause(INVALID, "metadata.annotations", f'Invalid value: "{key}": name part must be a qualified name')
            )
    if size > _MOST_ANNOTATION_BYTES:
        words = f"Too long: may not be more than {_MOST_ANNOTATION_BYTES} bytes"
        causes.append(Cause("FieldValueTooLong", "metadata.annotations", words))
    return causes


def _owners(owners: list[JsonDict]) -> list[Cause]:
    causes = []
    for owner in owners:
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                words = "must not be empty" if key != "apiVersion" else "version must not be empty"
                causes.append(Cause(INVALID, f"metadata.ownerReferences.{key}", f'Invalid value: "": {words}'))
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        words = "Only one reference can have Controller set to true"
        causes.append(Cause(INVALID, "metadata.ownerReferences", f"Invalid value: {words}"))
    return causes


def check_metadata_update(new: JsonDict, old: JsonDict) -> list[Cause]:
    """What an update must not do to metadata."""
    causes = []
    for key in ("name", "namespace", "uid", "creationTimestamp"):
        if new.get(key) != old.get(key):
            causes.append(Cause(INVALID, f"metadata.{key}", f'Invalid value: "{new.get(key, "")}": field is immutable'))
    if old.get("deletionTimestamp"):
        fresh = [item for item in new.get("finalizers") or () if item not in (old.get("finalizers") or ())]
        if fresh:
            listed = ", ".join(f'"{item}"' for item in fresh)
            words = _NO_NEW_FINALIZERS
            causes.append(Cause(FORBIDDEN, "metadata.finalizers", f"{words}{{{listed}}}"))
    return causes
