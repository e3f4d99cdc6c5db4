"""``slipway status`` and ``slipway explain``: read one object and put it into words."""

import asyncio
import time
from typing import Any

from pydantic import ValidationError

from slipway.api.errors import SlipwayError
from slipway.api.status import ModelDeploymentStatus
from slipway.cli.cluster import connected, current_namespace
from slipway.cli.explanation import explain_lines
from slipway.cli.overview import overview_lines
from slipway.kube.kinds import MODEL_DEPLOYMENT

__all__ = ["show", "text_of"]


def show(what: str, namespace: str, name: str) -> int:
    """Print the overview (``status``) or the explanation (``explain``) of an object; returns the exit status."""
    obj = asyncio.run(_read(namespace, name))
    print(text_of(what, obj, time.time()))
    return 0


async def _read(namespace: str, name: str) -> dict[str, Any]:
    async with connected() as client:
        return await client.get(MODEL_DEPLOYMENT, namespace or current_namespace(), name)


def text_of(what: str, obj: dict[str, Any], now: float) -> str:
    """The text; raises SlipwayError for a status that cannot be read."""
    try:
        status = ModelDeploymentStatus.from_wire(obj.get("status"))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise SlipwayError(f"status.{place} cannot be read: {problem['msg']}") from error
    lines = overview_lines(obj, status, now)
    if what == "explain":
        lines += explain_lines(obj, status, now)
    return "\n".join(lines)
