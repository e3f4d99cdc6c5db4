"""Pod logs: asked of the node agent that runs the pod, and passed on as they come."""

from __future__ import annotations

import aiohttp
from aiohttp import web

from .cluster import Cluster
from .failures import ApiError, bad_request, not_found
from .kinds import dig
from .release import SERVER_HEADER
from .schema import JsonDict
from .writes import Target

_CHUNK = 16 * 1024


def node_agent_url(node: JsonDict) -> str:
    """Where the node's agent listens: its internal address and kubelet port. Raises ApiError 500."""
    addresses = dig(node, "status", "addresses") or ()
    address = next((entry["address"] for entry in addresses if entry.get("type") == "InternalIP"), None)
    port = dig(node, "status", "daemonEndpoints", "kubeletEndpoint", "Port")
    if not address or not port:
        raise ApiError(500, "InternalError", f"no preferred addresses found; known addresses: {addresses}")
    return f"http://{address}:{port}"


def container_of(pod: JsonDict, asked: str) -> str:
    """The container whose log is meant. Raises ApiError 400 if that is not clear."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    known = [entry["name"] for key in ("containers", "initContainers") for entry in spec.get(key) or ()]
    if asked:
        if asked not in known:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(spec["containers"]) > 1:
        listed = " ".join(entry["name"] for entry in spec["containers"])
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
    return str(known[0])


async def stream(
    request: web.BaseRequest, cluster: Cluster, target: Target, session: aiohttp.ClientSession
) -> web.StreamResponse:
    """Answer GET pods/NAME/log. Raises ApiError."""
    pod = cluster.writer.stored(target).obj
    container = container_of(pod, request.query.get("container", ""))
    node_name = dig(pod, "spec", "nodeName")
    if not node_name:
        raise bad_request(f"pod {target.name} does not have a host assigned")
    node = cluster.store.get("/nodes", ("", node_name))
    if node is None:
        raise not_found("", "nodes", node_name)
    url = f"{node_agent_url(node.obj)}/containerLogs/{target.namespace}/{target.name}/{container}"
    query = {key: value for key, value in request.query.items() if key != "container"}
    try:
        async with session.get(url, params=query) as upstream:
            if upstream.status >= 400:
                text = (await upstream.text()).strip()
                code = upstream.status if upstream.status in (400, 404) else 500
                raise ApiError(code, {400: "BadRequest", 404: "NotFound"}.get(code, "InternalError"), text)
            response = web.StreamResponse(headers={"Content-Type": "text/plain", "Server": SERVER_HEADER})
            await response.prepare(request)
            async for chunk in upstream.content.iter_chunked(_CHUNK):
                await response.write(chunk)
            await response.write_eof()
            return response
    except aiohttp.ClientError as problem:
        message = f'Get "{url}": {problem}'
        raise ApiError(500, "InternalError", f"Internal error occurred: {message}") from problem
