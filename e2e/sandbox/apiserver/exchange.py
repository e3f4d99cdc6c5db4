"""HTTP in and out: the body and options of a request, and the answers."""

from __future__ import annotations

from typing import Any

import orjson
import yaml
from aiohttp import web
from multidict import CIMultiDict

from . import protobuf
from .failures import ApiError, Cause, bad_request, invalid, unsupported_media
from .release import SERVER_HEADER
from .writes import Write

JSON_TYPE = "application/json"
BODY_TYPES = (JSON_TYPE, "application/yaml", protobuf.MEDIA_TYPE)
MOST_BODY_BYTES = 3 * 1024 * 1024
_PLAIN = "text/plain; charset=utf-8"
_TRUE = ("true", "1")


def media_type(request: web.BaseRequest) -> str:
    """The body's media type without its parameters."""
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _parse(raw: bytes, kind: str) -> Any:
    if kind == protobuf.MEDIA_TYPE:
        return protobuf.decode(raw)
    if "yaml" in kind:
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            try:
                return yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
            except yaml.YAMLError as problem:
                raise bad_request(f"error converting YAML to JSON: {problem}") from problem
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as problem:
        raise bad_request(f"couldn't get version/kind; json parse error: {problem}") from problem


async def body_of(request: web.BaseRequest, accepted: tuple[str, ...] = BODY_TYPES) -> Any:
    """The body, parsed. Raises ApiError 400, 413 and 415."""
    kind = media_type(request) or JSON_TYPE
    if kind not in accepted:
        raise unsupported_media(accepted)
    return _parse(await raw_body(request), kind)


async def raw_body(request: web.BaseRequest) -> bytes:
    """The body as it came. Raises ApiError 413."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as problem:
        message = f"Request entity too large: limit is {MOST_BODY_BYTES}"
        raise ApiError(413, "RequestEntityTooLarge", message) from problem


async def options_body(request: web.BaseRequest) -> dict[str, Any]:
    """The body of a delete: options, or nothing."""
    raw = await raw_body(request)
    if not raw:
        return {}
    parsed = _parse(raw, media_type(request) or JSON_TYPE)
    if not isinstance(parsed, dict):
        raise bad_request("couldn't get version/kind; json parse error: DeleteOptions must be an object")
    return parsed


def write_of(request: web.BaseRequest, kind: str, applying: bool = False) -> Write:
    """How the client wants a write done. `kind` names the options in messages. Raises ApiError 422."""
    query = request.query
    causes: list[Cause] = []
    manager = query.get("fieldManager", "")
    if not manager and applying:
        causes.append(Cause("FieldValueRequired", "fieldManager", "Required value: is required for apply patch"))
    if len(manager) > 128:
        causes.append(Cause("FieldValueTooLong", "fieldManager", "Too long: may not be more than 128 bytes"))
    dry_run = query.getall("dryRun", [])
    if any(value != "All" for value in dry_run if value):
        words = f'Unsupported value: {orjson.dumps(dry_run).decode()}: supported values: "All"'
        causes.append(Cause("FieldValueNotSupported", "dryRun", words))
    validation = query.get("fieldValidation", "") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        words = f'Unsupported value: "{validation}": supported values: "", "Ignore", "Strict", "Warn"'
        causes.append(Cause("FieldValueNotSupported", "fieldValidation", words))
    force = query.get("force", "")
    if force and kind == "PatchOptions" and not applying:
        causes.append(Cause("FieldValueForbidden", "force", "Forbidden: may not be specified for non-apply patch"))
    if causes:
        raise invalid("meta.k8s.io", kind, "", causes)
    if not manager:
        manager = request.headers.get("User-Agent", "unknown").partition("/")[0][:128] or "unknown"
    return Write(manager, bool(dry_run and dry_run[0]), validation, force in _TRUE)


def encoded(
    body: bytes, code: int = 200, content_type: str = JSON_TYPE, warnings: list[str] | None = None
) -> web.Response:
    """An answer with a body that is already encoded."""
    headers: CIMultiDict[str] = CIMultiDict({"Server": SERVER_HEADER, "Cache-Control": "no-cache, private"})
    headers["Content-Type"] = content_type
    for warning in dict.fromkeys(warnings or ()):
        escaped = warning.replace("\\", "\\\\").replace('"', '\\"')
        headers.add("Warning", f'299 - "{escaped}"')
    return web.Response(body=body, status=code, headers=headers)


def answer(
    body: Any, code: int = 200, content_type: str = JSON_TYPE, warnings: list[str] | None = None
) -> web.Response:
    """An answer with a body to encode."""
    return encoded(orjson.dumps(body), code, content_type, warnings)


def plain(text: str, code: int = 200) -> web.Response:
    """An answer in plain text."""
    return web.Response(text=text, status=code, headers={"Content-Type": _PLAIN, "Server": SERVER_HEADER})


def failure(problem: ApiError) -> web.Response:
    """The answer for a failed request."""
    response = answer(problem.status(), problem.code)
    if problem.code == 429:
        response.headers["Retry-After"] = "10"
    response.headers.update(problem.headers)
    return response
