"""Which files a URI stands for, by its scheme."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from slipway_runtime.fetch import gs, hf, mlflow, oci, s3, web
from slipway_runtime.fetch.client import Client
from slipway_runtime.fetch.credentials import Credentials
from slipway_runtime.fetch.listing import Listing
from slipway_runtime.refusal import ExitCode, Refusal

Source = Callable[[str, Client, Credentials], Listing]
_NAMED_IN_URI = ("https", "oci")
"""Schemes whose URIs name the host; those of the others are settings."""
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)
_STORAGE: dict[str, Source] = {
    "https": web.list_files,
    "s3": s3.list_files,
    "gs": gs.list_files,
    "hf": hf.list_files,
    "oci": oci.list_files,
}
SCHEMES = (*_STORAGE, "models")
"""Schemes of URIs that can be fetched."""


def list_files(uri: str, client: Client, credentials: Credentials) -> Listing:
    """The files behind ``uri``. Raises Refusal, and urllib3.exceptions.HTTPError for failures of the network."""
    try:
        return _listed(uri, client, credentials)
    except _UNREADABLE as error:
        text = f"the source answered in another form than it should: {type(error).__name__}"
        raise Refusal("FetchFailed", text, ExitCode.INTERNAL) from error


def _listed(uri: str, client: Client, credentials: Credentials) -> Listing:
    if uri.startswith("models:"):
        resolved = mlflow.resolve(uri, client, credentials)
        if isinstance(resolved, Listing):
            return resolved
        uri = resolved
        if uri.partition(":")[0] in _NAMED_IN_URI:
            # The registry names the host, not the user: no private address, and nothing of the Secret but its own.
            client.trust_no_more()
            credentials = replace(credentials, by_host_only=True)
    scheme = uri.partition(":")[0]
    source = _STORAGE.get(scheme)
    if source is None:
        raise Refusal("SchemeNotSupported", f"URI scheme {scheme}: use file, {', '.join(SCHEMES)}")
    return source(uri, client, credentials)
