"""Which files a URI stands for, by its scheme."""

from __future__ import annotations

from collections.abc import Callable

from slipway_runtime.fetch import gs, hf, mlflow, oci, s3, web
from slipway_runtime.fetch.client import Client
from slipway_runtime.fetch.credentials import Credentials
from slipway_runtime.fetch.listing import Listing
from slipway_runtime.refusal import Refusal

Source = Callable[[str, Client, Credentials], Listing]
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
    if uri.startswith("models:"):
        resolved = mlflow.resolve(uri, client, credentials)
        if isinstance(resolved, Listing):
            return resolved
        uri = resolved
    scheme = uri.partition(":")[0]
    source = _STORAGE.get(scheme)
    if source is None:
        raise Refusal("SchemeNotSupported", f"URI scheme {scheme}: use file, {', '.join(SCHEMES)}")
    return source(uri, client, credentials)
