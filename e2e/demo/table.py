"""The live table: what the operator says and what the clients see, side by side."""

import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from e2e.demo.load import Answer, summarise_latency
from e2e.demo.timeline import Look

__all__ = ["Screen"]

WINDOW_SECONDS = 5.0
LINE_SECONDS = 5.0


class Screen:
    """A table that is redrawn on a terminal, and a line now and then where there is none."""

    def __init__(self) -> None:
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False) if sys.stdout.isatty() else None
        self._said = 0.0

    def __enter__(self) -> "Screen":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line of the story, above the table."""
        self._console.print(f"[bold]{time.strftime('%H:%M:%S')}[/bold]  {text}", highlight=False)

    def show(self, look: Look, answers: Sequence[Answer]) -> None:
        """Show the present state."""
        if self._live is not None:
            self._live.update(Group(_versions(look, answers), _evidence(look)), refresh=True)
        elif time.time() - self._said >= LINE_SECONDS and look.status:
            self._said = time.time()
            self._console.print(_line(look, answers), highlight=False)


def _recent(answers: Sequence[Answer], version: str) -> list[Answer]:
    since = time.time() - WINDOW_SECONDS
    found: list[Answer] = []
    for answer in reversed(answers):
        if answer.at < since - WINDOW_SECONDS:
            break
        if answer.at >= since and answer.version == version:
            found.append(answer)
    return found


def _versions(look: Look, answers: Sequence[Answer]) -> Table:
    rollout = look.rollout
    title = f"digits: {look.phase}"
    if rollout.get("reason"):
        title += f" ({rollout['reason']}: {rollout.get('message', '')})"
    table = Table(title=title, title_justify="left")
    for column in ("version", "role", "ready", "weight", "applied", "observed", "req/s", "errors", "p99"):
        table.add_column(column, justify="left" if column in ("version", "role") else "right")
    for name, entry in look.versions.items():
        recent = _recent(answers, name)
        failed = sum(1 for answer in recent if answer.code != 200)
        p99 = f"{1000 * summarise_latency(recent, 0.99):.0f} ms" if recent else ""
        weight: dict[str, Any] = entry.get("weight", {})
        table.add_row(
            name,
            entry.get("role", ""),
            f"{entry.get('readyReplicas', 0)}/{entry.get('replicas', 0)}",
            f"{weight.get('intended', 0)} %",
            f"{weight.get('applied', 0)} %",
            f"{weight['observed']} %" if "observed" in weight else "",
            f"{len(recent) / WINDOW_SECONDS:.0f}",
            str(failed),
            p99,
        )
    return table


def _evidence(look: Look) -> Table:
    table = Table(title="evidence", title_justify="left")
    for column in ("check", "verdict", "reason", "e-value", "candidate bad/all", "stable bad/all", "still needed"):
        table.add_column(column)
    for check in look.status.get("analysis", ()):
        candidate, stable = check.get("candidate", {}), check.get("stable", {})
        table.add_row(
            check["name"],
            check.get("verdict", ""),
            check.get("reason", ""),
            str(check.get("evidence", "")),
            f"{candidate.get('bad', 0)}/{candidate.get('requests', 0)}",
            f"{stable.get('bad', 0)}/{stable.get('requests', 0)}",
            str(check.get("requestsNeeded", "")),
        )
    return table


def _line(look: Look, answers: Sequence[Answer]) -> str:
    parts = [
        f"{name} {entry.get('role', '')} {look.weight(name)} % {entry.get('readyReplicas', 0)} ready "
        f"{len(_recent(answers, name)) / WINDOW_SECONDS:.0f} req/s"
        for name, entry in look.versions.items()
    ]
    rollout = look.rollout
    return f"          {look.phase:<12} {' | '.join(parts)} | {rollout.get('reason', '')}"
