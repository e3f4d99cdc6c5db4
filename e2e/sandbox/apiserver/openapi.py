"""OpenAPI v3: one document per group and version, for `kubectl explain`, server-side validation and apply."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import orjson

from .definitions import OBJECT_META, RELEASE, definition_of, definitions
from .failures import PageNotFoundError
from .kinds import Registry, Resource
from .schema import JsonDict

_REF = "#/components/schemas/"
_LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_API_VERSION = (
    "APIVersion defines the versioned schema of this representation of an object. Servers should "
    "convert recognized schemas to "
    f"the latest internal value, and may reject unrecognized values. More info: {_CONVENTIONS}#resources"
)
_KIND = (
    "Kind is a string value representing the REST resource this object represents. Servers may "
    "infer this from the endpoint the "
    f"client submits requests to. Cannot be updated. In CamelCase. More info: {_CONVENTIONS}#types-kinds"
)
_ACTIONS = {"get": "get", "put": "update", "patch": "patch", "delete": "delete", "post": "create"}
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")


class Documents:
    """The documents, made when asked for and kept until the resources change."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._made: dict[str, tuple[int, bytes]] = {}

    def _paths(self) -> Iterator[tuple[str, str, str]]:
        for group in self._registry.group_order:
            for version in self._registry.versions(group):
                yield (f"apis/{group}/{version}" if group else "api/v1"), group, version

    def index(self) -> JsonDict:
        """The answer to GET /openapi/v3."""
        plain = [".well-known/openid-configuration", "api", "apis", "openid/v1/jwks", "version"]
        built_in = [group for group in self._registry.group_order if group and not self._is_custom(group)]
        entries = {path: f"/openapi/v3/{path}" for path in [*plain, *(f"apis/{group}" for group in built_in)]}
        for path, group, version in self._paths():
            digest = hashlib.sha256(self.document(path, group, version)).hexdigest().upper()
            entries[path] = f"/openapi/v3/{path}?hash={digest}"
        return {"paths": {path: {"serverRelativeURL": url} for path, url in sorted(entries.items())}}

    def _is_custom(self, group: str) -> bool:
        return any(resource.custom for resource in self._registry.of_group(group))

    def find(self, path: str) -> bytes:
        """The document at /openapi/v3/PATH. Raises PageNotFoundError."""
        for known, group, version in self._paths():
            if known == path:
                return self.document(path, group, version)
        if path in ("api", "apis", "version") or path.removeprefix("apis/") in self._registry.group_order:
            return orjson.dumps(_document({}, {}))
        raise PageNotFoundError(path)

    def document(self, path: str, group: str, version: str) -> bytes:
        """One document, encoded."""
        made = self._made.get(path)
        if made is not None and made[0] == self._registry.changes:
            return made[1]
        resources = [r for r in self._registry.of_group(group) if r.version == version]
        body = orjson.dumps(_document(_operations(resources), _schemas(resources)))
        self._made[path] = (self._registry.changes, body)
        return body


def _document(paths: JsonDict, schemas: JsonDict) -> JsonDict:
    info = {"title": "Kubernetes", "version": RELEASE}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def schema_name(resource: Resource) -> str:
    """The name of a kind's schema: `dev.example.wire.v1.Widget`."""
    if not resource.custom:
        return definition_of(resource.group, resource.version, resource.kind)
    return f"{'.'.join(reversed(resource.group.split('.')))}.{resource.version}.{resource.kind}"


def _operations(resources: list[Resource]) -> JsonDict:
    paths: JsonDict = {}
    for resource in resources:
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else "/api/v1"
        base = (
            f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
        )
        paths[base] = _collection(resource)
        if resource.namespaced and "list" in resource.verbs:
            paths[f"{root}/{resource.plural}"] = {"get": _operation(resource, "list")}
        if "get" in resource.verbs:
            paths[f"{base}/{{name}}"] = {
                method: _operation(resource, _ACTIONS[method]) for method in ("get", "put", "patch", "delete")
            }
        for part, verbs in resource.subresources.items():
            methods = {"get": "get", "update": "put", "patch": "patch", "create": "post"}
            paths[f"{base}/{{name}}/{part}"] = {
                methods[verb]: _operation(resource, _ACTIONS[methods[verb]]) for verb in verbs
            }
    return paths


def _collection(resource: Resource) -> JsonDict:
    out: JsonDict = {}
    if "list" in resource.verbs:
        out["get"] = _operation(resource, "list")
    if "create" in resource.verbs:
        out["post"] = _operation(resource, "post")
    if "deletecollection" in resource.verbs:
        out["delete"] = _operation(resource, "deletecollection")
    return out


def _operation(resource: Resource, action: str) -> JsonDict:
    kind = {"group": resource.group, "kind": resource.kind, "version": resource.version}
    names: list[str] = []
    if action in ("post", "create", "update", "patch"):
        names += _WRITE_PARAMETERS
    if action == "patch":
        names.append("force")
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
    content = {"application/json": {"schema": {"$ref": _REF + schema_name(resource)}}}
    return {
        "x-kubernetes-action": "post" if action == "create" else action,
        "x-kubernetes-group-version-kind": kind,
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": content}},
    }


def _schemas(resources: list[Resource]) -> JsonDict:
    out: JsonDict = {}
    wanted = [_LIST_META, _DELETE_OPTIONS, OBJECT_META]
    for resource in resources:
        if resource.custom:
            out[schema_name(resource)] = _custom_schema(resource)
            out[schema_name(resource) + "List"] = _custom_list(resource)
        else:
            name = schema_name(resource)
            wanted += [name, name + "List"]
    while wanted:
        name = wanted.pop()
        if name in out or name not in definitions():
            continue
        out[name] = _converted(definitions()[name])
        wanted += _references(definitions()[name])
    return out


def _references(raw: Any) -> Iterator[str]:
    if isinstance(raw, dict):
        if isinstance(raw.get("$ref"), str):
            yield raw["$ref"].rpartition("/")[2]
        for value in raw.values():
            yield from _references(value)
    elif isinstance(raw, list):
        for value in raw:
            yield from _references(value)


def _converted(raw: Any) -> Any:
    """A published JSON schema as OpenAPI v3 says it: one type, references with company inside `allOf`."""
    if isinstance(raw, list):
        return [_converted(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    out: JsonDict = {}
    for key, value in raw.items():
        if key == "type" and isinstance(value, list):
            out[key] = next(entry for entry in value if entry != "null")
        elif key == "properties":
            out[key] = {name: _converted(child) for name, child in value.items()}
        elif key in ("description", "required") or key.startswith("x-"):
            out[key] = value
        elif key == "$ref":
            out[key] = _REF + value.rpartition("/")[2]
        else:
            out[key] = _converted(value)
    if "$ref" in out and len(out) > 1:
        out["allOf"] = [{"$ref": out.pop("$ref")}]
    return out


def _type_meta() -> JsonDict:
    return {
        "apiVersion": {"description": _API_VERSION, "type": "string"},
        "kind": {"description": _KIND, "type": "string"},
    }


def _selectable(resource: Resource) -> JsonDict:
    fields = [{"fieldPath": path} for path in resource.rules.fields]
    return {"x-kubernetes-selectable-fields": fields} if fields else {}


def _custom_schema(resource: Resource) -> JsonDict:
    raw = resource.schema.raw
    described = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"
    metadata = {"description": described, "allOf": [{"$ref": _REF + OBJECT_META}]}
    own = {
        key: _published(value)
        for key, value in raw.get("properties", {}).items()
        if key not in ("apiVersion", "kind", "metadata")
    }
    out = {key: value for key, value in raw.items() if key != "properties"}
    out["properties"] = {**_type_meta(), "metadata": metadata, **own}
    out["x-kubernetes-group-version-kind"] = [
        {"group": resource.group, "kind": resource.kind, "version": resource.version}
    ]
    return {**out, **_selectable(resource)}


def _published(raw: Any) -> Any:
    """A structural schema as it is published: an int-or-string spells out its two types."""
    if not isinstance(raw, dict):
        return raw
    out = dict(raw)
    if raw.get("x-kubernetes-int-or-string") and "anyOf" not in raw:
        out["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if isinstance(raw.get("properties"), dict):
        out["properties"] = {key: _published(value) for key, value in raw["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(raw.get(key), dict):
            out[key] = _published(raw[key])
    return out


def _custom_list(resource: Resource) -> JsonDict:
    items = {
        "description": f"List of {resource.plural}. More info: {_CONVENTIONS}",
        "type": "array",
        "items": {"$ref": _REF + schema_name(resource)},
    }
    described = f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds"
    metadata = {"description": described, "allOf": [{"$ref": _REF + _LIST_META}]}
    return {
        "description": f"{resource.list_kind} is a list of {resource.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {**_type_meta(), "items": items, "metadata": metadata},
        "x-kubernetes-group-version-kind": [
            {"group": resource.group, "kind": resource.list_kind, "version": resource.version}
        ],
        **_selectable(resource),
    }
