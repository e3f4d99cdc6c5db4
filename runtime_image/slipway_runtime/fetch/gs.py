"""``gs://bucket/object`` or a prefix: Google Cloud Storage by its JSON API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import google.auth
import google.auth.exceptions
import urllib3
from google.auth.transport.urllib3 import Request as AuthRequest
from google.oauth2 import service_account

from slipway_runtime.fetch.client import Client
from slipway_runtime.fetch.credentials import Credentials
from slipway_runtime.fetch.listing import Listing, RemoteFile, Request, bounded, pages
from slipway_runtime.refusal import ExitCode, Refusal

_ENDPOINT = "https://storage.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"


def list_files(uri: str, client: Client, credentials: Credentials) -> Listing:
    """The object of that name, or all objects below it. Raises Refusal."""
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    if not bucket:
        raise Refusal("BadURI", "write gs://bucket/object, or a prefix", ExitCode.BAD_ARGUMENTS)
    emulator = credentials.get("STORAGE_EMULATOR_HOST")
    endpoint = _with_scheme(emulator) if emulator else _ENDPOINT
    client.trust(endpoint)
    headers = _headers(None if emulator else _identity(credentials))
    base = f"{endpoint}/storage/v1/b/{quote(bucket, safe='')}/o"

    def remote(path: str, one: dict[str, Any]) -> RemoteFile:
        url = f"{base}/{quote(one['name'], safe='')}?alt=media"
        return RemoteFile(path, lambda: Request(url, headers()), int(one["size"]))

    found = [one for one in bounded(_objects(client, base, name, headers)) if not one["name"].endswith("/")]
    exact = [one for one in found if one["name"] == name]
    if exact:
        return Listing((remote(name.rpartition("/")[2], exact[0]),), folder=False)
    folder = f"{name.rstrip('/')}/" if name else ""
    below = [one for one in found if one["name"].startswith(folder)]
    return Listing(tuple(remote(one["name"].removeprefix(folder), one) for one in below), folder=True)


def _objects(client: Client, base: str, prefix: str, headers: Callable[[], dict[str, str]]) -> Iterator[dict[str, Any]]:
    page = ""
    for _ in pages():
        query = urlencode({"prefix": prefix} | ({"pageToken": page} if page else {}))
        document = client.document(f"{base}?{query}", headers())
        yield from document.get("items", [])
        page = document.get("nextPageToken", "")
        if not page:
            return


def _with_scheme(host: str) -> str:
    return host.rstrip("/") if "://" in host else f"http://{host}"


def _identity(credentials: Credentials) -> Any:
    """A key of the Secret, or what the environment offers (workload identity …); None: nobody in particular."""
    file = credentials.path("credentials.json", "service-account.json", "key.json")
    try:
        if file is not None:
            return service_account.Credentials.from_service_account_file(str(file), scopes=[_SCOPE])
        return google.auth.default(scopes=[_SCOPE])[0]
    except google.auth.exceptions.DefaultCredentialsError:
        return None
    except ValueError as error:
        text = f"{file.name if file else 'the credentials'} cannot be read as a service account's key"
        raise Refusal("BadStorageSecret", text, ExitCode.BAD_ARGUMENTS) from error


def _headers(identity: Any) -> Callable[[], dict[str, str]]:
    def headers() -> dict[str, str]:
        if identity is None:
            return {}
        try:
            if not identity.valid:
                # The token endpoint may be the metadata server of the cloud, which the policy keeps from models.
                identity.refresh(AuthRequest(urllib3.PoolManager()))
        except google.auth.exceptions.GoogleAuthError as error:
            raise Refusal("FetchDenied", f"no token for Google Cloud: {str(error)[:200]}") from error
        return {"Authorization": f"Bearer {identity.token}"}

    return headers
