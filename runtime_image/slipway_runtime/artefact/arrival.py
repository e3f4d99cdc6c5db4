"""The artefact that a server was told to serve: fetched, verified, opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from slipway_runtime.artefact.location import Artefact, local_path, opened
from slipway_runtime.artefact.trust import MAX_SIGNATURE_BYTES, Trust
from slipway_runtime.fetch.credentials import Credentials
from slipway_runtime.fetch.store import Store, default_folder
from slipway_runtime.fetch.transfer import FetchLimits
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.settings import Access, ModelSettings


@contextmanager
def arrived(settings: ModelSettings) -> Iterator[Artefact]:
    """The artefact of the settings. Raises Refusal."""
    access = settings.access
    store = store_of(access, access.model_dir or default_folder())
    with opened(settings.uri, settings.sha256, trust_of(access, store), store, settings.folder_version) as artefact:
        yield artefact


def store_of(access: Access, root: Path) -> Store:
    """A store below ``root`` that fetches as the settings say."""
    return Store(
        root=root, credentials=Credentials(access.storage_secret), limits=FetchLimits(max_bytes=access.max_bytes)
    )


def trust_of(access: Access, store: Store) -> Trust:
    """Whose signature the settings ask for, the signature itself fetched where it lies elsewhere. Raises Refusal."""
    return Trust(access.public_key, _signature(access, store), access.allow_pickle)


def _signature(access: Access, store: Store) -> str:
    if access.public_key is None:
        if access.signature or access.signature_uri or access.allow_pickle:
            text = "--signature, --signature-uri and --allow-pickle need --public-key"
            raise Refusal("BadArguments", text, ExitCode.BAD_ARGUMENTS)
        return ""
    if access.signature or not access.signature_uri:
        return access.signature
    small = replace(store, limits=replace(store.limits, max_bytes=MAX_SIGNATURE_BYTES, max_files=1))
    path = local_path(access.signature_uri) or small.fetch(access.signature_uri, "")
    return _text(path)


def _text(path: Path) -> str:
    try:
        return path.read_bytes()[:MAX_SIGNATURE_BYTES].decode("ascii", "replace")
    except OSError as error:
        raise Refusal("SignatureMissing", "there is no signature at its URI", ExitCode.ARTEFACT_NOT_FOUND) from error
