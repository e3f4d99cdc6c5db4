"""The story of the demo: v1 is applied, load comes, v2 is promoted, v3 is rolled back."""

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from e2e.demo.load import Answer, LoadGenerator
from e2e.demo.manifest import CLAIM, MODEL, NAMESPACE, claim, goldens, model_deployment
from e2e.demo.models import Artefact, Digits, build, load_scans
from e2e.demo.picture import draw
from e2e.demo.summary import Summary, latency_of, shares
from e2e.demo.table import Screen
from e2e.demo.timeline import Look, Timeline
from e2e.sandbox.binaries import kubectl_path
from e2e.sandbox.children import Child
from e2e.sandbox.cluster import Cluster

__all__ = ["Story", "start_operator"]

BASE_RATE = 30.0
PEAK_RATE = 110.0
"""Requests per second: below one replica's target of 40, then nearly three times it."""
RAMP_BEGINS, RAMP_SECONDS = 8.0, 12.0


def rate(seconds: float) -> float:
    """The load: low at first, so that scaling can be seen."""
    ramp = min(max((seconds - RAMP_BEGINS) / RAMP_SECONDS, 0.0), 1.0)
    return BASE_RATE + (PEAK_RATE - BASE_RATE) * ramp


def claim_folder(cluster: Cluster) -> Path:
    """Where the sandbox keeps the claim's files; raises ValueError in a cluster that is no sandbox."""
    if cluster.data_dir is None:
        raise ValueError("the demo puts its models into a claim of the sandbox; unset KUBECONFIG")
    return cluster.data_dir / "node" / "claims" / NAMESPACE / CLAIM


async def start_operator(
    cluster: Cluster,
    folder: Path,
    *flags: str,
    name: str = "operator",
    kubeconfig: Path | None = None,
    module: str = "slipway.cli",
) -> Child:
    """The operator as a process of its own, as it would run in a pod; more `flags` win over those given here.

    It has the administrator's rights unless `kubeconfig` gives it others.
    """
    argv = [
        *(sys.executable, "-m", module, "run"),
        *("--prometheus-url", cluster.prometheus_url, "--http-port", "0", "--tick", "1", "--rate-window", "10"),
        *("--lease-namespace", "default", "--log-format", "json"),
        # So that one that is started after a kill -9 leads on at once, as a restarted container does.
        *("--identity", name),
        *flags,
    ]
    environment = {"KUBECONFIG": str(kubeconfig or cluster.kubeconfig)}
    return await Child.start(name, argv, folder / "logs", env=environment)


@dataclass
class Story:
    """One run of the demo in a running cluster."""

    cluster: Cluster
    folder: Path
    screen: Screen
    picture: Path
    summary: Summary = field(default_factory=Summary)
    marks: list[tuple[float, str]] = field(default_factory=list)
    artefacts: dict[str, Artefact] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    timeline: Timeline | None = None

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl; raises RuntimeError with what it printed when it fails."""
        process = await asyncio.create_subprocess_exec(
            str(kubectl_path()),
            *("--kubeconfig", str(self.cluster.kubeconfig), *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate(stdin.encode())
        if process.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {output.decode()}")
        return output.decode()

    async def apply(self, *objects: dict[str, Any]) -> None:
        """kubectl apply."""
        documents = "\n---\n".join(json.dumps(item) for item in objects)
        await self.kubectl("apply", "--server-side", "-f", "-", stdin=documents)

    async def run(self) -> Summary:
        """Tell it from the beginning to the end; raises TimeoutError when something does not happen."""
        self.screen.say("training three versions of a digit classifier")
        digits = await asyncio.to_thread(load_scans)
        self.artefacts = await asyncio.to_thread(build, claim_folder(self.cluster))
        accuracy = ", ".join(f"{name} {item.accuracy:.1%}" for name, item in self.artefacts.items())
        self.screen.say(f"models trained on scikit-learn's digits; right answers on held-out scans: {accuracy}")
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(self.cluster.client())
            self.timeline = Timeline(client)
            await self._first_version()
            watching = asyncio.create_task(self.timeline.run())
            stack.callback(watching.cancel)
            drawing = asyncio.create_task(self._draw_table())
            stack.callback(drawing.cancel)
            await self._under_load(digits)
        self._sum_up()
        await asyncio.to_thread(draw, self.timeline.looks, self.answers, self.marks, self.picture)
        return self.summary

    async def _first_version(self) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await self.apply(namespace)
        await self.apply(claim(), *(goldens(artefact) for artefact in self.artefacts.values()))
        self.screen.say("kubectl apply: v1 (TorchScript, one replica on a simulated GPU)")
        begun = time.time()
        await self.apply(model_deployment(self.artefacts, ("v1",), "v1"))
        await self._first_prediction()
        self.summary.first_prediction_seconds = time.time() - begun
        self.screen.say(f"first prediction through Envoy after {self.summary.first_prediction_seconds:.1f} s")
        await self.kubectl("-n", NAMESPACE, "wait", f"mdep/{MODEL}", "--for=condition=Ready", "--timeout=300s")

    async def _first_prediction(self) -> None:
        request = json.loads(self.artefacts["v1"].goldens.read_text())[0]["request"]
        async with asyncio.timeout(300), aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.post(self._url, json=request, headers={"Host": self._host}) as response:
                        if response.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)

    @property
    def _url(self) -> str:
        return f"{self.cluster.gateway_url}/v2/models/{MODEL}/infer"

    @property
    def _host(self) -> str:
        return f"{MODEL}.{NAMESPACE}.svc.cluster.local"

    async def _under_load(self, digits: Digits) -> None:
        load = LoadGenerator(
            self.cluster.gateway_url, self._host, MODEL, rate, digits.test, digits.test_labels, self.answers
        )
        stop = asyncio.Event()
        sending = asyncio.create_task(load.run(stop))
        try:
            await self._chapters()
        finally:
            stop.set()
            await sending
            self.summary.sent = load.sent

    async def _chapters(self) -> None:
        timeline = self.timeline
        if timeline is None:
            return
        self._mark("v1")
        self.screen.say(
            f"load: {BASE_RATE:.0f} requests per second, rising to {PEAK_RATE:.0f}; one replica is given 40"
        )
        await timeline.until("scaling of v1 to 3 replicas", _ready("v1", 3), 300)
        self.screen.say("v1 has been scaled to 3 replicas; v2 (torch.export, larger network) is served next")
        self._mark("serve v2")
        await self.apply(model_deployment(self.artefacts, ("v1", "v2"), "v2"))
        await timeline.until("promotion of v2", _outcome("v2", "Promoted"), 400)
        self.summary.promoted = True
        self._mark("promoted")
        self.screen.say("v2 was promoted on evidence; v3, broken on purpose, is served next")
        await asyncio.sleep(3)
        self._mark("serve v3")
        await self.apply(model_deployment(self.artefacts, ("v1", "v2", "v3"), "v3"))
        await timeline.until("rollback of v3", _outcome("v3", "RolledBack"), 300)
        self.summary.rolled_back = True
        self._mark("rolled back")
        rollout = timeline.now.rollout
        self.screen.say(f"v3 was rolled back: {rollout.get('reason')}: {rollout.get('message')}")
        await asyncio.sleep(4)

    def _mark(self, word: str) -> None:
        self.marks.append((time.time(), word))

    async def _draw_table(self) -> None:
        while True:
            if self.timeline is not None:
                self.screen.show(self.timeline.now, self.answers)
            await asyncio.sleep(0.5)

    def _sum_up(self) -> None:
        looks = self.timeline.looks if self.timeline is not None else []
        summary = self.summary
        served_v3 = next((at for at, word in self.marks if word == "serve v3"), time.time())
        for answer in self.answers:
            if answer.code == 200:
                continue
            if answer.at < served_v3 and answer.version != "v3":
                summary.failed_before_broken += 1
            elif answer.version == "v3":
                summary.failed_by_broken += 1
            else:
                summary.failed_by_others += 1
        summary.shares = shares(looks, self.answers)
        summary.p99_seconds = latency_of(self.answers)
        summary.accuracy = {version: _accuracy(self.answers, version) for version in ("v1", "v2", "v3")}
        summary.most_replicas = max((int(look.status.get("replicas", 0)) for look in looks), default=0)
        bad = [answer.at + answer.seconds for answer in self.answers if answer.version == "v3" and answer.code != 200]
        gone = [look.at for look in looks if look.rollout.get("to") == "v3" and look.rollout.get("outcome")]
        zero = [at for at in gone if _weight_at(looks, at, "v3") == 0]
        if bad and zero:
            summary.harm_to_zero_seconds = max(0.0, zero[0] - min(bad))


def _weight_at(looks: list[Look], at: float, version: str) -> int:
    return next(look.weight(version) for look in looks if look.at == at)


def _accuracy(answers: list[Answer], version: str) -> float:
    rights = [answer.right for answer in answers if answer.version == version and answer.right is not None]
    return float(np.mean(rights)) if rights else 0.0


def _ready(version: str, replicas: int) -> Any:
    return lambda look: int(look.versions.get(version, {}).get("readyReplicas", 0)) >= replicas


def _outcome(version: str, outcome: str) -> Any:
    return lambda look: (
        look.rollout.get("to") == version
        and (look.rollout.get("outcome") == outcome and look.rollout.get("stage") == "Finished")
    )
