"""``hf://owner/name[@revision][/path]``: a repository of the Hugging Face Hub or of a mirror ($HF_ENDPOINT)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from slipway_runtime.fetch.client import Client, joined, origin
from slipway_runtime.fetch.credentials import Credentials
from slipway_runtime.fetch.listing import Listing, RemoteFile, bounded, pages
from slipway_runtime.fetch.transfer import plain
from slipway_runtime.refusal import ExitCode, Refusal

_ENDPOINT = "https://huggingface.co"
_URI = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?(?:/(?P<path>.+?))?/?")


def list_files(uri: str, client: Client, credentials: Credentials) -> Listing:
    """The file at the path, or all files below it but hidden ones. Raises Refusal."""
    match = _URI.fullmatch(uri)
    if match is None:
        raise Refusal("BadURI", "write hf://owner/name[@revision][/path]", ExitCode.BAD_ARGUMENTS)
    endpoint = (credentials.get("HF_ENDPOINT") or _ENDPOINT).rstrip("/")
    client.trust(endpoint)
    token = credentials.get("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    repo, path = match["repo"], match["path"] or ""
    revision = quote(match["revision"] or "main", safe="")
    files = list(bounded(_tree(client, f"{endpoint}/api/models/{repo}/tree/{revision}?recursive=true", headers)))

    def remote(name: str, one: dict[str, Any]) -> RemoteFile:
        url = f"{endpoint}/{repo}/resolve/{revision}/{quote(one['path'])}"
        return RemoteFile(name, plain(url, **headers), one.get("size"), (one.get("lfs") or {}).get("oid", ""))

    exact = [one for one in files if one["path"] == path]
    if exact:
        return Listing((remote(path.rpartition("/")[2], exact[0]),), folder=False)
    folder = f"{path}/" if path else ""
    below = [
        one for one in files if one["path"].startswith(folder) and not one["path"].removeprefix(folder).startswith(".")
    ]
    return Listing(tuple(remote(one["path"].removeprefix(folder), one) for one in below), folder=True)


def _tree(client: Client, url: str, headers: dict[str, str]) -> Iterator[dict[str, Any]]:
    """All pages of the listing; the next one is named by a Link header."""
    for _ in pages():
        entries, answered = client.answer(url, headers)
        following = re.search(r'<([^>]+)>;\s*rel="next"', answered.get("Link") or "")
        yield from (one for one in entries if one.get("type") == "file")
        if following is None:
            return
        following_url = joined(url, following[1])
        if origin(following_url) != origin(url):
            raise Refusal("FetchRefused", "the listing goes on at another host")
        url = following_url
