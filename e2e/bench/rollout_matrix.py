"""Counts failed requests under whatever may happen during a rollout: ``python -m e2e.bench.rollout_matrix [WORD...]``.

One sandbox, one operator, one scenario after the other; 50 requests per second leave on schedule through a real Envoy,
and every answer but 200 counts as failed, as does none. Exit code 1 when a request failed or an outcome was wrong.
"""

import argparse
import asyncio
import collections
import json
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

from e2e.bench.rollout_scenarios import SCENARIOS, Arena, Scenario
from e2e.bench.valve import Valve
from e2e.sandbox.children import REPOSITORY_ROOT
from e2e.sandbox.cluster import Sandbox, User
from e2e.sandbox.controllers.client import NAMESPACES, ApiClient
from tests.integration.bench import MODEL_DEPLOYMENTS, Bench, failures
from tests.integration.models import build
from tests.integration.operators import Operator
from tests.integration.role import OPERATOR, objects

RATE = 50.0
"""Requests per second."""
NAMESPACE = "rollouts"
TAIL = 1.0
"""Seconds for which the load goes on after the scenario's end."""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    title: str
    requests: int
    failed: int
    outcome: str
    right: bool
    """Whether the outcome is the one that it should be."""

    @property
    def cells(self) -> tuple[str, ...]:
        """For people."""
        return self.title, str(self.requests), str(self.failed), self.outcome


def table(rows: Iterable[Row]) -> str:
    """Markdown."""
    lines = [
        ("Scenario", "Requests", "Failed", "Outcome"),
        ("---", "---:", "---:", "---"),
        *(row.cells for row in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


async def _play(scenario: Scenario, arena: Arena) -> Row:
    await arena.apply("v1", "v1")
    await arena.bench.serving(arena.name)
    right = True
    async with arena.bench.load(arena.name, RATE) as answers:
        try:
            outcome = await scenario.play(arena)
        except AssertionError as error:
            outcome, right = f"NOT AS IT SHOULD BE: {error}", False
        await asyncio.sleep(TAIL)
    lost = failures(answers)
    for what, count in collections.Counter((answer.code, answer.version, answer.error) for answer in lost).items():
        print(f"  failed {count} times: {what}", file=sys.stderr)
    return Row(scenario.title, len(answers), len(lost), outcome, right)


async def _prepare(bench: Bench, client: ApiClient) -> None:
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    code, said = await bench.kubectl("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects())))
    if code:
        raise RuntimeError(said)


async def _run(scenarios: list[Scenario]) -> list[Row]:
    folder = REPOSITORY_ROOT / ".slipway" / "rollouts"
    shutil.rmtree(folder, ignore_errors=True)
    rows = []
    async with Sandbox(users=(User(OPERATOR),)) as sandbox, sandbox.client("bench") as client:
        bench = Bench(sandbox, client, NAMESPACE, build())
        await _prepare(bench, client)
        prometheus = Valve(sandbox.prometheus_url)
        await prometheus.open()
        operator = Operator(sandbox, folder)
        sandbox.prometheus_url = prometheus.url
        await operator.start()
        try:
            for number, scenario in enumerate(scenarios, start=1):
                begun = time.monotonic()
                arena = Arena(bench, operator, sandbox, prometheus, f"m{number}", scenario.spec)
                row = await _play(scenario, arena)
                rows.append(row)
                print(f"{time.monotonic() - begun:5.0f} s  {' | '.join(row.cells)}", file=sys.stderr)
                await bench.delete(MODEL_DEPLOYMENTS, arena.name)
        finally:
            await operator.stop()
            await prometheus.shut()
    return rows


def main() -> int:
    """Play the scenarios and print the table."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.rollout_matrix", description=__doc__)
    parser.add_argument("words", nargs="*", help="play only scenarios whose title has one of these in it")
    words = parser.parse_args().words
    chosen = [one for one in SCENARIOS if not words or any(word in one.title for word in words)]
    begun = time.monotonic()
    rows = asyncio.run(_run(chosen))
    print(table(rows))
    print(f"\n{sum(row.requests for row in rows)} requests, {sum(row.failed for row in rows)} failed,", end=" ")
    print(f"{RATE:g} requests/s through a real Envoy; {time.monotonic() - begun:.0f} s (sandbox on one machine)")
    return 1 if any(row.failed or not row.right for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
