"""Reading objects: lists with selectors and pages, tables, metadata only."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from . import tables
from .failures import ApiError, Cause, bad_request, internal, invalid
from .kinds import Resource
from .schema import JsonDict
from .selectors import FieldSelector, LabelSelector, fields_match, matches, parse_fields, parse_labels
from .store import Store, Stored, number


@dataclass(frozen=True, slots=True)
class View:
    """In what shape a client wants objects: as they are, as a table's rows, or only their metadata."""

    form: str = ""
    include: str = "Metadata"

    @classmethod
    def read(cls, accept: str, query: dict[str, str]) -> View:
        """From the Accept header: the first media type that this server can produce."""
        for part in accept.split(","):
            options = dict(piece.strip().partition("=")[::2] for piece in part.split(";")[1:])
            if options.get("as") in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
                form = options["as"].removesuffix("List")
                return cls(form, query.get("includeObject", "Metadata"))
            if part.split(";")[0].strip() in ("application/json", "*/*", "application/*"):
                return cls()
        return cls()


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a namespace (or of all) a request asks for."""

    namespace: str
    labels: LabelSelector = ()
    fields: FieldSelector = ()

    @classmethod
    def read(cls, resource: Resource, namespace: str, query: dict[str, str], name: str = "") -> Selection:
        """From the query. Raises ApiError 400. `name` narrows it to one object, as a watch of one does."""
        fields = parse_fields(query.get("fieldSelector", ""), resource.selectable)
        if name:
            fields = (*fields, *parse_fields(f"metadata.name={name}", ("metadata.name",)))
        return cls(namespace, parse_labels(query.get("labelSelector", "")), fields)

    def takes(self, resource: Resource, stored: Stored) -> bool:
        """Whether an object is asked for."""
        if self.namespace and stored.metadata.get("namespace") != self.namespace:
            return False
        if self.labels and not matches(self.labels, stored.metadata.get("labels")):
            return False
        return not self.fields or fields_match(self.fields, resource.outward(stored.obj))

    @property
    def narrow(self) -> bool:
        """Whether anything is filtered out."""
        return bool(self.labels or self.fields)


def check_version(query: dict[str, str], watching: bool) -> int:
    """The resourceVersion of a list or watch; 0 where none is given. Raises ApiError 422 and 500."""
    text, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    causes = []
    initial = "sendInitialEvents" in query
    if initial and not watching:
        causes.append(
            Cause("FieldValueForbidden", "sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list")
        )
    if initial and match != "NotOlderThan":
        words = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(Cause("FieldValueForbidden", "resourceVersionMatch", words))
    if match and not initial and watching:
        words = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(Cause("FieldValueForbidden", "resourceVersionMatch", words))
    elif match and not text and not watching:
        words = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        causes.append(Cause("FieldValueForbidden", "resourceVersionMatch", words))
    elif match not in ("", "Exact", "NotOlderThan"):
        words = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        causes.append(Cause("FieldValueNotSupported", "resourceVersionMatch", words))
    if causes:
        raise invalid("meta.k8s.io", "ListOptions", "", causes)
    try:
        return number(text) if text else 0
    except ValueError as problem:
        if not watching:
            raise bad_request(f'resourceVersion: Invalid value: "{text}": {problem}') from problem
        raise internal(f'resourceVersion: Invalid value: "{text}": {problem}') from problem


def too_new(version: int, current: int) -> ApiError:
    """504 for a resourceVersion that has not happened yet."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {version}, current: {current}"
    return ApiError(504, "Timeout", message, details)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list."""

    items: list[Stored]
    version: int
    token: str = ""
    remaining: int | None = None

    def metadata(self, custom: bool) -> JsonDict:
        """The list's metadata."""
        out: JsonDict = {"resourceVersion": str(self.version)}
        if self.token or custom:
            out["continue"] = self.token
        if self.remaining:
            out["remainingItemCount"] = self.remaining
        return out


def page(store: Store, resource: Resource, selection: Selection, query: dict[str, str]) -> Page:
    """The objects a list request asks for. Raises ApiError 400, 410 and 504."""
    version, start = check_version(query, watching=False), ""
    if version > store.version:
        raise too_new(version, store.version)
    exact = query.get("resourceVersionMatch") == "Exact"
    at = version if exact and version else store.version
    if query.get("continue"):
        at, start = _read_token(query["continue"])
    found = store.select_at(resource.storage, selection.namespace, at)
    items = [stored for stored in found if selection.takes(resource, stored)] if selection.narrow else found
    if start:
        items = [stored for stored in items if _place(stored) > start]
    try:
        limit = int(query.get("limit") or 0)
    except ValueError as problem:
        raise bad_request(f"invalid limit: {query['limit']}") from problem
    if not limit or len(items) <= limit:
        return Page(items, at)
    token = _token(at, _place(items[limit - 1]))
    return Page(items[:limit], at, token, None if selection.narrow else len(items) - limit)


def _place(stored: Stored) -> str:
    return f"{stored.metadata.get('namespace', '')}/{stored.metadata['name']}"


def _token(version: int, start: str) -> str:
    return (
        base64.urlsafe_b64encode(orjson.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start}))
        .decode()
        .rstrip("=")
    )


def _read_token(text: str) -> tuple[int, str]:
    try:
        content = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return int(content["rv"]), str(content["start"])
    except (binascii.Error, ValueError, KeyError, TypeError) as problem:
        raise bad_request(f"invalid continue token: continue key is not valid: {problem}") from problem


def encode_object(resource: Resource, stored: Stored, view: View, now: Callable[[], datetime]) -> bytes:
    """One object in the shape asked for."""
    if view.form == "Table":
        return orjson.dumps(
            tables.table(resource, [stored], {"resourceVersion": str(stored.version)}, view.include, now())
        )
    if view.form:
        return orjson.dumps(tables.partial(resource.outward(stored.obj)))
    if resource.from_storage is None and stored.obj["apiVersion"] == resource.api_version:
        return stored.encoded()
    return orjson.dumps(resource.outward(stored.obj))


def encode_list(resource: Resource, found: Page, view: View, now: Callable[[], datetime]) -> bytes:
    """A list in the shape asked for."""
    if view.form == "Table":
        return orjson.dumps(tables.table(resource, found.items, found.metadata(False), view.include, now()))
    metadata = found.metadata(resource.custom and not view.form)
    if view.form:
        items = [tables.partial(resource.outward(stored.obj)) for stored in found.items]
        body: dict[str, Any] = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
        }
        return orjson.dumps({**body, "items": items})
    head = orjson.dumps({"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(_item(resource, stored) for stored in found.items) + b"]}"


def _item(resource: Resource, stored: Stored) -> bytes:
    if resource.from_storage is not None or stored.obj["apiVersion"] != resource.api_version:
        return orjson.dumps(resource.outward(stored.obj))
    return stored.encoded() if resource.custom else stored.encoded_item()
