"""HTTP under a policy: which addresses may be reached, and where redirects may lead."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from slipway_runtime.refusal import ExitCode, Refusal

Response = urllib3.BaseHTTPResponse

MAX_REDIRECTS = 5
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
_NOT_FOUND = (404, 410)
_DENIED = (401, 403)
_OK = 200


class AddressRefused(Exception):  # noqa: N818 - the policy's answer, not a defect
    """The host has an address that the policy forbids."""


class Client:
    """Requests to the hosts a user named, and from there to public addresses only.

    A host named by the URI or by a setting may have a private address, since object stores often run in the same
    cluster. A host that only a redirect or a document named must have a public one. Link-local addresses, where
    clouds keep their metadata, are never reached. The address is judged after the connection is made, so a name
    that changes its address gains nothing.
    """

    def __init__(self, connect_seconds: float = 10.0, read_seconds: float = 60.0) -> None:
        self._named: set[str] = set()
        # Retries belong to the transfer, which knows what it has already.
        self.pools = urllib3.PoolManager(
            retries=False, timeout=urllib3.Timeout(connect=connect_seconds, read=read_seconds)
        )
        self.pools.pool_classes_by_scheme = _pool_classes(self._judge)

    def trust(self, url: str) -> None:
        """The user named the host of ``url``."""
        self._named.add(_host(url))

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
            target = urljoin(url, location)
            self._check_redirect(url, target)
            if _origin(target) != _origin(url):
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
            except ValueError as error:
                raise Refusal("FetchFailed", f"{_host(url)} did not answer with JSON", ExitCode.INTERNAL) from error

    def _request(self, url: str, headers: Mapping[str, str]) -> Response:
        try:
            return self.pools.request("GET", url, headers=dict(headers), redirect=False, preload_content=False)
        except AddressRefused as error:
            raise Refusal("FetchRefused", str(error)) from error
        except urllib3.exceptions.LocationValueError as error:
            raise Refusal("SchemeNotSupported", "the URL cannot be read") from error

    def _check_redirect(self, source: str, target: str) -> None:
        before, after = urlsplit(source).scheme, urlsplit(target).scheme
        if after not in ("http", "https") or (before == "https" and after != "https"):
            raise Refusal("FetchRefused", f"a redirect from {before} to {after} is not followed")

    def _judge(self, host: str, address: str) -> None:
        found = ipaddress.ip_address(address.partition("%")[0])
        mapped = getattr(found, "ipv4_mapped", None) or found
        if mapped.is_link_local or mapped.is_multicast or mapped.is_unspecified:
            raise AddressRefused(f"{host} has a link-local or multicast address")
        if not mapped.is_global and host.lower() not in self._named:
            raise AddressRefused(f"{host}, to which another server pointed, has a private address")


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


def _pool_classes(judge: Callable[[str, str], None]) -> dict[str, type[HTTPConnectionPool]]:
    """urllib3's pools with connections that ask ``judge(host, address)`` before anything is sent."""

    class CheckedConnection(HTTPConnection):
        def _new_conn(self) -> Any:
            return _judged(super()._new_conn(), self.host, judge)

    class CheckedSecureConnection(HTTPSConnection):
        def _new_conn(self) -> Any:
            return _judged(super()._new_conn(), self.host, judge)

    class CheckedPool(HTTPConnectionPool):
        ConnectionCls = CheckedConnection

    class CheckedSecurePool(HTTPSConnectionPool):
        ConnectionCls = CheckedSecureConnection

    return {"http": CheckedPool, "https": CheckedSecurePool}


def _judged(connection: Any, host: str, judge: Callable[[str, str], None]) -> Any:
    try:
        judge(host.strip("[]"), connection.getpeername()[0])
    except BaseException:
        connection.close()
        raise
    return connection


def _host(url: str) -> str:
    return (urlsplit(url).hostname or "").lower()


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, _host(url), parts.port
