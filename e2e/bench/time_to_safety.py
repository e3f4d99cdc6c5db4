"""How long a bad candidate gets traffic: ``python -m e2e.bench.time_to_safety``.

A sandbox with a real Envoy and a real Prometheus, the operator, and a steady load through the gateway. Each run rolls
out a new version of a bad artefact and measures from the end of its first bad answer to the moment at which the router
holds weight 0 for it, and counts the requests that were served badly. Exit code 1 if a run was not rolled back.
"""

import argparse
import asyncio
import contextlib
import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.bench.router_watch import RouterWatch
from e2e.bench.safety_models import SLOWER, write
from e2e.demo.load import Answer
from e2e.demo.story import start_operator
from e2e.demo.timeline import Look
from e2e.sandbox.children import REPOSITORY_ROOT, Child
from e2e.sandbox.cluster import Sandbox
from e2e.sandbox.controllers.client import NAMESPACES
from tests.integration.bench import MODEL_DEPLOYMENTS, Bench

RATE = 60.0
"""Requests per second."""
WEIGHT = 25
NAMESPACE = "safety"
START_SECONDS = 90.0
"""Longest wait for the first weight of a candidate."""
PATIENCE = 120.0
"""Seconds after its first weight; a candidate that still has traffic then was not rolled back."""
STRAGGLERS = 2.0
"""Seconds in which the last requests are answered."""
NOWHERE = "http://127.0.0.1:9"
"""A Prometheus that nobody can reach."""
RESTART_BACKOFF, RESTART_BACKOFF_CAP = 10.0, 300.0
"""The kubelet's own, in seconds."""


@dataclass(frozen=True, slots=True)
class Case:
    """One way to be bad."""

    name: str
    title: str
    candidate: str
    """Artefact of the candidates."""
    stable: str = "good"
    threshold: str = "300ms"
    slow: float = math.inf
    """Seconds above which an answer of the candidate is a bad one, beside those that are no 200."""
    metrics: bool = True
    """Whether the operator can reach Prometheus."""


CASES = (
    Case("errors-50", "errors, 50 % of the candidate's answers", "errors-50"),
    Case("errors-5", "errors, 5 % of the candidate's answers", "errors-5"),
    Case("latency", f"latency x{SLOWER}", "slow", "waiting", threshold="100ms", slow=0.1),
    Case("crash-loop", "crash loop, Prometheus down", "crashing", metrics=False),
)


@dataclass(frozen=True, slots=True)
class Run:
    """What one candidate did until it had no traffic."""

    seconds: float
    """From the first bad answer to weight 0 for good; infinite if it was not rolled back."""
    weighted: float
    """Seconds in which it had weight at all: a candidate without a ready pod has none for the time being."""
    bad: int
    """Requests that were served badly."""
    why: str


class Trial:
    """The runs of one case, one after the other, with a ModelDeployment of their own."""

    def __init__(self, bench: Bench, case: Case):
        self.bench = bench
        self.case = case

    def declare(self, serve: str) -> dict[str, Any]:
        """The object with v1 and the version to serve."""
        checks = [
            {"name": "errors", "metric": "errorRate", "maxRatio": 1.5, "maxValue": "0.02"},
            {"name": "latency", "metric": "latency", "threshold": self.case.threshold},
        ]
        # As in the image: bytecode beside a handler would change the artefact's digest.
        runtime = {"env": [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}]}
        versions = [self.bench.version("v1", self.case.stable)]
        if serve != "v1":
            versions.append(self.bench.version(serve, self.case.candidate))
        rollout = {"steps": [{"weight": WEIGHT, "hold": "10m"}], "analysis": {"interval": "2s", "checks": checks}}
        return self.bench.declare(self.case.name, *versions, serve=serve, rollout=rollout, runtime=runtime)

    async def runs(self, count: int) -> list[Run]:
        """Roll out as many candidates; prints each as it is done."""
        name = self.case.name
        await self.bench.apply(self.declare("v1"))
        await self.bench.serving(name, seconds=START_SECONDS)
        runs = []
        async with self.bench.load(name, RATE) as answers:
            for number in range(count):
                run = await self._run(f"v{number + 2}", answers)
                why = run.why.partition("\n")[0][:300]
                print(f"{name} {number + 1}: {run.seconds:.1f} s, {run.bad} bad requests, {why}", flush=True)
                runs.append(run)
        await self.bench.delete(MODEL_DEPLOYMENTS, name)
        return runs

    async def _run(self, version: str, answers: list[Answer]) -> Run:
        begun, before = time.time(), len(answers)
        router = RouterWatch(f"{self.case.name}-{version}-")
        async with (
            self.bench.timeline(self.case.name) as timeline,
            router.running(self.bench.client, NAMESPACE, self.case.name),
        ):
            await self.bench.apply(self.declare(version))
            async with asyncio.timeout(START_SECONDS):
                await router.has_weight()
            with contextlib.suppress(TimeoutError):
                await timeline.until(f"the end of {version}", lambda look: _finished(look, version), PATIENCE)
            await asyncio.sleep(STRAGGLERS)
        rollout = timeline.now.rollout
        bad = [answer for answer in answers[before:] if answer.at >= begun and self._bad(answer, version)]
        why = f"{rollout.get('outcome') or 'undecided'}: {rollout.get('reason')}: {rollout.get('message')}"
        if rollout.get("outcome") != "RolledBack" or not bad:
            return Run(math.inf, math.inf, len(bad), why)
        first = min(answer.at + answer.seconds for answer in bad)
        return Run(router.zero_at - first, router.seconds_with_weight, len(bad), why)

    def _bad(self, answer: Answer, version: str) -> bool:
        """Failures are all the candidate's doing: where it has no pod, Envoy fails in its stead."""
        return answer.code != 200 or (answer.version == version and answer.seconds > self.case.slow)


def _finished(look: Look, version: str) -> bool:
    return look.rollout.get("to") == version and look.rollout.get("stage") == "Finished"


def _number(value: float, places: int) -> str:
    return "never" if math.isinf(value) else f"{value:.{places}f}"


def _numbers(values: Sequence[float], places: int) -> str:
    """The median, and each of them."""
    return f"{_number(statistics.median(values), places)} | {', '.join(_number(value, places) for value in values)}"


def lines(results: Sequence[tuple[Case, Sequence[Run]]]) -> list[str]:
    """The table, in Markdown."""
    head = (
        "case",
        "seconds to weight 0, median",
        "each",
        "bad requests, median",
        "each",
        "seconds with weight, median",
    )
    rows = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for case, runs in results:
        seconds = _numbers([run.seconds for run in runs], 1)
        bad = _numbers([float(run.bad) for run in runs], 0)
        rows.append(
            f"| {case.title} | {seconds} | {bad} | {_number(statistics.median(run.weighted for run in runs), 1)} |"
        )
    return rows


async def _measure(cases: Sequence[Case], count: int, folder: Path) -> list[tuple[Case, list[Run]]]:
    results = []
    models = await asyncio.to_thread(write, folder / "models")
    async with (
        Sandbox(
            scrape_interval=1.0, restart_backoff=RESTART_BACKOFF, restart_backoff_cap=RESTART_BACKOFF_CAP
        ) as sandbox,
        sandbox.client("bench") as client,
    ):
        await client.request(
            "POST", NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        bench = Bench(sandbox, client, NAMESPACE, models)
        for case in cases:
            operator = await _start_operator(sandbox, folder, case)
            try:
                results.append((case, await Trial(bench, case).runs(count)))
            finally:
                await operator.stop()
    return results


async def _start_operator(sandbox: Sandbox, folder: Path, case: Case) -> Child:
    prometheus = sandbox.prometheus_url if case.metrics else NOWHERE
    flags = ("--prometheus-url", prometheus, "--tick", "1", "--rate-window", "10")
    operator = await start_operator(sandbox, folder, *flags)
    operator.drain()
    return operator


def main() -> int:
    """Measure all cases and print the table."""
    parser = argparse.ArgumentParser(description="Measure how long bad candidates get traffic.")
    parser.add_argument("--runs", type=int, default=5, help="runs of each case (default: 5)")
    parser.add_argument("--cases", default="", help="names of cases, separated by commas (default: all)")
    parser.add_argument("--out", type=Path, default=REPOSITORY_ROOT / ".slipway" / "bench", help="folder for the table")
    parsed = parser.parse_args()
    named = parsed.cases.split(",") if parsed.cases else [case.name for case in CASES]
    cases = [case for case in CASES if case.name in named]
    begun = time.monotonic()
    results = asyncio.run(_measure(cases, parsed.runs, parsed.out.resolve() / "safety"))
    table = lines(results)
    print("\n".join(["", *table]))
    (parsed.out / "time-to-safety.md").write_text("\n".join(table) + "\n")
    print(f"\ntook {time.monotonic() - begun:.0f} s; wrote {parsed.out / 'time-to-safety.md'}")
    return 1 if any(math.isinf(run.seconds) for _, runs in results for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
