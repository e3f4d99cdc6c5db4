"""What a request's path names."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """A path under /api or /apis, taken apart. Only the first parts may be set: a group, a version, a resource."""

    group: str
    version: str = ""
    plural: str = ""
    namespace: str = ""
    name: str = ""
    part: str = ""
    rest: str = ""
    core: bool = False


def parse(raw: str) -> ResourcePath | None:
    """Take a path apart; None if it is no resource's."""
    pieces = [unquote(piece) for piece in raw.strip("/").split("/")]
    if pieces[0] == "api":
        group, pieces, core = "", pieces[1:], True
    elif pieces[0] == "apis":
        group, pieces, core = (pieces[1] if len(pieces) > 1 else ""), pieces[2:], False
    else:
        return None
    version, pieces = (pieces[0], pieces[1:]) if pieces else ("", [])
    namespace = ""
    if len(pieces) > 2 and pieces[0] == "namespaces" and pieces[2] not in ("status", "finalize"):
        namespace, pieces = pieces[1], pieces[2:]
    plural, name, part = (*pieces, "", "", "")[:3]
    if plural == "namespaces":
        namespace = ""
    return ResourcePath(group, version, plural, namespace, name, part, "/".join(pieces[3:]), core)
