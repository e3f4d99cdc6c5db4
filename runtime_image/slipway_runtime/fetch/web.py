"""``https://host/path``: one file."""

from __future__ import annotations

import base64
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from slipway_runtime.fetch.client import Client
from slipway_runtime.fetch.credentials import Credentials
from slipway_runtime.fetch.listing import Listing, RemoteFile
from slipway_runtime.fetch.transfer import plain


def list_files(uri: str, client: Client, credentials: Credentials) -> Listing:
    """The file at the URL. The Secret's ``token``, or ``username`` and ``password``, go to that host alone."""
    client.trust(uri)
    name = PurePosixPath(unquote(urlsplit(uri).path)).name or "model"
    headers = {}
    host = urlsplit(uri).hostname or ""
    basic = credentials.basic(host)
    if credentials.own("username"):
        basic = basic_pair(credentials.own("username"), credentials.own("password"))
    if credentials.own("token"):
        headers["Authorization"] = f"Bearer {credentials.own('token')}"
    elif basic:
        headers["Authorization"] = f"Basic {basic}"
    return Listing((RemoteFile(name, plain(uri, **headers)),), folder=False)


def basic_pair(user: str, password: str) -> str:
    """The value of HTTP basic authentication."""
    return base64.b64encode(f"{user}:{password}".encode()).decode()
