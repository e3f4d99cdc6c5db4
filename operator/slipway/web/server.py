"""The HTTP side of the page: a few files and two JSON documents, by GET alone.

It asks nobody who they are. So it listens on this host only unless it is told otherwise, answers only to the names it
may be asked for by (a page of somebody else's in the same browser could claim any name for this address), and sends a
policy under which a browser loads nothing from elsewhere and runs no script but its own.
"""

import math
from collections.abc import Awaitable, Callable, Collection
from importlib.resources import files
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from slipway.engine.listening import listen
from slipway.kube.metadata import Key
from slipway.web.answers import Answers

__all__ = ["LOCAL_NAMES", "POLICY", "serve_page"]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
    "Server": "slipway",
}
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve_page(
    answers: Answers,
    leading: Callable[[], bool],
    wall: Callable[[], float],
    *,
    host: str,
    port: int,
    names: Collection[str] = (),
) -> web.AppRunner:
    """Start the page; clean up the runner returned to stop it.

    ``leading`` tells whether this process decides or stands by, ``wall`` gives seconds since the epoch. ``names`` are
    the host names it may be asked for by besides those of this host; none means any unless it listens here only.
    """
    open_to_all = not names and host not in LOCAL_NAMES
    application = web.Application(middlewares=[] if open_to_all else [_only({*names, *LOCAL_NAMES})])
    application.on_response_prepare.append(_secured)

    async def overview(_: web.Request) -> web.Response:
        now = wall()
        return _json({"at": now, "leading": leading(), "items": await answers.overview(now)})

    async def detail(request: web.Request) -> web.Response:
        now, key = wall(), Key(request.match_info["namespace"], request.match_info["name"])
        found = answers.detail(key, now, _time(request.query.get("after", "0")))
        if found is None:
            return _json({"error": "there is no such ModelDeployment"}, 404)
        return _json({"at": now, "leading": leading(), **found})

    application.router.add_get("/api/modeldeployments", overview)
    application.router.add_get("/api/modeldeployments/{namespace}/{name}", detail)
    for path, content in _page_files():
        application.router.add_get(path, content)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await listen(runner, host, port)
    return runner


def _page_files() -> list[tuple[str, Handler]]:
    """Every file of the page with its path, read once; no path of a request is ever looked up in a folder."""
    found: list[tuple[str, Handler]] = []
    for entry in files("slipway.web").joinpath("page").iterdir():
        suffix = entry.name[entry.name.rfind(".") :]
        if suffix in _TYPES:
            path = "/" if entry.name == "index.html" else f"/page/{entry.name}"
            found.append((path, _file(entry.read_bytes(), _TYPES[suffix])))
    return found


def _file(body: bytes, content_type: str) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        response = web.Response(body=body, content_type=content_type, charset="utf-8")
        response.enable_compression()
        return response

    return handler


def _json(document: dict[str, object], status: int = 200) -> web.Response:
    response = web.json_response(document, status=status)
    response.enable_compression()
    return response


def _time(text: str) -> float:
    try:
        at = float(text)
    except ValueError:
        at = math.nan
    if not math.isfinite(at):
        raise web.HTTPBadRequest(text="after is a time in seconds since the epoch")
    return at


async def _secured(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def _only(names: Collection[str]) -> Middleware:
    """Refuse requests for other host names, so that no name that somebody points at this address opens the page."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            asked = urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
        except ValueError:
            asked = ""
        if asked not in names:
            raise web.HTTPMisdirectedRequest(text="this page is not served under that name (--web-names)")
        return await handler(request)

    return check
