"""One server, started on one core, asked from another; its answers verified before anything is measured."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

from e2e.bench.runtime import messages
from e2e.bench.runtime.environments import ROOT, weights
from e2e.bench.runtime.peers import Launch, Peer
from e2e.bench.runtime.served.models import MODELS, Arrays
from e2e.bench.runtime.workloads import Wire, Workload

_START_SECONDS = 90.0
_ERROR_SECONDS = 15.0
"""How long a server may answer with errors (404 or 503 while its model loads) before that is its answer."""
_MARK = "BENCH_RUN"
_URGENT = -20
_TICK = os.sysconf("SC_CLK_TCK")
_AVAILABLE = sorted(os.sched_getaffinity(0))
Exchanges = list[tuple[Arrays, Arrays]]


class Failed(Exception):  # noqa: N818 - what a server did
    """A server did not start, or answered wrongly."""


@dataclass(frozen=True)
class Pace:
    """Seconds of warming up and of measuring.

    ``urgent``: server and client go before all else on the machine while they are measured (which only root may ask
    for), because the machine is not idle.
    """

    warmup: float = 1.0
    seconds: float = 3.0
    urgent: bool = False


@dataclass(frozen=True)
class Sample:
    """One measurement. Latencies in seconds, CPU seconds of the server's whole process tree per request."""

    requests: int
    rate: float
    p50: float
    p99: float
    cpu: float
    errors: int


@dataclass(frozen=True)
class Server:
    """A running server and the ports it was given."""

    peer: Peer
    process: subprocess.Popen[bytes]
    launch: Launch
    mark: str


def cores() -> tuple[int, int]:
    """A core for the server and one for the client. Raises Failed on a machine with one."""
    if len(_AVAILABLE) < 2:
        raise Failed("the comparison needs two cores: one for the server, one for the client")
    return _AVAILABLE[0], _AVAILABLE[1]


@contextlib.contextmanager
def started(peer: Peer, model: str, batch: int) -> Iterator[Server]:
    """A server with a model; all of its processes are gone when the block is left. Raises Failed, NotInstalled."""
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="slipway-bench-", ignore_cleanup_errors=True) as name:
        launch = Launch(Path(name), *_free_ports(), model, batch)
        command = peer.start(launch)
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'runtime_image'}",
            "BENCH_MODEL": model,
            "BENCH_BATCH": str(batch),
            "BENCH_FILES": str(weights()),
            _MARK: mark,
            **command.environment,
        }
        words = ["taskset", "-c", str(cores()[0]), *command.words]
        log = Path(name) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                words, cwd=name, env=environment, stdout=output, stderr=output, start_new_session=True
            )
        try:
            yield Server(peer, process, launch, mark)
        except Failed as failure:
            tail = log.read_text(errors="replace")[-1500:]
            raise Failed(f"{failure}\n{tail}") from failure
        finally:
            _end(process, mark)


def _free_ports() -> tuple[int, int, int]:
    """Ports that are free now, all different."""
    with contextlib.ExitStack() as probes:
        found = []
        for _ in range(3):
            probe = probes.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            found.append(int(probe.getsockname()[1]))
        return found[0], found[1], found[2]


def _tree(mark: str) -> list[int]:
    """The processes that have the mark in their environment: children of children, daemons and all."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
    return found


def _cpu(processes: list[int]) -> float:
    ticks = 0
    for process in processes:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICK


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    for number, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0)):
        for one in _tree(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and (process.poll() is None or _tree(mark)):
            time.sleep(0.05)
    process.wait(timeout=5)


def _request(server: Server, workload: Workload, inputs: Arrays) -> tuple[str, dict[str, str], bytes]:
    """Path, headers and body of an HTTP request."""
    served, peer = MODELS[workload.model], server.peer
    if workload.wire is Wire.BINARY:
        return peer.path, *messages.protocol_binary(served, inputs)
    if peer.rows_path and workload.batch > 1 and len(served.inputs) == 1:
        return peer.rows_path, *messages.rows_json(served, inputs)
    return peer.path, *messages.protocol_json(served, inputs)


def verify(server: Server, workload: Workload, exchanges: Exchanges) -> None:
    """Wait until the server answers, then check its answer to every request. Raises Failed."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            _answer(server, workload, exchanges[0][0])
            break
        except (OSError, http.client.HTTPException, Failed) as problem:
            if isinstance(problem, Failed):
                deadline = min(deadline, time.monotonic() + _ERROR_SECONDS)
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"{server.peer.name} does not answer '{workload.name}': {problem}") from problem
            time.sleep(0.2)
    for inputs, expected in exchanges:
        found = _answer(server, workload, inputs)
        for name, array in expected.items():
            if name not in found or not np.allclose(found[name], array, rtol=1e-3, atol=1e-4):
                raise Failed(f"{server.peer.name} gives a wrong answer to '{workload.name}' in '{name}'")


def _answer(server: Server, workload: Workload, inputs: Arrays) -> Arrays:
    served = MODELS[workload.model]
    if workload.wire is Wire.GRPC:
        with grpc.insecure_channel(f"127.0.0.1:{server.launch.grpc_port}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            try:
                return messages.read_grpc(served, call(messages.protocol_grpc(served, inputs), timeout=30))
            except grpc.RpcError as error:
                raise Failed(f"{error.code().name}: {error.details()}") from error
    path, headers, body = _request(server, workload, inputs)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.launch.http_port, timeout=30)) as one:
        one.request("POST", path, body, headers)
        answer = one.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise Failed(f"status {answer.status}: {data[:300].decode('latin-1')}")
        read = messages.read_rows if path == server.peer.rows_path else messages.read_http
        return read({name.lower(): value for name, value in answer.getheaders()}, data)


def measure(server: Server, workload: Workload, exchanges: Exchanges, pace: Pace) -> Sample:
    """Load the server for a while. Raises Failed at the first error."""
    folder = server.launch.folder
    names = []
    for number, (inputs, _) in enumerate(exchanges):
        path = folder / f"{workload.name}-{number}.request"
        path.write_bytes(_bytes(server, workload, inputs))
        names.append(str(path))
    is_grpc = workload.wire is Wire.GRPC
    spec = {
        "port": server.launch.grpc_port if is_grpc else server.launch.http_port,
        "grpc": is_grpc,
        "connections": workload.connections,
        "requests": names,
        "warmup": pace.warmup,
        "seconds": pace.seconds,
    }
    file = folder / f"{workload.name}.json"
    file.write_text(json.dumps(spec))
    words = ["taskset", "-c", str(cores()[1]), sys.executable, "-m", "e2e.bench.runtime.client", str(file)]
    client = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
    assert client.stdout is not None
    processes = _tree(server.mark)
    if pace.urgent:
        _hurry([*processes, client.pid])
    _expect(client, "begin")
    before = _cpu(processes)
    _expect(client, "end")
    cpu = _cpu(processes) - before
    result = json.loads(client.stdout.readline())
    client.wait(timeout=60)
    if result["errors"] or not result["requests"]:
        raise Failed(f"{server.peer.name}, {workload.name}: {result['errors']} errors: {result['first_error']}")
    count = result["requests"]
    return Sample(count, count / result["seconds"], result["p50"], result["p99"], cpu / count, result["errors"])


def _hurry(processes: list[int]) -> None:
    """Raise the priority of processes: of their threads and, where the system groups processes, of their session."""
    for process in processes:
        with contextlib.suppress(OSError):
            Path(f"/proc/{process}/autogroup").write_text(str(_URGENT))
        for thread in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), _URGENT)


def _expect(client: subprocess.Popen[bytes], word: str) -> None:
    assert client.stdout is not None
    line = client.stdout.readline().decode().strip()
    if line != word:
        raise Failed(f"the client said '{line}' instead of '{word}'")


def _bytes(server: Server, workload: Workload, inputs: Arrays) -> bytes:
    if workload.wire is Wire.GRPC:
        return messages.protocol_grpc(MODELS[workload.model], inputs)
    path, headers, body = _request(server, workload, inputs)
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
