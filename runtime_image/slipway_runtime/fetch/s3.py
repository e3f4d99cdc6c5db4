"""``s3://bucket/key`` or a prefix: Amazon S3 and what is compatible with it (MinIO, Ceph, R2 …)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from minio import Minio
from minio.credentials.providers import IamAwsProvider, StaticProvider
from minio.error import MinioException, S3Error

from slipway_runtime.fetch.addresses import AddressRefused
from slipway_runtime.fetch.client import Client
from slipway_runtime.fetch.credentials import Credentials
from slipway_runtime.fetch.listing import Listing, RemoteFile, Request, bounded
from slipway_runtime.refusal import ExitCode, Refusal

_ENDPOINT = "https://s3.amazonaws.com"
_VALID = timedelta(hours=1)
_ABSENT = ("NoSuchKey", "NoSuchBucket")
_ROLE_VARIABLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_USE_INSTANCE_PROFILE",
)


def list_files(uri: str, client: Client, credentials: Credentials) -> Listing:
    """The object of that key, or all objects below it. Raises Refusal."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    endpoint = credentials.get("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") or _ENDPOINT
    client.trust(endpoint)
    minio = _minio(endpoint, client, credentials)
    try:
        # A prefix also finds neighbours such as v1 and v10; only the key itself and what lies below count.
        found = [one for one in bounded(minio.list_objects(bucket, prefix=key, recursive=True)) if not one.is_dir]
    except S3Error as error:
        raise _refusal(error) from error
    except AddressRefused as error:
        raise Refusal("FetchRefused", str(error)) from error
    except ValueError as error:
        raise Refusal("BadURI", f"S3: {str(error)[:300]}".rstrip(), ExitCode.BAD_ARGUMENTS) from error
    except MinioException as error:
        raise Refusal("FetchFailed", f"S3: {str(error)[:300]}", ExitCode.INTERNAL) from error

    def remote(path: str, one: Any) -> RemoteFile:
        return RemoteFile(path, _signed(minio, bucket, one.object_name), one.size)

    exact = [one for one in found if one.object_name == key]
    if exact:
        return Listing((remote(key.rpartition("/")[2], exact[0]),), folder=False)
    folder = f"{key.rstrip('/')}/" if key else ""
    below = [one for one in found if one.object_name.startswith(folder)]
    return Listing(tuple(remote(one.object_name.removeprefix(folder), one) for one in below), folder=True)


def _refusal(error: S3Error) -> Refusal:
    if error.code in _ABSENT:
        return Refusal("ArtefactNotFound", f"S3: {error.code}", ExitCode.ARTEFACT_NOT_FOUND)
    return Refusal("FetchDenied", f"S3: {error.code}, check the storage secret")


def _signed(minio: Minio, bucket: str, name: str) -> Callable[[], Request]:
    return lambda: Request(minio.presigned_get_object(bucket, name, expires=_VALID))


def _minio(endpoint: str, client: Client, credentials: Credentials) -> Minio:
    parts = urlsplit(endpoint)
    access = credentials.get("AWS_ACCESS_KEY_ID")
    provider: Any = None
    if access:
        token = credentials.get("AWS_SESSION_TOKEN") or None
        provider = StaticProvider(access, credentials.get("AWS_SECRET_ACCESS_KEY"), token)
    elif credentials.get(*_ROLE_VARIABLES):
        provider = IamAwsProvider()
    return Minio(
        parts.netloc,
        secure=parts.scheme != "http",
        region=credentials.get("AWS_REGION", "AWS_DEFAULT_REGION") or None,
        http_client=client.bounded_pools,
        credentials=provider,
    )
