"""CustomResourceDefinitions: their rules, and the resources they bring."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from . import customs, jsonpaths, structural, values
from .cel import rules as cel_rules
from .definitions import OBJECT_META, definitions, object_meta
from .failures import INVALID, NOT_SUPPORTED, REQUIRED, TOO_LONG, TOO_MANY, TYPE_INVALID, Cause
from .kinds import STATUS_VERBS, Resource, Rules, empty_custom
from .names import is_label_name, is_subdomain
from .schema import MISSING, JsonDict, Schema, from_custom
from .workloads import spec_changed

_BLOCKING = {REQUIRED, TOO_LONG, TOO_MANY, TYPE_INVALID, NOT_SUPPORTED}
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_AGE = str(definitions()[OBJECT_META]["properties"]["creationTimestamp"]["description"])
_APPROVED = "api-approved.kubernetes.io"
_UNCHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


def _default(definition: JsonDict) -> None:
    spec = definition["spec"]
    names = spec["names"]
    if names.get("kind"):
        if not names.get("singular"):
            names["singular"] = names["kind"].lower()
        if not names.get("listKind"):
            names["listKind"] = f"{names['kind']}List"
    spec.setdefault("conversion", {"strategy": "None"})
    for version in spec.get("versions") or ():
        if (version.get("subresources") or {}).get("status") is not None:
            version["subresources"]["status"] = {}


def _prepare(definition: JsonDict) -> None:
    definition["metadata"]["generation"] = 1
    stored = [version["name"] for version in definition["spec"].get("versions") or () if version.get("storage")]
    names = {"plural": "", "kind": ""}
    definition["status"] = {"conditions": None, "acceptedNames": names, "storedVersions": stored or None}


def _prepare_update(new: JsonDict, old: JsonDict) -> None:
    stored = list(old.get("status", {}).get("storedVersions") or [])
    for version in new["spec"].get("versions") or ():
        if version.get("storage") and version["name"] not in stored:
            stored.append(version["name"])
    new["status"] = {**new.get("status", {}), "storedVersions": stored}


def _check(definition: JsonDict) -> list[Cause]:
    spec, causes = definition["spec"], []
    names, group = spec["names"], spec.get("group", "")
    wanted = f"{names.get('plural', '')}.{group}"
    name = definition["metadata"].get("name", "")
    if name != wanted:
        words = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        causes.append(Cause(INVALID, "metadata.name", words))
    if not group:
        causes.append(Cause(REQUIRED, "spec.group", "Required value"))
    elif not is_subdomain(group) or "." not in group:
        causes.append(
            Cause(INVALID, "spec.group", f'Invalid value: "{group}": should be a domain with at least one dot')
        )
    if re.search(r"(^|\.)(k8s|kubernetes)\.io$", group) and not (definition["metadata"].get("annotations") or {}).get(
        _APPROVED
    ):
        words = "Required value: protected groups must have approval annotation"
        causes.append(Cause(REQUIRED, f"metadata.annotations[{_APPROVED}]", words))
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        words = f'Unsupported value: "{spec.get("scope", "")}": supported values: "Cluster", "Namespaced"'
        causes.append(Cause(NOT_SUPPORTED, "spec.scope", words))
    causes += _check_names(names)
    causes += _check_versions(definition)
    return causes


def _check_names(names: JsonDict) -> list[Cause]:
    causes = []
    for key in ("plural", "kind"):
        if not names.get(key):
            causes.append(Cause(REQUIRED, f"spec.names.{key}", "Required value"))
    for key in ("plural", "singular"):
        if names.get(key) and not is_label_name(names[key]):
            words = f"Invalid value: {values.shown(names[key])}: a DNS-1035 label is required"
            causes.append(Cause(INVALID, f"spec.names.{key}", words))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        words = f"Invalid value: {values.shown(names['listKind'])}: kind and listKind may not be the same"
        causes.append(Cause(INVALID, "spec.names.listKind", words))
    return causes


def _check_versions(definition: JsonDict) -> list[Cause]:
    versions = definition["spec"].get("versions") or []
    causes: list[Cause] = []
    if not versions:
        return [Cause(REQUIRED, "spec.versions", "Required value: must have at least one version")]
    seen: set[str] = set()
    for index, version in enumerate(versions):
        name, where = version.get("name", ""), f"spec.versions[{index}]"
        if not is_label_name(name):
            causes.append(
                Cause(INVALID, f"{where}.name", f"Invalid value: {values.shown(name)}: a DNS-1035 label is required")
            )
        if name in seen:
            causes.append(Cause(INVALID, f"{where}.name", f"Invalid value: {values.shown(name)}: must be unique"))
        seen.add(name)
    if sum(bool(version.get("storage")) for version in versions) != 1:
        listed = values.shown([version.get("name") for version in versions])
        words = f"Invalid value: {listed}: must have exactly one version marked as storage version"
        causes.append(Cause(INVALID, "spec.versions", words))
    if not definition.get("status", {}).get("storedVersions"):
        causes.append(
            Cause(INVALID, "status.storedVersions", "Invalid value: null: must have at least one stored version")
        )
    if causes:
        return causes
    shared = all(version.get("schema") == versions[0].get("schema") for version in versions)
    for index, version in enumerate(versions):
        if shared and index:
            break
        causes += _check_schema(
            version, f"spec.versions[{index}]", "spec.validation" if shared else f"spec.versions[{index}].schema"
        )
    return causes


def _check_schema(version: JsonDict, path: str, schema_path: str) -> list[Cause]:
    raw = (version.get("schema") or {}).get("openAPIV3Schema")
    if raw is None:
        return [Cause(REQUIRED, f"{path}.schema.openAPIV3Schema", "Required value: schemas are required")]
    where = f"{schema_path}.openAPIV3Schema"
    causes = structural.check(raw, where)
    if not causes:
        causes += cel_rules.check_schema(from_custom(raw, object_meta()), where)
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        causes += _check_column(column, f"{path}.additionalPrinterColumns[{index}]")
    for index, field in enumerate(version.get("selectableFields") or ()):
        causes += _check_selectable(raw, field, f"{path}.selectableFields[{index}].jsonPath")
    scale = (version.get("subresources") or {}).get("scale")
    if scale is not None:
        for key, prefix in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
            if not scale.get(key, "").startswith(prefix):
                words = f"Invalid value: {values.shown(scale.get(key, ''))}: should be a json path under {prefix[:-1]}"
                causes.append(Cause(INVALID, f"{path}.subresources.scale.{key}", words))
    return causes


def _check_column(column: JsonDict, path: str) -> list[Cause]:
    causes = []
    for key in ("name", "type", "jsonPath"):
        if not column.get(key):
            causes.append(Cause(REQUIRED, f"{path}.{key}", "Required value"))
    if column.get("type") and column["type"] not in _COLUMN_TYPES:
        words = f"Invalid value: {values.shown(column['type'])}: must be one of {','.join(_COLUMN_TYPES)}"
        causes.append(Cause(INVALID, f"{path}.type", words))
    try:
        jsonpaths.steps(column.get("jsonPath") or ".metadata")
    except ValueError as problem:
        causes.append(
            Cause(INVALID, f"{path}.jsonPath", f"Invalid value: {values.shown(column['jsonPath'])}: {problem}")
        )
    return causes


def _check_selectable(raw: JsonDict, field: JsonDict, path: str) -> list[Cause]:
    node: Any = raw
    try:
        for key in jsonpaths.field_path(field["jsonPath"]):
            node = node.get("properties", {})[key]
    except (ValueError, KeyError, AttributeError) as problem:
        return [
            Cause(INVALID, path, f"Invalid value: {values.shown(field.get('jsonPath'))}: is an invalid path: {problem}")
        ]
    if node.get("type") not in ("boolean", "integer", "string"):
        return [
            Cause(
                INVALID,
                path,
                f"Invalid value: {values.shown(field['jsonPath'])}: must point to a boolean, integer or string",
            )
        ]
    return []


def _check_update(new: JsonDict, old: JsonDict) -> list[Cause]:
    causes = []
    for keys in (("group",), ("scope",), ("names", "plural"), ("names", "kind")):
        before: Any = old["spec"]
        after: Any = new["spec"]
        for key in keys:
            before, after = before.get(key), after.get(key)
        established = any(
            c["type"] == "Established" and c["status"] == "True" for c in old["status"].get("conditions") or ()
        )
        if before != after and (established or keys == ("group",)):
            words = f"Invalid value: {values.shown(after)}: field is immutable"
            causes.append(Cause(INVALID, "spec." + ".".join(keys), words))
    served = {version["name"] for version in new["spec"].get("versions") or ()}
    for index, name in enumerate(new.get("status", {}).get("storedVersions") or ()):
        if name not in served:
            words = f"Invalid value: {values.shown(name)}: must appear in spec.versions"
            causes.append(Cause(INVALID, f"status.storedVersions[{index}]", words))
    return causes


RULES = Rules(
    defaults=_default,
    prepare=_prepare,
    prepare_update=_prepare_update,
    check=_check,
    check_update=_check_update,
    counts=spec_changed,
    unconditional=False,
)


def resources(definition: JsonDict) -> list[Resource]:
    """The resources a definition brings, one for each served version."""
    spec = definition["spec"]
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    return [
        _resource(spec, version, f"{spec['group']}/{storage}") for version in spec["versions"] if version.get("served")
    ]


def _resource(spec: JsonDict, version: JsonDict, storage_api_version: str) -> Resource:
    names, parts = spec["names"], version.get("subresources") or {}
    raw = version["schema"]["openAPIV3Schema"]
    schema = from_custom(raw, object_meta())
    api_version = f"{spec['group']}/{version['name']}"
    subresources = {part: tuple(STATUS_VERBS) for part in ("status", "scale") if parts.get(part) is not None}
    fields = tuple(".".join(jsonpaths.field_path(field["jsonPath"])) for field in version.get("selectableFields") or ())
    columns = version.get("additionalPrinterColumns") or [
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": _AGE}
    ]
    return Resource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        schema=schema,
        decode=_decoder(schema, names["kind"]),
        empty=empty_custom(api_version, names["kind"]),
        rules=Rules(fields=fields, unconditional=False),
        singular=names.get("singular", ""),
        list_kind=names["listKind"],
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=subresources,
        custom=True,
        storage_api_version=storage_api_version,
        columns=columns,
        scale_paths=parts.get("scale"),
        validator=_validator(schema, parts.get("scale"), cel_rules.compile_schema(schema)),
    )


def _decoder(schema: Schema, kind: str) -> Callable[[JsonDict], tuple[JsonDict, list[str]]]:
    def decode(value: JsonDict) -> tuple[JsonDict, list[str]]:
        return customs.decode(schema, value, kind)

    return decode


_SCALE_TYPES: dict[str, type] = {"specReplicasPath": int, "statusReplicasPath": int, "labelSelectorPath": str}


def _validator(
    schema: Schema, scale: JsonDict | None, rules: cel_rules.RuleSet
) -> Callable[[JsonDict, JsonDict | None, list[Cause]], list[Cause]]:
    def validate(new: JsonDict, old: JsonDict | None, prior: list[Cause]) -> list[Cause]:
        causes = values.validate(schema, new, "", MISSING if old is None else old)
        causes += _check_scale(scale, new)
        causes += values.duplicates(schema, new)
        if any(cause.reason in _BLOCKING for cause in [*prior, *causes]):
            if rules:
                causes.append(Cause(INVALID, "<nil>", _UNCHECKED))
        else:
            causes += rules.check(new, old)
        return causes

    return validate


def _check_scale(scale: JsonDict | None, obj: JsonDict) -> list[Cause]:
    """What the scale subresource could not read: another type where it looks, or on the way there."""
    causes = []
    for key, wanted in _SCALE_TYPES.items():
        path = str((scale or {}).get(key) or "")
        value = _value_at(obj, path) if path else None
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, wanted):
            words = f"Invalid value: 0: {path} accessor error: {value!r} is of another type"
        elif isinstance(value, int) and value < 0:
            words = f"Invalid value: {value}: should be a non-negative integer"
        else:
            continue
        causes.append(Cause(INVALID, path, words))
    return causes


def _value_at(node: Any, path: str) -> Any:
    """The value at a path of fields, or what stands in its way; None where there is nothing."""
    for name in jsonpaths.field_path(path):
        if not isinstance(node, dict):
            return _Blocked() if node is not None else None
        node = node.get(name)
    return node


class _Blocked:
    """In place of a value: the path leads through something that has no fields."""
