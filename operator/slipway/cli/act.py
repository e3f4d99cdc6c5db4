"""``slipway promote, abort, pause, resume, retry``: a request in ``status.action``, and the operator's answer."""

import asyncio
import getpass
import sys
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from slipway.api.errors import ConflictError
from slipway.api.status import ActionResult, LastAction, Verb
from slipway.cli.cluster import connected, current_namespace
from slipway.cli.notation import written
from slipway.kube import failures
from slipway.kube.client import Client
from slipway.kube.kinds import MODEL_DEPLOYMENT

__all__ = ["Request", "act", "answer_to", "submit"]

TRIES = 8
POLL = 0.5


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked, of which object, by whom and why."""

    verb: Verb
    name: str
    namespace: str
    by: str = ""
    reason: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The operator answers once per id."""


def act(request: Request, timeout: float | None, output: str = "text") -> int:
    """Submit the request and, with a time-out in seconds, wait for the answer; returns the exit status.

    ``output`` is text, json or yaml.
    """
    return asyncio.run(_act(request, timeout, output))


async def _act(request: Request, timeout: float | None, output: str) -> int:
    async with connected() as client:
        namespace = request.namespace or current_namespace()
        await submit(client, request, namespace)
        asked = {"verb": request.verb.value, "name": request.name, "namespace": namespace, "id": request.id}
        if timeout is None:
            text = f"{request.verb} of {request.name} requested as {request.id}"
            print(text if output == "text" else written(asked, output))
            return 0
        answer = await answer_to(client, request, namespace, timeout)
    if answer is None:
        print(f"no answer within {timeout:g} s; is the operator running?", file=sys.stderr)
        return 3
    text = f"{answer.verb} of {request.name}: {answer.result}: {answer.message}"
    told = {**asked, "result": str(answer.result), "message": answer.message}
    print(text if output == "text" else written(told, output))
    return 0 if answer.result == ActionResult.ACCEPTED else 1


async def submit(client: Client, request: Request, namespace: str) -> None:
    """Write ``status.action`` on the resource version just read; others' changes in between lead to another try."""
    action = {
        "id": request.id,
        "verb": request.verb.value,
        "by": request.by or _user(),
        "reason": request.reason,
    }
    for _ in range(TRIES):
        current = await client.get(MODEL_DEPLOYMENT, namespace, request.name)
        body: dict[str, Any] = {
            "metadata": {"resourceVersion": current["metadata"]["resourceVersion"]},
            "status": {"action": action},
        }
        try:
            await client.patch(MODEL_DEPLOYMENT, namespace, request.name, body, subresource="status")
        except failures.ConflictError:
            continue
        return
    raise ConflictError(f"{request.name} changed {TRIES} times while the request was written")


async def answer_to(
    client: Client,
    request: Request,
    namespace: str,
    timeout: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> LastAction | None:
    """The operator's answer, or None when there is none after ``timeout`` seconds."""
    for _ in range(max(1, round(timeout / POLL))):
        current = await client.get(MODEL_DEPLOYMENT, namespace, request.name)
        answer = LastAction.model_validate((current.get("status") or {}).get("lastAction") or {})
        if answer.id == request.id:
            return answer
        await sleep(POLL)
    return None


def _user() -> str:
    """Who runs the command; a container may know no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"
