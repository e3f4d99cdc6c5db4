"""Errors a client is told about, each with its HTTP status."""

from __future__ import annotations

from http import HTTPStatus

from slipway_runtime.handler import BadRequest

_LONGEST_TEXT = 500


class RequestFailure(Exception):  # noqa: N818 - half of them are answers, not errors of ours
    """A request that gets an error answer: ``status`` and ``text`` are what the client sees.

    ``retry_after`` (whole seconds) is sent as the header of that name. Texts may name what the client asked for,
    but are cut; they never repeat its data and never name paths or internals of the server. ``headers`` go with an
    answer over HTTP.
    """

    def __init__(
        self,
        status: HTTPStatus,
        text: str,
        retry_after: int | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        # Over gRPC it goes into a header, of which clients take 8 KiB.
        text = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
        super().__init__(text)
        self.status = status
        self.text = text
        self.retry_after = retry_after
        self.headers = headers


def invalid(text: str) -> RequestFailure:
    """400: the client's request cannot be understood or does not fit the model."""
    return RequestFailure(HTTPStatus.BAD_REQUEST, text)


def unauthenticated(text: str) -> RequestFailure:
    """401: the request does not say, or prove, whose it is."""
    return RequestFailure(HTTPStatus.UNAUTHORIZED, text)


def forbidden(text: str) -> RequestFailure:
    """403: the server was not told to allow this."""
    return RequestFailure(HTTPStatus.FORBIDDEN, text)


def not_found(text: str) -> RequestFailure:
    """404: no such model, version or path."""
    return RequestFailure(HTTPStatus.NOT_FOUND, text)


def too_large(text: str) -> RequestFailure:
    """413: more bytes than the server accepts."""
    return RequestFailure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)


def overloaded(text: str) -> RequestFailure:
    """429: the queue or the concurrency limit is full; come back shortly."""
    return RequestFailure(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after=1)


def unavailable(text: str) -> RequestFailure:
    """503: not ready yet, or draining; another pod may answer."""
    return RequestFailure(HTTPStatus.SERVICE_UNAVAILABLE, text, retry_after=1)


def timed_out() -> RequestFailure:
    """504: the deadline passed while the request was queued or running."""
    return RequestFailure(HTTPStatus.GATEWAY_TIMEOUT, "the request did not finish within its timeout")


def unsupported(text: str) -> RequestFailure:
    """501: a part of the protocol this server does not offer."""
    return RequestFailure(HTTPStatus.NOT_IMPLEMENTED, text)


def model_failed() -> RequestFailure:
    """500: the model raised; what it said is in the server's log only."""
    return RequestFailure(HTTPStatus.INTERNAL_SERVER_ERROR, "the model failed on this request")


def refused(error: BadRequest) -> RequestFailure:
    """400, or what its handler says: the model does not take this request."""
    retry_after = 1 if error.status is HTTPStatus.TOO_MANY_REQUESTS else None
    return RequestFailure(error.status, str(error), retry_after)
