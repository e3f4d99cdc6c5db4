"""Reloading a model of 50 MB under load, 100 reloads in a row, a long run, and SIGTERM: failures, latency, memory.

Run by `make bench-reload`. Every answer is checked: it is the old model's or the new one's, never neither.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import math
import os
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import uvloop

from e2e.bench.steady_load import Answer, SteadyLoad, percentile

_HOST = "127.0.0.1"
_ROOT = Path(__file__).parents[2]
_WEIGHTS = 12_500_000
_MIB = 1 << 20
_SOAK_RATE = 4000.0
_SOAK_GOAL = 4.0
"""MiB that a long run may add."""
_CONFIG = """
inputs: [{{name: x, datatype: FP32, shape: [-1, 4]}}]
outputs: [{{name: y, datatype: FP32, shape: {shape}}}]
"""
_BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1.0] * 4}]}).encode()


class Table(torch.nn.Module):
    """50 MB of weights, all equal to `factor`, of which an execution reads a few: cheap to run, not to load."""

    def __init__(self, factor: float, columns: int = 4) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((_WEIGHTS // columns, columns), factor), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows of four numbers, times the factor."""
        return x * self.weight[0]


class Other(torch.nn.Module):
    """As large, with an output of another rank: it is loaded and warmed before it is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((_WEIGHTS // 4, 4), 1.0), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same with one dimension more."""
        return (x * self.weight[0]).unsqueeze(1)


@dataclass(frozen=True)
class Server:
    """A server process under test."""

    process: asyncio.subprocess.Process
    port: int

    def load(self, uri: str) -> int:
        """Load the model from there; the HTTP status. Blocks."""
        return self._post("/v2/repository/models/m/load", {"parameters": {"uri": uri}})

    def resident(self) -> float:
        """Memory of the process in MiB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / _MIB

    def descriptors(self) -> int:
        """Open files and connections."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def ready(self) -> bool:
        """Whether the server says so."""
        try:
            with urllib.request.urlopen(f"http://{_HOST}:{self.port}/v2/health/ready") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _post(self, path: str, document: object) -> int:
        url = f"http://{_HOST}:{self.port}{path}"
        request = urllib.request.Request(url, json.dumps(document).encode(), method="POST")
        try:
            with urllib.request.urlopen(request) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code


@contextlib.asynccontextmanager
async def served(model: Path, *flags: str, beside: Sequence[str] = ()) -> AsyncIterator[Server]:
    """A server of the model `m`, and of those `beside` it, that takes requests to load others."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "slipway_runtime", "serve", f"m={model}", *beside, "--host", _HOST]
    command += ["--http-port", str(port), "--grpc-port", "0", "--model-control", "explicit"]
    command += ["--allow-repository-changes", "--max-delay", "0", *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=_ROOT, env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    server = Server(process, port)
    try:
        while not await asyncio.to_thread(server.ready):
            if process.returncode is not None:
                raise RuntimeError(f"the server ended with {process.returncode}")
            await asyncio.sleep(0.05)
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def write_models(folder: Path) -> dict[str, Path]:
    """Two models that can take each other's place, one that cannot, and one that is cut off."""
    modules = {"two": Table(2.0), "three": Table(3.0), "other": Other()}
    models = {name: folder / name for name in (*modules, "cut")}
    for name, place in models.items():
        place.mkdir()
        shape = "[-1, 1, 4]" if name == "other" else "[-1, 4]"
        (place / "config.yaml").write_text(_CONFIG.format(shape=shape))
        if name in modules:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                torch.jit.script(modules[name]).save(str(place / "model.pt"))
    (models["cut"] / "model.pt").write_bytes((models["two"] / "model.pt").read_bytes()[: 4 * _MIB])
    return models


def failures(answers: list[Answer]) -> int:
    """Requests that were not answered by one of the two models."""
    return sum(answer.status != 200 or _value(answer) not in (2.0, 3.0) for answer in answers)


def _value(answer: Answer) -> float:
    return float(json.loads(answer.body)["outputs"][0]["data"][0])


async def swaps(models: dict[str, Path], count: int, rate: float, calm: float) -> bool:
    """Swap under load; whether nothing failed and latency stayed within the goal.

    Each swap is compared with the seconds before it, since the machine may have other things to do.
    """
    async with served(models["two"]) as server:
        load = SteadyLoad(_HOST, server.port, "/v2/models/m/infer", _BODY, rate)
        sending = asyncio.create_task(load.run())
        await asyncio.sleep(2.0)  # connections are open, caches are warm
        times = []
        for number in range(count):
            model = models["three" if number % 2 == 0 else "two"]
            quiet = time.monotonic()
            await asyncio.sleep(calm)
            begin = time.monotonic()
            status = await asyncio.to_thread(server.load, model.as_uri())
            loaded = time.monotonic()
            await asyncio.sleep(1.0)  # the one before the last is freed now
            times.append((quiet, begin, loaded, time.monotonic(), status))
        load.stop()
        await sending
    print(f"\n{count} swaps of a model of 50 MB under {rate:.0f} requests a second (milliseconds)\n")
    print("| | load | requests | failed | p50 | p99 | p99.9 | worst |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    before: list[Answer] = []
    during: list[Answer] = []
    for number, (quiet, begin, loaded, end, status) in enumerate(times, start=1):
        before += load.between(quiet, begin)
        during += load.between(begin, end)
        took = f"{1000 * (loaded - begin):.0f}" + ("" if status == 200 else f" ({status})")
        _row(f"before {number}", "", load.between(quiet, begin))
        _row(f"swap {number}", took, load.between(begin, end))
    _row("all before", "", before)
    _row("all swaps", "", during)
    ratio = percentile(during, 0.99) / percentile(before, 0.99)
    lost = failures(load.answers)
    print(f"\nfailed: {lost} of {len(load.answers)}; p99 during swaps is {ratio:.2f} times that before (goal: 2)")
    return lost == 0 and ratio <= 2 and all(status == 200 for *_, status in times)


def _row(name: str, load: str, answers: list[Answer]) -> None:
    shares = " | ".join(f"{1000 * percentile(answers, share):.2f}" for share in (0.5, 0.99, 0.999, 1.0))
    print(f"| {name} | {load} | {len(answers)} | {failures(answers)} | {shares} |")


async def memory(models: dict[str, Path], count: int) -> bool:
    """Load again and again, then fail again and again; whether memory stays within the goal."""
    size = (models["two"] / "model.pt").stat().st_size / _MIB
    goal = size / 10
    kinds = {
        "loads": [("three", 200), ("two", 200)],
        "failed loads (another signature)": [("other", 400)],
        "failed loads (a file that is cut off)": [("cut", 400)],
    }
    good = True
    print(f"\nmemory of the server, model of {size:.0f} MiB (MiB)\n")
    print("| | first | last | growth | goal |")
    print("| --- | --- | --- | --- | --- |")
    async with served(models["two"], "--rollback-window", "0") as server:
        for kind, turns in kinds.items():
            repeats = count if kind == "loads" else count // 2
            # The first few fill caches of the allocator and of torch.
            await _repeat(server, models, turns, 4)
            first = server.resident()
            await _repeat(server, models, turns, repeats)
            growth = server.resident() - first
            good = good and growth < goal
            print(f"| {repeats} {kind} | {first:.1f} | {first + growth:.1f} | {growth:+.1f} | < {goal:.1f} |")
    return good


async def _repeat(server: Server, models: dict[str, Path], turns: list[tuple[str, int]], count: int) -> None:
    for number in range(count):
        name, expected = turns[number % len(turns)]
        status = await asyncio.to_thread(server.load, models[name].as_uri())
        if status != expected:
            raise RuntimeError(f"loading {name} gave {status}, not {expected}")
    await asyncio.sleep(0.5)  # what was replaced last is freed


async def soak(models: dict[str, Path], requests: int, rate: float) -> bool:
    """Many requests, and a probe for every twenty of them; whether the server is no larger afterwards."""
    async with served(models["two"]) as server:
        load = SteadyLoad(_HOST, server.port, "/v2/models/m/infer", _BODY, rate)
        probes = SteadyLoad(_HOST, server.port, "/v2/health/ready", b"", rate / 20, connections=2, method="GET")
        sending = asyncio.gather(load.run(), probes.run())
        # The first tenth fills the allocator's caches and opens the connections.
        await load.answered(requests // 10)
        first = server.resident(), server.descriptors()
        await load.answered(requests)
        last = server.resident(), server.descriptors()
        load.stop()
        probes.stop()
        await sending
        lost = failures(load.answers) + sum(answer.status != 200 for answer in probes.answers)
    print(f"\n{len(load.answers)} requests and {len(probes.answers)} probes, failed: {lost}\n")
    print("| | after a tenth | at the end |")
    print("| --- | --- | --- |")
    print(f"| memory (MiB) | {first[0]:.1f} | {last[0]:.1f} |")
    print(f"| open files | {first[1]} | {last[1]} |")
    return lost == 0 and last[0] - first[0] < _SOAK_GOAL and last[1] <= first[1]


async def drain(models: dict[str, Path], seconds: float) -> bool:
    """End a server of two models with SIGTERM at full rate; whether nothing was lost.

    Clients do as a proxy does: they go on until the server is seen to be unready.
    """
    async with served(models["two"], beside=[f"other={models['three']}"]) as server:
        loads = [
            SteadyLoad(_HOST, server.port, f"/v2/models/{name}/infer", _BODY, math.inf, connections=8)
            for name in ("m", "other")
        ]
        sending = asyncio.gather(*(load.run() for load in loads))
        await asyncio.sleep(seconds)
        server.process.terminate()
        signalled = time.monotonic()
        await asyncio.to_thread(_await_unready, server)
        for load in loads:
            load.stop()
        await sending
        ended = await server.process.wait()
    answers = [answer for load in loads for answer in load.answers]
    before = sum(answer.due < signalled for answer in answers)
    lost = failures(answers)
    print(
        f"\nSIGTERM at {before / seconds:.0f} requests a second over two models: {len(answers)} requests, of which"
        f" {len(answers) - before} came after the signal; failed: {lost}; exit code {ended}"
    )
    return lost == 0 and ended == 0 and len(answers) > before


def _await_unready(server: Server) -> None:
    while server.ready():
        time.sleep(0.01)


async def _run(given: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory(prefix="slipway-reload-") as folder:
        models = await asyncio.to_thread(write_models, Path(folder))
        # Or this process' own collections, which look through all of torch, would be measured.
        gc.collect()
        gc.freeze()
        parts = [
            await swaps(models, given.swaps, given.rate, given.calm),
            await memory(models, given.loads),
            await soak(models, given.requests, _SOAK_RATE),
            *[await drain(models, 3.0) for _ in range(given.drains)],
        ]
        return all(parts)


def main() -> int:
    """Run the benchmark; 0 if all goals are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swaps", type=int, default=10)
    parser.add_argument("--rate", type=float, default=1000.0, help="requests a second")
    parser.add_argument("--calm", type=float, default=2.0, help="seconds measured before each swap")
    parser.add_argument("--loads", type=int, default=50)
    parser.add_argument("--requests", type=int, default=200_000, help="of the long run at the end")
    parser.add_argument("--drains", type=int, default=3)
    return 0 if uvloop.run(_run(parser.parse_args())) else 1


if __name__ == "__main__":
    sys.exit(main())
