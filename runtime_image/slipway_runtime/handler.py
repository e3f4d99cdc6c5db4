"""What a Python handler may import from its server."""

from __future__ import annotations

from http import HTTPStatus

_CLIENT_ERRORS = range(400, 500)


class BadRequest(Exception):  # noqa: N818 - what is wrong is the request, not the handler
    """Raised by a handler, in any step, for a request that it cannot answer through no fault of its own.

    The client is told the text, cut to 500 characters, with ``status`` over HTTP and INVALID_ARGUMENT (or what
    corresponds to the status) over gRPC. Of a batch, only the requests are refused that it is raised for when they are
    run alone. They count as their clients' errors, and not against the version in a rollout.
    """

    status = HTTPStatus.BAD_REQUEST

    def __init__(self, text: str = "the model does not take this request", status: int = 400) -> None:
        """``status`` is one of HTTP's codes from 400 to 499. Raises ValueError for another."""
        super().__init__(text)
        if status not in _CLIENT_ERRORS:
            raise ValueError(f"{status} does not tell a client that its request is wrong")
        self.status = HTTPStatus(status)
