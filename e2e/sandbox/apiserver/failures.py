"""The errors of the Kubernetes API as exceptions that carry a `Status` object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
FORBIDDEN = "FieldValueForbidden"
DUPLICATE = "FieldValueDuplicate"
NOT_SUPPORTED = "FieldValueNotSupported"
NOT_FOUND = "FieldValueNotFound"
TYPE_INVALID = "FieldValueTypeInvalid"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
MANAGER_CONFLICT = "FieldManagerConflict"


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why an object is refused: what is wrong (`reason`), where (`field`) and in words (`message`)."""

    reason: str
    field: str
    message: str

    def text(self) -> str:
        """The line that stands for this cause in a message."""
        return f"{self.field}: {self.message}"

    def as_dict(self) -> dict[str, str]:
        """The entry of `details.causes`."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


class ApiError(Exception):
    """A request that failed; `status()` is the body of the answer."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers: dict[str, str] = {}

    def status(self) -> dict[str, Any]:
        """The `Status` object a client gets."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


class PageNotFoundError(Exception):
    """A path that leads nowhere: a plain-text 404, not a `Status`."""


def _details(name: str, group: str, kind: str) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    details["kind"] = kind
    return details


def qualified(group: str, resource: str) -> str:
    """`widgets.wire.example.dev`, or `pods` in the core group."""
    return f"{resource}.{group}" if group else resource


def not_found(group: str, resource: str, name: str) -> ApiError:
    """404 for an object that is not there."""
    return ApiError(
        404, "NotFound", f'{qualified(group, resource)} "{name}" not found', _details(name, group, resource)
    )


def no_such_page() -> ApiError:
    """404 for a path below a known built-in group that leads nowhere."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_supported(group: str, resource: str, verb: str) -> ApiError:
    """405 for a verb that a custom resource's part does not have."""
    message = f'{verb} is not supported on resources of kind "{qualified(group, resource)}"'
    return ApiError(405, "MethodNotAllowed", message, _details("", group, resource))


def already_exists(group: str, resource: str, name: str) -> ApiError:
    """409 for a name that is taken."""
    message = f'{qualified(group, resource)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(name, group, resource))


def conflict(group: str, resource: str, name: str, why: str) -> ApiError:
    """409 for a precondition that does not hold."""
    message = f'Operation cannot be fulfilled on {qualified(group, resource)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(name, group, resource))


def modified(group: str, resource: str, name: str) -> ApiError:
    """409 for a resourceVersion that is not the current one."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(group, resource, name, why)


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401 for a token nobody knows."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, resource: str, name: str, why: str) -> ApiError:
    """403 with the reason in words."""
    subject = qualified(group, resource) + (f' "{name}"' if name else "")
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", _details(name, group, resource))


def unsupported_media(accepted: Iterable[str]) -> ApiError:
    """415 with the list of what would do."""
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return ApiError(415, "UnsupportedMediaType", message)


def method_not_allowed() -> ApiError:
    """405."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def expired(message: str) -> ApiError:
    """410 for a resourceVersion that is no longer kept."""
    return ApiError(410, "Expired", message)


def unprocessable() -> ApiError:
    """422 for a JSON patch that cannot be applied."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def internal(message: str) -> ApiError:
    """500 without a reason, as plain Go errors become."""
    return ApiError(500, "", message)


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 with its causes; equal lines are said once."""
    lines = list(dict.fromkeys(cause.text() for cause in causes))
    text = lines[0] if len(lines) == 1 else "[" + ", ".join(lines) + "]"
    details = {key: value for key, value in _details(name, group, kind).items() if value}
    details["causes"] = [cause.as_dict() for cause in causes]
    return ApiError(422, "Invalid", f'{qualified(group, kind)} "{name}" is invalid: {text}', details)


def apply_conflict(message: str, causes: Sequence[Cause]) -> ApiError:
    """409 of server-side apply: fields that others own."""
    return ApiError(409, "Conflict", message, {"causes": [cause.as_dict() for cause in causes]})
