"""What can go wrong with a call to the API server, as a small tree of exceptions."""

import json
from typing import Any

__all__ = [
    "ApiError",
    "ConflictError",
    "ForbiddenError",
    "GoneError",
    "InvalidError",
    "NotFoundError",
    "TerminatingError",
    "UnavailableError",
    "failure_of",
]


class ApiError(Exception):
    """The API server refused a call or could not be reached."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        """HTTP status; 0 when there was no answer."""
        self.reason = reason
        """The API's machine-readable reason, such as AlreadyExists."""


class ConflictError(ApiError):
    """409: the object is not in the state that the call was made for, or exists already."""

    @property
    def already_exists(self) -> bool:
        """Whether a creation failed because the name is taken."""
        return self.reason == "AlreadyExists"


class NotFoundError(ApiError):
    """404: the object, its namespace or its kind does not exist."""


class ForbiddenError(ApiError):
    """401 or 403: the credentials do not allow the call."""


class TerminatingError(ForbiddenError):
    """403: nothing can be created in a namespace that is being deleted."""


class InvalidError(ApiError):
    """400, 413, 415 or 422: the object is not acceptable as it is; repeating the call is pointless.

    So is an applied object that does not fit the schema, though the API server answers 500 for it.
    """


class GoneError(ApiError):
    """410: the resource version or the continuation of a list has expired."""


class UnavailableError(ApiError):
    """429, 5xx, a time-out or a broken connection: the same call may succeed later."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    413: InvalidError,
    415: InvalidError,
    422: InvalidError,
    429: UnavailableError,
}


_UNTYPED = ("failed to create typed patch object", "failed to convert new object")
"""Begin the refusals of an applied object that does not fit its schema, or has a quantity or a number that is none:
the API server answers them with 500."""

_TERMINATING = "NamespaceTerminating"
"""Cause that the API server gives for refusing to create something in a namespace that is being deleted."""


def _causes(document: Any) -> set[str]:
    details = document.get("details") if isinstance(document, dict) else None
    causes = details.get("causes") if isinstance(details, dict) else None
    return {str(cause.get("reason")) for cause in causes or () if isinstance(cause, dict)}


def failure_of(status: int, body: bytes) -> ApiError:
    """The exception for an answer with an error status; the message is the API server's own where it gave one."""
    reason, message = "", body.decode("utf-8", "replace").strip()[:1000]
    try:
        document: Any = json.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict) and document.get("kind") == "Status":
        reason = str(document.get("reason", ""))
        message = str(document.get("message", "")) or message
    kind = _BY_STATUS.get(status) or (UnavailableError if status >= 500 else ApiError)
    if message.startswith(_UNTYPED):
        kind = InvalidError
    if kind is ForbiddenError and _TERMINATING in _causes(document):
        kind = TerminatingError
    return kind(message or f"HTTP {status}", status=status, reason=reason)
