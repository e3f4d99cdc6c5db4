"""What service accounts asked for: one line of JSON per request, in the form of Kubernetes' audit log."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from .access import Attributes, User

_ACCOUNTS = "system:serviceaccounts"


class AuditLog:
    """Appends to a file; the requests of people and of the sandbox's own parts are not recorded."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def record(self, user: User, wanted: Attributes) -> None:
        """Write down a request, whatever becomes of it."""
        if _ACCOUNTS not in user.groups:
            return
        if self._file is None:
            self._file = self._path.open("a", buffering=1)
        event = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "stage": "RequestReceived",
            "requestReceivedTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "verb": wanted.verb,
            "user": {"username": user.name, "groups": list(user.groups)},
            "objectRef": {
                "apiGroup": wanted.group,
                "resource": wanted.resource,
                "subresource": wanted.part,
                "namespace": wanted.namespace,
                "name": wanted.name,
            },
        }
        self._file.write(json.dumps(event) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
