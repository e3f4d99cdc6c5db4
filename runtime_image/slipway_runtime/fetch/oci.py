"""``oci://registry/repository:tag`` or ``@sha256:…``: artefacts of an OCI registry, files named as ORAS names them."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any
from urllib.parse import urlencode, urlsplit

from slipway_runtime.fetch.client import Client, check_status, read_bounded
from slipway_runtime.fetch.credentials import Credentials
from slipway_runtime.fetch.listing import Listing, RemoteFile, Request
from slipway_runtime.refusal import ExitCode, Refusal

_URI = re.compile(
    r"oci://(?P<host>[^/]+)/(?P<name>[a-z0-9._/-]+?)(?::(?P<tag>[\w.-]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_ACCEPT = f"{_MANIFEST}, application/vnd.docker.distribution.manifest.v2+json"
_TITLE = "org.opencontainers.image.title"
_DENIED = 401


class _Registry:
    """Requests to one repository, with the token the registry asks for."""

    def __init__(self, host: str, name: str, client: Client, credentials: Credentials) -> None:
        scheme = "http" if credentials.get("OCI_PLAIN_HTTP") == "true" else "https"
        self.base = f"{scheme}://{host}/v2/{name}"
        self._client = client
        self._basic = credentials.basic(host)
        self._token = ""
        client.trust(self.base)

    def headers(self) -> dict[str, str]:
        if self._token:
            return {"Authorization": f"Bearer {self._token}"}
        return {"Authorization": f"Basic {self._basic}"} if self._basic else {}

    def manifest(self, reference: str) -> bytes:
        """The manifest's bytes. Raises Refusal."""
        url = f"{self.base}/manifests/{reference}"
        for _ in range(2):
            with self._client.get(url, {"Accept": _ACCEPT, **self.headers()}) as response:
                challenge = response.headers.get("WWW-Authenticate") or ""
                if response.status != _DENIED or self._token or not challenge.lower().startswith("bearer "):
                    check_status(response, url)
                    return read_bounded(response)
            self._authenticate(challenge)
        raise AssertionError("a second try has a token")

    def _authenticate(self, challenge: str) -> None:
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        realm = fields.pop("realm", "")
        if urlsplit(realm).scheme != urlsplit(self.base).scheme:
            raise Refusal("FetchRefused", "the registry names no token server that can be used")
        query = urlencode({key: fields[key] for key in ("service", "scope") if key in fields})
        headers = {"Authorization": f"Basic {self._basic}"} if self._basic else {}
        document = self._client.document(f"{realm}?{query}", headers)
        self._token = str(document.get("token") or document.get("access_token") or "")


def list_files(uri: str, client: Client, credentials: Credentials) -> Listing:
    """The titled layers of the manifest. Raises Refusal, also for images, whose layers have no titles."""
    match = _URI.fullmatch(uri)
    if match is None:
        raise Refusal("BadURI", "write oci://registry/repository:tag or …@sha256:digest", ExitCode.BAD_ARGUMENTS)
    registry = _Registry(match["host"], match["name"], client, credentials)
    content = registry.manifest(match["digest"] or match["tag"] or "latest")
    if match["digest"] and f"sha256:{hashlib.sha256(content).hexdigest()}" != match["digest"]:
        raise Refusal("DigestMismatch", "the registry gave another manifest than the one of the digest")
    try:
        files = tuple(_file(registry, layer) for layer in json.loads(content)["layers"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = "this is no OCI artefact with titled files (push it with oras, not as an image)"
        raise Refusal("NotAModel", text) from error
    return Listing(files, folder=len(files) > 1)


def _file(registry: _Registry, layer: dict[str, Any]) -> RemoteFile:
    algorithm, _, digest = layer["digest"].partition(":")
    if algorithm != "sha256":
        raise ValueError(algorithm)
    title: str = layer["annotations"][_TITLE]
    url = f"{registry.base}/blobs/sha256:{digest}"
    return RemoteFile(title, lambda: Request(url, registry.headers()), int(layer["size"]), digest)
