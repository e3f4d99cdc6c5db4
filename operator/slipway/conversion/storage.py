"""Where a model lies: KServe's storage settings as the ``uri`` of a version."""

import re

from slipway.conversion.ledger import Ledger, NotConvertibleError

__all__ = ["convert_storage", "own_artefact"]

Path = tuple[str | int, ...]

SCHEMES = ("s3://", "gs://", "pvc://", "https://", "hf://", "oci://", "file://", "models:/")
"""What a version's uri may begin with."""
_CREDENTIALS = "name the Secret with the credentials in spec.versions[].storageSecret (docs/models.md lists its keys)"


def convert_storage(ledger: Ledger, predictor: Path, model: Path) -> str:
    """The version's ``uri``; raises NotConvertibleError where nothing says where the model lies."""
    uri = _storage_uri(ledger, predictor, model)
    if uri.startswith(("s3://", "gs://")) and ledger.text(*predictor, "serviceAccountName"):
        ledger.partly(
            f"KServe also takes credentials from the Secrets of this ServiceAccount; here {_CREDENTIALS}",
            *predictor, "serviceAccountName",
        )  # fmt: skip
    return uri


def own_artefact(ledger: Ledger, server: Path) -> None:
    """Say that a server of the user's own goes on getting its model by itself: its version has no ``uri``."""
    ledger.unneeded(
        "the server gets its model as before, so spec.versions[].uri is left out; with it Slipway brings the model to "
        "$SLIPWAY_MODEL_PATH and checks it, and a new model is a new version", *server, "image",
    )  # fmt: skip


def _storage_uri(ledger: Ledger, predictor: Path, model: Path) -> str:
    for path in ((*model, "storageUri"), (*predictor, "storageUris", 0, "uri")):
        given = ledger.text(*path)
        if given:
            uri = _translated(ledger, given, path)
            _others(ledger, predictor)
            _key(ledger, model)
            return uri
    for number, variable in enumerate(ledger.items(*model, "env")):
        path = (*model, "env", number, "value")
        if isinstance(variable, dict) and variable.get("name") == "STORAGE_URI" and ledger.text(*path):
            ledger.partly("the server finds the model in $SLIPWAY_MODEL_PATH, not in /mnt/models", *path)
            return _translated(ledger, ledger.text(*path), path)
    return _from_storage(ledger, model)


def _translated(ledger: Ledger, given: str, path: Path) -> str:
    """The URI in Slipway's notation; what differs is reported."""
    uri = f"file://{given}" if given.startswith("/") else given
    if not uri.startswith(SCHEMES) or uri in SCHEMES:
        raise NotConvertibleError(f"{given.partition(':')[0]}: is no kind of storage that Slipway fetches from")
    revision = re.fullmatch(r"(hf://[^/]+/[^/:@]+):([^/]+)", uri)
    if revision:
        uri = f"{revision[1]}@{revision[2]}"
    if re.fullmatch(r"pvc://[^/]+/?", uri):
        uri = f"{uri.rstrip('/')}/."  # the whole claim
    ledger.settle(*path)
    if uri.startswith("oci://"):
        ledger.partly("KServe runs or unpacks an image; Slipway fetches an artefact as ORAS pushes it", *path)
    elif ".blob.core.windows.net/" in uri:
        ledger.partly("KServe lists the folder in Azure; Slipway fetches this one address", *path)
    elif uri.startswith("https://"):
        ledger.partly("KServe unpacks archives by their name; Slipway looks into the file", *path)
    return uri


def _others(ledger: Ledger, predictor: Path) -> None:
    for number, _ in enumerate(ledger.items(*predictor, "storageUris")):
        if number:
            ledger.dropped("a version has one artefact", *predictor, "storageUris", number)
        elif ledger.get(*predictor, "storageUris", 0, "mountPath") is not None:
            ledger.unneeded("the server knows where it puts the model", *predictor, "storageUris", 0, "mountPath")


def _key(ledger: Ledger, model: Path) -> None:
    if ledger.get(*model, "storage") is not None:
        ledger.dropped(f"credentials: {_CREDENTIALS}", *model, "storage")


def _from_storage(ledger: Ledger, model: Path) -> str:
    """The form ``storage: {key, path, parameters: {type: s3, bucket}}``."""
    at = (*model, "storage")
    bucket, path = ledger.text(*at, "parameters", "bucket"), ledger.text(*at, "path")
    kind = ledger.get(*at, "parameters", "type")
    if not bucket or not path or kind not in (None, "", "s3"):
        raise NotConvertibleError("nothing says where the model lies: no storageUri, no storage with bucket and path")
    for taken in (("parameters", "bucket"), ("parameters", "type"), ("path",)):
        ledger.settle(*at, *taken)
    if ledger.get(*at, "key") is not None:
        ledger.dropped(f"a key of KServe's Secret storage-config: {_CREDENTIALS}", *at, "key")
    return f"s3://{bucket}/{path.strip('/')}"
