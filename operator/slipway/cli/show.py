"""``slipway status``, ``explain`` and ``history``: read objects and put them into words."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from slipway.api.errors import SlipwayError
from slipway.api.status import ModelDeploymentStatus
from slipway.cli.cluster import connected, current_namespace
from slipway.cli.columns import ago, table
from slipway.cli.explanation import explain_lines
from slipway.cli.notation import written
from slipway.cli.overview import SUMMARY_HEAD, outlook_of, overview_lines, summary_row
from slipway.cli.signals import signal_lines
from slipway.cli.terminal import Screen
from slipway.kube.client import Client
from slipway.kube.kinds import MODEL_DEPLOYMENT, POD
from slipway.metrics import PrometheusSource
from slipway.resources.identity import MODEL_DEPLOYMENT_LABEL

__all__ = ["View", "show", "summary_of", "text_of", "watch"]

PERIOD = 1.0
"""Seconds between two looks of ``--watch``."""


@dataclass(frozen=True, slots=True)
class View:
    """What is to be shown, of what and how."""

    what: str
    """status, explain or history."""
    namespace: str = ""
    name: str = ""
    """Empty: all ModelDeployments of the namespace, for status."""
    output: str = "text"
    """text, json or yaml."""
    watch: bool = False
    """Again whenever it changes, until interrupted."""
    prometheus_url: str = ""
    """Prometheus as it is reached from here: explain then ends with a test of the metrics."""


def show(view: View) -> int:
    """Show it; returns the exit status. Ctrl-C is the way out of ``--watch``, and a failure of nothing."""
    try:
        asyncio.run(_show(view, Screen()))
    except KeyboardInterrupt:
        if not view.watch:
            raise
    return 0


async def _show(view: View, screen: Screen) -> None:
    namespace = view.namespace or current_namespace()
    async with connected() as client:
        screen.colours &= view.output == "text"
        if view.watch:
            await watch(lambda: _text(client, view, namespace), screen)
        screen.show(await _text(client, view, namespace))


async def _signals(client: Client, view: View, namespace: str) -> list[str]:
    selector = f"{MODEL_DEPLOYMENT_LABEL}={view.name}"
    pods = (await client.list(POD, namespace, label_selector=selector)).items
    source = PrometheusSource(view.prometheus_url)
    try:
        return await signal_lines(source, namespace, view.name, pods, time.time())
    finally:
        source.close()


async def watch(
    read: Callable[[], Awaitable[str]], screen: Screen, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Redraw what ``read`` gives, for ever; without a terminal, only what differs from before."""
    shown = ""
    while True:
        text = await read()
        if screen.is_terminal or text != shown:
            screen.redraw(text)
            shown = text
        await sleep(PERIOD)


async def _text(client: Client, view: View, namespace: str) -> str:
    now = time.time()
    if view.name:
        obj = await client.get(MODEL_DEPLOYMENT, namespace, view.name)
        signals = await _signals(client, view, namespace) if view.prometheus_url else []
        if view.output == "text":
            return "\n".join([text_of(view.what, obj, now), *signals])
        document = document_of(view.what, obj, now)
        if signals:
            document["signals"] = [line for line in signals if line]
        return written(document, view.output)
    objects = [dict(obj) for obj in (await client.list(MODEL_DEPLOYMENT, namespace)).items]
    if view.output == "text":
        return summary_of(objects, namespace)
    return written([document_of(view.what, obj, now) for obj in objects], view.output)


def summary_of(objects: list[dict[str, Any]], namespace: str) -> str:
    """All ModelDeployments of a namespace as a table."""
    if not objects:
        return f"no ModelDeployments in {namespace}"
    ordered = sorted(objects, key=lambda obj: str(obj["metadata"]["name"]))
    return "\n".join(table(SUMMARY_HEAD, (summary_row(obj, _status(obj)) for obj in ordered)))


def text_of(what: str, obj: dict[str, Any], now: float) -> str:
    """The text; raises SlipwayError for a status that cannot be read."""
    status = _status(obj)
    if what == "history":
        return "\n".join(_history_lines(status, now))
    lines = overview_lines(obj, status, now)
    if what == "explain":
        lines += explain_lines(obj, status, now)
    return "\n".join(lines)


def document_of(what: str, obj: dict[str, Any], now: float) -> Any:
    """The same for programs: the status with ``next``, what happens next in words, and for explain with ``why``; or
    the list of rollouts."""
    status = _status(obj)
    if what == "history":
        return status.to_wire().get("history", [])
    metadata = obj["metadata"]
    document = {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "generation": metadata.get("generation", 0),
        "status": obj.get("status") or {},
        "next": outlook_of(obj, status, now),
    }
    return {**document, "why": explain_lines(obj, status, now)} if what == "explain" else document


def _history_lines(status: ModelDeploymentStatus, now: float) -> list[str]:
    """Every rollout that is remembered, newest first."""
    rows = [
        (
            entry.id,
            f"{entry.from_ or 'nothing'} to {entry.to}",
            entry.outcome.value,
            f"{ago(entry.started_at, now)} ago",
            f"{ago(entry.finished_at, now)} ago",
            entry.by or "-",
            entry.evidence,
        )
        for entry in reversed(status.history)
    ]
    head = ("ROLLOUT", "COURSE", "OUTCOME", "STARTED", "ENDED", "BY", "EVIDENCE")
    return table(head, rows) if rows else ["no rollout has ended yet"]


def _status(obj: dict[str, Any]) -> ModelDeploymentStatus:
    try:
        return ModelDeploymentStatus.from_wire(obj.get("status"))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise SlipwayError(f"status.{place} cannot be read: {problem['msg']}") from error
