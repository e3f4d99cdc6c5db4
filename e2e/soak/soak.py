"""One soak from an empty sandbox to an empty sandbox."""

import asyncio
import collections
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from e2e.bench.valve import Valve
from e2e.demo.load import Answer
from e2e.sandbox.cluster import Sandbox
from e2e.sandbox.controllers.client import NAMESPACES, ApiError
from e2e.soak.acts import ACTS, BAD, MAIN, VISITOR, Scene, declared
from e2e.soak.pair import USERS, Pair
from e2e.soak.report import Report
from e2e.soak.witnesses import Watchman, disagreements, grown, lost, orphans, two_writers
from tests.integration.bench import MODEL_DEPLOYMENTS, Bench
from tests.integration.models import build
from tests.integration.role import objects

__all__ = ["soak"]

NAMESPACE = "soak"
RATE = 20.0
"""Requests per second."""
SHORTEST, LONGEST = 0.5, 4.0
"""Seconds between two acts."""
REST = 240.0
"""Seconds in which everything must come to rest once it is left alone."""
COLLECTED = 180.0
"""Seconds in which everything that belongs to a deleted ModelDeployment must be gone."""
FIRST = 240.0
SHOWN = 5

Say = Callable[[str], None]


async def soak(folder: Path, seed: int, seconds: float, say: Say = lambda _: None, *, kinds: int = 0) -> Report:
    """Act at random for so many seconds, longer where they were too few for so many kinds of acts; then rest.

    ``folder`` is for logs.
    """
    report = Report(seed)
    begun = time.monotonic()
    async with _scene(folder, seed) as scene:
        watchman = Watchman(scene)
        await scene.bench.apply(declared(scene, MAIN, "v1"))
        await scene.bench.serving(MAIN, "v1", FIRST)
        watching = asyncio.create_task(watchman.run())
        history = asyncio.create_task(_count_rollouts(scene, report))
        async with scene.bench.load(MAIN, RATE) as answers:
            await _play(scene, report, seconds, kinds, say)
            await _come_to_rest(scene, report, say)
        history.cancel()
        await asyncio.gather(*scene.tasks)
        _take_answers(scene, report, answers)
        report.problems += await _end(scene)
        await _stop(watching, report)
        report.problems += watchman.problems
        report.looks = watchman.looks
        await _take_operators(scene, report)
    report.seconds = time.monotonic() - begun
    return report


@contextlib.asynccontextmanager
async def _scene(folder: Path, seed: int) -> AsyncIterator[Scene]:
    async with Sandbox(users=USERS, restart_backoff=0.5) as sandbox, sandbox.client("soak") as client:
        bench = Bench(sandbox, client, NAMESPACE, build())
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        documents = objects()
        documents[-1]["subjects"] = [
            subject | {"name": user.name} for user in USERS for subject in documents[-1]["subjects"]
        ]
        code, said = await bench.kubectl("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, documents)))
        if code:
            raise RuntimeError(said)
        prometheus = Valve(sandbox.prometheus_url)
        await prometheus.open()
        sandbox.prometheus_url = prometheus.url
        try:
            async with Pair(sandbox, folder).running() as pair:
                # Predictable on purpose: the same seed draws the same course.
                yield Scene(bench, sandbox, pair, prometheus, random.Random(seed))  # noqa: S311
        finally:
            await prometheus.shut()


async def _play(scene: Scene, report: Report, seconds: float, kinds: int, say: Say) -> None:
    shares, acts = zip(*ACTS, strict=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(report.acts) < kinds:
        (chosen,) = scene.draw.choices(acts, shares)
        name = chosen.__name__.replace("_", " ")
        try:
            said = await chosen(scene)
        except ApiError as error:
            # Another act, or an operator, was faster.
            if not (error.conflict or error.not_found):
                raise
            said = str(error)
        report.acts[name] += 1
        say(f"{end - time.monotonic():6.0f} s left  {name}: {said}")
        await asyncio.sleep(scene.draw.uniform(SHORTEST, LONGEST))


async def _come_to_rest(scene: Scene, report: Report, say: Say) -> None:
    """Serve what is stable; within a while status must agree with the cluster, and go on doing so."""
    say("coming to rest")
    await scene.sandbox.set_propagation_delay(0.1)
    status = await scene.bench.status(MAIN)
    await scene.bench.apply(declared(scene, MAIN, status.get("stable") or "v1"))
    found = ["never at rest"]
    end = time.monotonic() + REST
    while found and time.monotonic() < end:
        await asyncio.sleep(1.0)
        status = await scene.bench.status(MAIN)
        found = [f"phase {status.get('phase')}"] if status.get("phase") != "Ready" else await disagreements(scene)
    report.problems += [f"at rest: {text}" for text in found]
    if found:
        report.problems.append(f"status at rest: {json.dumps(status)[:3000]}")


async def _count_rollouts(scene: Scene, report: Report) -> None:
    """Count the ends of rollouts as they come; status keeps only the last ones."""
    seen: set[str] = set()
    while True:
        with contextlib.suppress(ApiError):
            for entry in (await scene.bench.status(MAIN)).get("history") or ():
                if entry["id"] not in seen:
                    seen.add(entry["id"])
                    report.rollouts[entry["outcome"]] += 1
                    if (entry["to"], entry["outcome"]) == (BAD, "Promoted"):
                        report.problems.append(f"a bad version was promoted: {entry}")
        await asyncio.sleep(1.0)


def _take_answers(scene: Scene, report: Report, answers: list[Answer]) -> None:
    inexcusable, report.excused = lost(answers, scene.windows)
    report.requests = len(answers)
    report.windows = sum(window.end - window.begin for window in scene.windows)
    kinds = collections.Counter(_described(answer) for answer in inexcusable)
    for answer in inexcusable[:SHOWN]:
        report.problems.append(f"request lost at {time.strftime('%H:%M:%S', time.localtime(answer.at))}: {answer}")
    report.problems += [f"request lost {count} times: {kind}" for kind, count in kinds.items()]


def _described(answer: Answer) -> str:
    return f"{answer.code} of {answer.version or 'nobody'} {answer.error}"


async def _end(scene: Scene) -> list[str]:
    """Delete both; nothing may be left of them."""
    for name in (MAIN, VISITOR):
        with contextlib.suppress(ApiError):
            await scene.bench.delete(MODEL_DEPLOYMENTS, name)
    return [*await orphans(scene, MAIN, COLLECTED), *await orphans(scene, VISITOR, COLLECTED)]


async def _stop(watching: asyncio.Task[None], report: Report) -> None:
    """End the watch; one that has ended by itself has seen nothing since."""
    watching.cancel()
    (outcome,) = await asyncio.gather(watching, return_exceptions=True)
    if not isinstance(outcome, asyncio.CancelledError):
        report.problems.append(f"the watch of routes ended early: {outcome!r}")


async def _take_operators(scene: Scene, report: Report) -> None:
    assert scene.sandbox.data_dir is not None
    audit = scene.sandbox.data_dir / "apiserver" / "audit.log"
    problems, report.writes = two_writers(audit, [user.name for user in USERS])
    report.problems += problems
    problems, report.megabytes = grown(scene.pair.samples)
    report.problems += problems
    report.operators = len(scene.pair.ends)
    report.problems += [f"operator {name} ended with {code}" for name, code in scene.pair.unexpected]
    for name in scene.pair.valves:
        log = (scene.pair.folder / "logs" / f"{name}.log").read_text()
        report.problems += [
            f"operator {name}: {line[:400]}"
            for line in log.splitlines()
            if "a defect of" in line or "reconcile failed" in line
        ]
