"""The resources the server knows: names, verbs, structure and rules of each."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .definitions import definition_of, schema_of
from .failures import Cause
from .schema import JsonDict, Schema

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")
BASE_FIELDS = ("metadata.name", "metadata.namespace")

Validator = Callable[[JsonDict, JsonDict | None, list[Cause]], list[Cause]]
Decode = Callable[[JsonDict], tuple[JsonDict, list[str]]]


@dataclass(slots=True)
class Rules:
    """What a kind asks for beyond its structure. All functions are pure, but for `prepare`, which may allocate.

    defaults(obj): fill in defaults, in place. prepare(obj): set what the server sets at creation, in place.
    prepare_update(new, old): the same for an update. check(obj) and check_update(new, old): what is wrong.
    counts(new, old): whether the change is one that moves `generation`.
    """

    defaults: Callable[[JsonDict], None] | None = None
    prepare: Callable[[JsonDict], None] | None = None
    prepare_update: Callable[[JsonDict, JsonDict], None] | None = None
    check: Callable[[JsonDict], list[Cause]] | None = None
    check_update: Callable[[JsonDict, JsonDict], list[Cause]] | None = None
    counts: Callable[[JsonDict, JsonDict], bool] | None = None
    name_pattern: str = "subdomain"
    fields: tuple[str, ...] = ()
    unconditional: bool = True
    create_on_update: bool = False
    returns_deleted: bool = False


@dataclass(slots=True, eq=False)
class Resource:
    """One resource in one version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    schema: Schema
    decode: Decode
    empty: Callable[[], JsonDict]
    rules: Rules = field(default_factory=Rules)
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    custom: bool = False
    storage: str = ""
    storage_api_version: str = ""
    columns: list[JsonDict] = field(default_factory=list)
    scale_paths: JsonDict | None = None
    validator: Validator | None = None
    to_storage: Callable[[JsonDict], JsonDict] | None = None
    from_storage: Callable[[JsonDict], JsonDict] | None = None

    @property
    def api_version(self) -> str:
        """`apps/v1`, or `v1` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def selectable(self) -> tuple[str, ...]:
        """The fields a field selector may name."""
        names = BASE_FIELDS if self.namespaced else BASE_FIELDS[:1]
        return (*names, *self.rules.fields)

    @property
    def has_status(self) -> bool:
        """Whether status is written through a subresource only."""
        return "status" in self.subresources

    @property
    def storage_hash(self) -> str:
        """The hash discovery gives for the version that is stored."""
        stored = self.storage_api_version or self.api_version
        group, _, version = stored.rpartition("/")
        digest = hashlib.sha256(f"{group}/{version}/{self.kind}".encode()).digest()
        return base64.b64encode(digest[:8]).decode()

    def outward(self, obj: JsonDict) -> JsonDict:
        """A stored object in this version."""
        if self.from_storage is not None:
            return self.from_storage(obj)
        if obj["apiVersion"] != self.api_version:
            return {**obj, "apiVersion": self.api_version}
        return obj

    def inward(self, obj: JsonDict) -> JsonDict:
        """An object of this version as it is stored."""
        if self.to_storage is not None:
            return self.to_storage(obj)
        if self.storage_api_version and obj["apiVersion"] != self.storage_api_version:
            return {**obj, "apiVersion": self.storage_api_version}
        return obj


class Registry:
    """All resources by path. Custom ones come and go with their definitions."""

    def __init__(self) -> None:
        self.by_path: dict[tuple[str, str, str], Resource] = {}
        self.group_order: list[str] = []
        self.changes = 0

    def add(self, resource: Resource) -> None:
        """Serve a resource."""
        if not resource.storage:
            resource.storage = f"{resource.group}/{resource.plural}"
        self.by_path[(resource.group, resource.version, resource.plural)] = resource
        if resource.group not in self.group_order:
            self.group_order.append(resource.group)
        self.changes += 1

    def remove(self, group: str, plural: str) -> None:
        """Serve a custom resource no more, in any version."""
        for path in [path for path in self.by_path if path[0] == group and path[2] == plural]:
            del self.by_path[path]
        if not any(path[0] == group for path in self.by_path):
            self.group_order.remove(group)
        self.changes += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource at a path."""
        return self.by_path.get((group, version, plural))

    def of_group(self, group: str) -> list[Resource]:
        """The resources of a group, in all versions."""
        return [resource for resource in self.by_path.values() if resource.group == group]

    def versions(self, group: str) -> list[str]:
        """The versions of a group, the preferred one first."""
        return sorted({resource.version for resource in self.of_group(group)}, key=version_priority)

    def stored(self) -> Iterable[Resource]:
        """One resource for each storage, the first version registered."""
        seen: dict[str, Resource] = {}
        for resource in self.by_path.values():
            if "list" in resource.verbs:
                seen.setdefault(resource.storage, resource)
        return seen.values()


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Kubernetes' order of versions: stable before beta before alpha, newer first."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if match is None:
        return (3, 0, 0, version)
    level = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (level, -int(match[1]), -int(match[3] or 0), version)


def empty_custom(api_version: str, kind: str) -> Callable[[], JsonDict]:
    """A maker of custom objects with nothing set."""

    def make() -> JsonDict:
        return {"apiVersion": api_version, "kind": kind, "metadata": {}}

    return make


def built_in_schema(group: str, version: str, kind: str) -> tuple[str, Schema]:
    """The published definition of a built-in kind: its name and structure."""
    name = definition_of(group, version, kind)
    return name, schema_of(name)


def dig(obj: Any, *path: str) -> Any:
    """The value at a path of keys, or None."""
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj
