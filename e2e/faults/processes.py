"""Real operator processes, killed, stopped and cut off while requests go through a real Envoy in a sandbox."""

import asyncio
import contextlib
import itertools
import json
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from e2e.bench.valve import Valve
from e2e.demo.load import Answer
from e2e.demo.story import start_operator
from e2e.faults.table import Row
from e2e.sandbox.children import REPOSITORY_ROOT, Child
from e2e.sandbox.cluster import Sandbox, User
from e2e.sandbox.controllers.client import NAMESPACES
from tests.integration.bench import Bench, failures
from tests.integration.models import build
from tests.integration.role import LEASE_NAMESPACE, objects

__all__ = ["every_process"]

NAMESPACE = "faults"
RATE = 40.0
"""Requests per second."""
KILLS = (1, 3, 6, 9, 12, 15, 18, 21, 24)
"""Writes after which the process is killed, of some 25 in a rollout."""
ASLEEP = 30.0
"""Seconds for which a leader is stopped or cut off: twice its lease."""
AWAY = 120.0
ONE = User.service_account("slipway-system", "slipway")
TWO = User.service_account("slipway-system", "standby")


def _spec(hold: str) -> dict[str, Any]:
    steps = [{"weight": 25, "hold": hold}, {"weight": 50, "hold": "2s"}]
    return {"rollout": {"steps": steps, "keepPrevious": "1s"}}


STEPS, SLOW = _spec("2s"), _spec("40s")


@dataclass
class Stage:
    """The sandbox with one namespace, and operators by name."""

    bench: Bench
    sandbox: Sandbox
    folder: Path
    running: dict[str, Child] = field(default_factory=dict)
    answered: int = 0
    lost: list[Answer] = field(default_factory=list)

    async def start(self, name: str = "operator", user: User = ONE, kubeconfig: Path | None = None) -> None:
        """Start ``slipway run``."""
        kubeconfig = kubeconfig or self.sandbox.kubeconfig_for(user.name)
        self.running[name] = await start_operator(
            self.sandbox, self.folder, "--lease-namespace", LEASE_NAMESPACE, name=name, kubeconfig=kubeconfig
        )
        self.running[name].drain()

    async def start_victim(self, writes: int) -> Child:
        """Start one that dies after so many writes."""
        argv = [sys.executable, "-m", "e2e.faults.victim", str(writes), "--lease-namespace", LEASE_NAMESPACE]
        argv += ["--prometheus-url", self.sandbox.prometheus_url, "--http-port", "0", "--tick", "1"]
        argv += ["--rate-window", "10", "--identity", "operator"]
        env = {"KUBECONFIG": str(self.sandbox.kubeconfig_for(ONE.name))}
        child = await Child.start("victim", argv, self.folder / "logs", env=env)
        child.drain()
        return child

    async def stop(self, name: str = "operator") -> None:
        """SIGTERM."""
        await self.running.pop(name).stop()

    @contextlib.asynccontextmanager
    async def serving(self, name: str) -> AsyncIterator[None]:
        """v1 serves under load; every answer but 200 is lost."""
        await self.bench.apply(self.bench.declare(name, self.bench.version("v1"), serve="v1", **STEPS))
        await self.bench.serving(name)
        async with self.bench.load(name, RATE) as answers:
            yield
            await asyncio.sleep(1.0)
        self.answered += len(answers)
        self.lost += failures(answers)

    async def roll_out(self, name: str, steps: Mapping[str, Any]) -> None:
        """Declare v2."""
        versions = [self.bench.version("v1"), self.bench.version("v2", "good-2")]
        await self.bench.apply(self.bench.declare(name, *versions, serve="v2", **steps))

    async def at_first_step(self, name: str) -> None:
        """Wait until v2 stands at its first weight."""
        await self.bench.until(name, "v2 at 25 %", lambda s: s["rollout"]["to"] == "v2" and s["weight"] == 25)
        await self.bench.until(name, "v2 observed", lambda s: s["rollout"]["stage"] == "Observing")

    async def promoted(self, name: str) -> None:
        """Wait for the end; each step must have been there once."""
        await self.bench.finished(name, "v2", "Promoted", 150.0)
        await self.bench.until(name, "v1 gone", lambda s: [entry["name"] for entry in s["versions"]] == ["v2"], 90.0)
        history = [(entry["to"], entry["outcome"]) for entry in (await self.bench.status(name))["history"]]
        assert history == [("v1", "Promoted"), ("v2", "Promoted")], history


async def killed(stage: Stage, name: str, writes: int) -> str:
    """A rollout whose operator is killed after its n-th write, and another that ends it."""
    await stage.start()
    async with stage.serving(name):
        await stage.stop()
        victim = await stage.start_victim(writes)
        await stage.roll_out(name, STEPS)
        async with asyncio.timeout(120):
            assert await victim.process.wait() == -signal.SIGKILL
        await stage.start()
        async with stage.bench.timeline(name) as timeline:
            await stage.promoted(name)
        steps = [look.rollout["step"] for look in timeline.looks if look.rollout]
        assert all(0 <= after - before <= 1 for before, after in itertools.pairwise(steps)), steps
    await stage.stop()
    return ""


def _written(stage: Stage, user: User) -> list[float]:
    """When an account asked for changes, its lease and Events apart."""
    assert stage.sandbox.data_dir is not None
    found = []
    for line in (stage.sandbox.data_dir / "apiserver" / "audit.log").read_text().splitlines():
        event = json.loads(line)
        of = event["user"]["username"] == user.name and event["objectRef"]["resource"] not in ("leases", "events")
        if of and event["verb"] not in ("get", "list", "watch"):
            found.append(datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp())
    return found


async def _succeeded(stage: Stage, name: str, since: float) -> str:
    """Wait until the standby has taken over and ended the rollout; the first leader must not have written since."""
    await stage.promoted(name)
    theirs = [at for at in _written(stage, TWO) if at > since]
    assert theirs, "the standby wrote nothing"
    late = [at for at in _written(stage, ONE) if at > theirs[0]]
    assert not late, f"the old leader wrote {len(late)} times after {theirs[0]:.1f}: {late[:3]}"
    return f"standby wrote {theirs[0] - since:.0f} s later"


async def stopped(stage: Stage, name: str) -> str:
    """SIGSTOP for twice the lease, then SIGCONT; a standby is there."""
    await stage.start("one")
    async with stage.serving(name):
        await stage.start("two", TWO)
        await stage.roll_out(name, SLOW)
        await stage.at_first_step(name)
        begun = datetime.now().timestamp()
        stage.running["one"].process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(ASLEEP)
        stage.running["one"].process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(30):
            code = await stage.running["one"].process.wait()
        said = await _succeeded(stage, name, begun)
    assert code == 1, code
    stage.running.pop("one")
    await stage.stop("two")
    return f"{said}; the old leader ended with exit code {code} when it woke"


async def cut_off(stage: Stage, name: str) -> str:
    """The leader's way to the API server is cut for twice the lease; a standby is there."""
    valve = Valve(stage.sandbox.api_url)
    await valve.open()
    config = yaml.safe_load(stage.sandbox.kubeconfig_for(ONE.name).read_text())
    for entry in config["clusters"]:
        entry["cluster"]["server"] = valve.url.replace("http://", "https://")
    path = stage.folder / "valve.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    await stage.start("one", kubeconfig=path)
    async with stage.serving(name):
        await stage.start("two", TWO)
        await stage.roll_out(name, SLOW)
        await stage.at_first_step(name)
        begun = datetime.now().timestamp()
        await valve.shut()
        async with asyncio.timeout(ASLEEP):
            code = await stage.running["one"].process.wait()
        seconds = datetime.now().timestamp() - begun
        await valve.open()
        said = await _succeeded(stage, name, begun)
    stage.running.pop("one")
    await stage.stop("two")
    await valve.shut()
    return f"the leader ended after {seconds:.0f} s (exit code {code}), {said}"


async def api_away(stage: Stage, name: str) -> str:
    """The API server is away for two minutes; the operator is started again whenever it ends, as by a kubelet."""
    await stage.start()
    ends: list[int] = []

    async def supervise() -> None:
        while True:
            ends.append(await stage.running["operator"].process.wait())
            await asyncio.sleep(2.0)
            await stage.start()

    async with stage.serving(name):
        await stage.roll_out(name, STEPS)
        await stage.at_first_step(name)
        supervision = asyncio.create_task(supervise())
        await stage.sandbox.child("apiserver").stop()
        await asyncio.sleep(AWAY)
        await stage.sandbox.restart("apiserver")
        begun = asyncio.get_running_loop().time()
        await stage.promoted(name)
        seconds = asyncio.get_running_loop().time() - begun
        supervision.cancel()
        await asyncio.gather(supervision, return_exceptions=True)
    await stage.stop()
    return f"{len(ends)} restarts, promoted {seconds:.0f} s after it was back"


Play = Callable[[Stage, str], Awaitable[str]]
"""Told the name of its ModelDeployment; gives figures in words."""

PLAYS: Sequence[tuple[str, str, str, Play]] = (
    ("leader stopped for 30 s", "SIGSTOP and SIGCONT, a standby", "never two writers (audit log)", stopped),
    ("leader cut off", "proxy before the API server shut, a standby", "never two writers (audit log)", cut_off),
    ("API server away for 2 min, processes", "API server ended and started again", "promoted", api_away),
)


@contextlib.asynccontextmanager
async def _stage() -> AsyncIterator[Stage]:
    folder = REPOSITORY_ROOT / ".slipway" / "faults"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    async with Sandbox(users=(ONE, TWO)) as sandbox, sandbox.client("faults") as client:
        stage = Stage(Bench(sandbox, client, NAMESPACE, build()), sandbox, folder)
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        documents = objects()
        documents[-1]["subjects"] = [
            subject | {"name": user.name} for user in (ONE, TWO) for subject in documents[-1]["subjects"]
        ]
        code, said = await stage.bench.kubectl("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, documents)))
        assert code == 0, said
        try:
            yield stage
        finally:
            for child in stage.running.values():
                await child.stop()


async def every_process(words: list[str]) -> list[Row]:
    """Kills at a sample of writes, then the others whose title has one of the words in it."""
    rows = []
    async with _stage() as stage:
        if not words or "killed" in words:
            rows.append(await _kills(stage))
        for title, injected, holds, play in PLAYS:
            if words and not any(word in title for word in words):
                continue
            rows.append(
                await _row(stage, title, injected, f"{holds}, no request lost", [(title[:2] + str(len(rows)), play)])
            )
    return rows


async def _kills(stage: Stage) -> Row:
    plays = [(f"k{number}", _killer(number)) for number in KILLS]
    injected = f"SIGKILL after write {', '.join(map(str, KILLS))} of a rollout"
    return await _row(stage, "operator killed", injected, "promoted, no step skipped, no request lost", plays)


def _killer(number: int) -> Play:
    return lambda stage, name: killed(stage, name, number)


async def _row(stage: Stage, title: str, injected: str, holds: str, plays: Sequence[tuple[str, Play]]) -> Row:
    stage.answered, stage.lost = 0, []
    problems, notes = [], []
    for name, play in plays:
        before = len(stage.lost)
        try:
            notes.append(await play(stage, name.lower()))
        except Exception as error:
            # Whatever it was, the other plays are to be tried as well.
            problems.append(f"{name}: {error!r}"[:1500])
            for child in stage.running.values():
                await child.stop()
            stage.running.clear()
        if len(stage.lost) > before:
            problems.append(f"{name}: {len(stage.lost) - before} requests lost: {stage.lost[before]}")
        print(name, notes[-1:], problems, file=sys.stderr, flush=True)
    note = "; ".join(filter(None, [f"{stage.answered} requests, {len(stage.lost)} failed", *notes]))
    return Row(title, injected, holds, len(plays), tuple(problems), note)
