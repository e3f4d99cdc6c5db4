"""HTTP under a policy: which addresses may be reached, and where redirects may lead."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urljoin

import urllib3

from slipway_runtime.fetch.addresses import AddressRefused, judge, pool_classes
from slipway_runtime.fetch.listing import MAX_PAGES
from slipway_runtime.refusal import ExitCode, Refusal

Response = urllib3.BaseHTTPResponse

MAX_REDIRECTS = 5
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
_NOT_FOUND = (404, 410)
_DENIED = (401, 403)
_OK = 200
_LONGEST_NUMBER = 18


class Client:
    """Requests to the hosts a user named, and from there to public addresses only.

    A host named by the URI or by a setting may have a private address, since object stores often run in the same
    cluster. A host that only a redirect or a document named must have a public one. Link-local addresses, where
    clouds keep their metadata, are never reached. Connections are made to the addresses that were judged, so a name
    that changes its address gains nothing.
    """

    def __init__(self, connect_seconds: float = 10.0, read_seconds: float = 60.0) -> None:
        self._named: set[str] = set()
        # Retries belong to the transfer, which knows what it has already.
        self.pools = urllib3.PoolManager(
            retries=False, timeout=urllib3.Timeout(connect=connect_seconds, read=read_seconds)
        )
        self.pools.pool_classes_by_scheme = pool_classes(self._judge)
        self._all_named = False
        self.bounded_pools = _BoundedPools(self.pools)

    def trust(self, url: str) -> None:
        """The user named the host of ``url``."""
        if not self._all_named:
            self._named.add(_host(url))

    def trust_no_more(self) -> None:
        """Whatever is named from now on is named by a server that was asked, not by the user."""
        self._all_named = True

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Iterator[Response]:
        """The streamed response behind all redirects, of any status.

        Raises Refusal for what the policy forbids, and urllib3.exceptions.HTTPError for failures of the network.
        """
        sent = {"Accept-Encoding": "identity", "User-Agent": "slipway-runtime", **(headers or {})}
        for _ in range(MAX_REDIRECTS + 1):
            response = self._request(url, sent)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or not location:
                try:
                    yield response
                finally:
                    response.close()
                return
            response.close()
            target = joined(url, location)
            self._check_redirect(url, target)
            if origin(target) != origin(url):
                sent = {name: value for name, value in sent.items() if name.lower() != "authorization"}
            url = target
        raise Refusal("FetchRefused", f"more than {MAX_REDIRECTS} redirects")

    def document(self, url: str, headers: Mapping[str, str] | None = None) -> Any:
        """The JSON at ``url``. Raises Refusal as ``check_status`` does, and for what is no JSON."""
        return self.answer(url, headers)[0]

    def answer(self, url: str, headers: Mapping[str, str] | None = None) -> tuple[Any, Mapping[str, str]]:
        """The JSON at ``url`` and the headers of the response. Raises Refusal as ``document`` does."""
        with self.get(url, headers) as response:
            check_status(response, url)
            try:
                return json.loads(read_bounded(response)), response.headers
            except (ValueError, RecursionError) as error:
                raise Refusal("FetchFailed", f"{_host(url)} did not answer with JSON", ExitCode.INTERNAL) from error

    def _request(self, url: str, headers: Mapping[str, str]) -> Response:
        try:
            return self.pools.request("GET", url, headers=dict(headers), redirect=False, preload_content=False)
        except AddressRefused as error:
            raise Refusal("FetchRefused", str(error)) from error
        except urllib3.exceptions.LocationValueError as error:
            raise Refusal("SchemeNotSupported", "the URL cannot be read") from error

    def _check_redirect(self, source: str, target: str) -> None:
        before, after = _parsed(source)[0], _parsed(target)[0]
        if after not in ("http", "https") or (before == "https" and after != "https"):
            raise Refusal("FetchRefused", f"a redirect from {before} to {after} is not followed")

    def _judge(self, host: str, address: str) -> None:
        judge(host, address, named=host.lower() in self._named)


class _BoundedPools(urllib3.PoolManager):
    """For a library that reads whole answers: they have a bound, and there are not too many of them."""

    def __init__(self, pools: urllib3.PoolManager) -> None:
        super().__init__(retries=False)
        self._pools = pools
        self._left = MAX_PAGES

    def urlopen(self, method: str, url: str, redirect: bool = True, **given: Any) -> Response:  # type: ignore[override]
        """As that of the class above. Raises Refusal for too long an answer, and for too many."""
        self._left -= 1
        if self._left < 0:
            raise Refusal("FetchRefused", f"the listing takes more than {MAX_PAGES} requests")
        response = self._pools.urlopen(method, url, redirect=False, **{**given, "preload_content": False})
        try:
            response._body = read_bounded(response)  # type: ignore[attr-defined]
        finally:
            response.close()
        return response


def check_status(response: Response, url: str) -> None:
    """Raises Refusal for a response that is no success: exit code 66 for what is not there."""
    host, status = _host(url), response.status
    if status == _OK:
        return
    if status in _NOT_FOUND:
        raise Refusal("ArtefactNotFound", f"{host} has no such artefact", ExitCode.ARTEFACT_NOT_FOUND)
    if status in _DENIED:
        raise Refusal("FetchDenied", f"{host} answered {status}: check the storage secret")
    raise Refusal("FetchFailed", f"{host} answered {status}", ExitCode.INTERNAL)


def read_bounded(response: Response, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
    """The body of a response. Raises Refusal when it is longer than ``limit`` bytes."""
    body = response.read(limit + 1)
    if len(body) > limit:
        raise Refusal("FetchRefused", f"the answer is longer than {limit} bytes")
    return bytes(body)


def whole_number(text: str | None) -> int | None:
    """The number that a header says; None where it says none that can be meant."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else None


def _host(url: str) -> str:
    """The host as it will be connected to: other parsers read backslashes and more than one @ in other ways."""
    return _parsed(url)[1]


def joined(url: str, reference: str) -> str:
    """What a reference in the answer from ``url`` stands for. Raises Refusal for what is none."""
    try:
        return urljoin(url, reference)
    except ValueError as error:
        raise Refusal("FetchRefused", f"{_host(url)} points to what is no URL") from error


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port: what has to be the same for credentials to be sent. Raises Refusal for what is no URL."""
    return _parsed(url)


def _parsed(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port. Raises Refusal for what is no URL."""
    try:
        found = urllib3.util.parse_url(url)
    except urllib3.exceptions.LocationParseError as error:
        raise Refusal("SchemeNotSupported", "the URL cannot be read") from error
    return found.scheme or "", (found.host or "").strip("[]").lower(), found.port
