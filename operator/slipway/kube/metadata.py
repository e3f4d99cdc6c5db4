"""What an object's metadata says: identity, owner, version, and who else has written it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from slipway.api.spec import GROUP, KIND
from slipway.api.timestamps import parse_time

__all__ = [
    "APPLIED_HASH",
    "DEPLOYMENT_LABEL",
    "MANAGED_BY",
    "OWN_SELECTOR",
    "Key",
    "controller",
    "created_at",
    "described_owner",
    "foreign_manager",
    "is_older",
    "is_ours",
    "is_predecessors",
    "key_of",
    "label",
    "owner_key",
    "resource_version",
    "uid_of",
]

MANAGED_BY = "app.kubernetes.io/managed-by"
DEPLOYMENT_LABEL = "slipway.dev/model-deployment"
APPLIED_HASH = "slipway.dev/applied-hash"
OWN_SELECTOR = f"{MANAGED_BY}=slipway"


class Key(NamedTuple):
    """Place of an object within its kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def key_of(obj: Mapping[str, Any]) -> Key:
    """The object's own key."""
    metadata = obj["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


def uid_of(obj: Mapping[str, Any]) -> str:
    """The object's uid; empty before the API server has given it one."""
    return str(obj["metadata"].get("uid", ""))


def label(obj: Mapping[str, Any], name: str) -> str:
    """Value of a label, or an empty string."""
    return str((obj["metadata"].get("labels") or {}).get(name, ""))


def owner_key(obj: Mapping[str, Any]) -> Key | None:
    """The ModelDeployment that an object belongs to by its labels."""
    name = label(obj, DEPLOYMENT_LABEL)
    if not name or label(obj, MANAGED_BY) != "slipway":
        return None
    return Key(obj["metadata"].get("namespace", ""), name)


def controller(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference of the object's controller."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def described_owner(obj: Mapping[str, Any]) -> str:
    """Whose an object is that is not ours, as the end of a sentence about it."""
    owner, labelled = controller(obj), owner_key(obj)
    if owner is not None:
        return f"is controlled by {owner.get('kind')} {owner.get('name')}"
    if labelled is not None:
        return f"is labelled as one of ModelDeployment {labelled.name} but not controlled by it"
    return "was not made by Slipway"


def is_ours(obj: Mapping[str, Any], uid: str) -> bool:
    """Whether the ModelDeployment of that uid controls the object."""
    owner = controller(obj)
    return owner is not None and owner.get("uid") == uid


def is_predecessors(obj: Mapping[str, Any], name: str, uid: str) -> bool:
    """Whether the object belongs to a deleted ModelDeployment of the same name and will be collected."""
    owner = controller(obj)
    if owner is None or owner.get("uid") == uid:
        return False
    group = str(owner.get("apiVersion", "")).partition("/")[0]
    return group == GROUP and owner.get("kind") == KIND and owner.get("name") == name


def created_at(obj: Mapping[str, Any]) -> float:
    """Seconds since the epoch; 0 when unknown."""
    return parse_time(str(obj["metadata"].get("creationTimestamp") or "")) or 0.0


def resource_version(obj: Mapping[str, Any]) -> str:
    """The object's resource version."""
    return str(obj["metadata"].get("resourceVersion", ""))


def is_older(one: str, other: str) -> bool:
    """Whether a resource version is older than another; False when they cannot be compared.

    Kubernetes documents that they compare as integers (KEP-5504).
    """
    return one.isdigit() and other.isdigit() and int(one) < int(other)


def foreign_manager(obj: Mapping[str, Any], own: str) -> str:
    """The field manager, other than ``own``, that last wrote what an object asks for: all but its status."""
    entries = [
        entry
        for entry in obj["metadata"].get("managedFields") or ()
        if entry.get("manager") != own and entry.get("subresource") != "status"
    ]
    if not entries:
        return ""
    return str(max(entries, key=lambda entry: str(entry.get("time", ""))).get("manager", ""))
