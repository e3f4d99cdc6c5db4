"""``models:/name/version`` or ``models:/name@alias``: where the MLflow registry keeps a model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from slipway_runtime.fetch.client import Client
from slipway_runtime.fetch.credentials import Credentials
from slipway_runtime.fetch.listing import Listing, RemoteFile
from slipway_runtime.fetch.transfer import plain
from slipway_runtime.fetch.web import basic_pair
from slipway_runtime.refusal import ExitCode, Refusal

_URI = re.compile(r"models:/{1,2}(?P<name>[^/@]+)(?:/(?P<version>\d+)|@(?P<alias>[\w.-]+))")
_MAX_FILES = 10_000


def resolve(uri: str, client: Client, credentials: Credentials) -> Listing | str:
    """The URI at which the model lies, or its files where the MLflow server itself gives them. Raises Refusal."""
    match = _URI.fullmatch(uri)
    if match is None:
        raise Refusal("BadURI", "write models:/name/version or models:/name@alias", ExitCode.BAD_ARGUMENTS)
    server = credentials.get("MLFLOW_TRACKING_URI").rstrip("/")
    if not server.startswith(("http://", "https://")):
        text = "models:/ needs MLFLOW_TRACKING_URI, in the storage secret or the environment"
        raise Refusal("BadStorageSecret", text, ExitCode.BAD_ARGUMENTS)
    client.trust(server)
    headers = _headers(credentials)
    api = f"{server}/api/2.0"
    version = match["version"]
    if version is None:
        query = urlencode({"name": match["name"], "alias": match["alias"]})
        document = client.document(f"{api}/mlflow/registered-models/alias?{query}", headers)
        version = str(document["model_version"]["version"])
    query = urlencode({"name": match["name"], "version": version})
    place = str(client.document(f"{api}/mlflow/model-versions/get-download-uri?{query}", headers)["artifact_uri"])
    if not place.startswith("mlflow-artifacts:"):
        return place
    return _proxied(f"{api}/mlflow-artifacts/artifacts", place, client, headers)


def _headers(credentials: Credentials) -> dict[str, str]:
    token = credentials.get("MLFLOW_TRACKING_TOKEN")
    user = credentials.get("MLFLOW_TRACKING_USERNAME")
    if token:
        return {"Authorization": f"Bearer {token}"}
    if user:
        return {"Authorization": f"Basic {basic_pair(user, credentials.get('MLFLOW_TRACKING_PASSWORD'))}"}
    return {}


def _proxied(api: str, place: str, client: Client, headers: dict[str, str]) -> Listing:
    """``mlflow-artifacts:/path`` or ``mlflow-artifacts://host/path``: the server's own store."""
    rest = place.removeprefix("mlflow-artifacts:")
    root = (rest[2:].partition("/")[2] if rest.startswith("//") else rest).strip("/")
    files = tuple(
        RemoteFile(
            one["path"].removeprefix(f"{root}/"), plain(f"{api}/{quote(one['path'])}", **headers), one.get("file_size")
        )
        for one in _walk(api, root, client, headers)
    )
    return Listing(files, folder=True)


def _walk(api: str, root: str, client: Client, headers: dict[str, str]) -> Iterator[dict[str, Any]]:
    folders, seen = [root], 0
    while folders:
        folder = folders.pop()
        document = client.document(f"{api}?{urlencode({'path': folder})}", headers)
        for one in document.get("files", []):
            seen += 1
            if seen > _MAX_FILES:
                raise Refusal("ArtefactTooLarge", f"the artefact has more than {_MAX_FILES} files")
            # The server names paths relative to the folder that was asked for.
            entry = {**one, "path": f"{folder}/{one['path']}"}
            if one.get("is_dir"):
                folders.append(entry["path"])
            else:
                yield entry
