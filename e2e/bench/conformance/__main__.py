"""Ask a real Triton and the runtime the same, tell what differs; ``--record`` keeps Triton's answers for the tests.

Needs the environment of the comparison that holds Triton (``python -m e2e.bench.runtime`` makes it, and so does this).
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import yaml

from e2e.bench.conformance.calls import Call, calls
from e2e.bench.conformance.requests import MAX_ROWS, MODEL, PORTS, Request, requests
from e2e.bench.conformance.rule import GONE, Answer, differences
from e2e.bench.runtime import triton
from e2e.bench.runtime.environments import ROOT

RECORD = ROOT / "tests" / "data" / "triton_answers.json"
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Server:
    """Where a server listens."""

    http_port: int
    grpc_port: int


def ask(server: Server, request: Request) -> Answer:
    """One HTTP request on a connection of its own."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)) as connection:
        connection.putrequest(request.method, request.path, skip_accept_encoding=True)
        headers = {"Content-Length": str(len(request.body)), **request.headers}
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(request.body)
        try:
            answer = connection.getresponse()
            body = answer.read()
        except (http.client.HTTPException, ConnectionError):
            return Answer(GONE)
        return Answer(str(answer.status), {name.lower(): value for name, value in answer.getheaders()}, body)


def call(channel: grpc.Channel, one: Call) -> Answer:
    """One gRPC call."""
    try:
        return Answer("OK", {}, channel.unary_unary(one.path)(one.body, timeout=30))
    except grpc.RpcError as error:
        return Answer(error.code().name, {}, (error.details() or "").encode())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_handler(folder: Path) -> Path:
    """The model for the runtime."""
    folder.mkdir()
    source = Path(__file__).parent / "served" / "echo.py"
    (folder / "echo.py").write_text(source.read_text())
    config = {
        "handler": "echo.py:Echo",
        "inputs": [{"name": name, "datatype": kind, "shape": [-1, width]} for name, kind, width in PORTS],
        "outputs": [{"name": f"out_{name}", "datatype": kind, "shape": [-1, width]} for name, kind, width in PORTS],
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


def _write_repository(folder: Path) -> Path:
    kinds = {"BYTES": "TYPE_STRING"}
    text = f'name: "{MODEL}"\nbackend: "python"\nmax_batch_size: {MAX_ROWS}\n'
    for side, prefix in (("input", ""), ("output", "out_")):
        ports = [
            f'{{ name: "{prefix}{name}", data_type: {kinds.get(kind, f"TYPE_{kind}")}, dims: [ {width} ] }}'
            for name, kind, width in PORTS
        ]
        text += f"{side} [ {', '.join(ports)} ]\n"
    (folder / MODEL / "1").mkdir(parents=True)
    (folder / MODEL / "config.pbtxt").write_text(text + "instance_group [{ kind: KIND_CPU, count: 1 }]\n")
    source = triton.model_source("e2e.bench.conformance.served.triton_echo")
    (folder / MODEL / "1" / "model.py").write_text(source)
    return folder


@contextlib.contextmanager
def _running(words: list[str], server: Server, environment: dict[str, str]) -> Iterator[Server]:
    process = subprocess.Popen(words, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError):
                if ask(server, Request("", "GET", f"/v2/models/{MODEL}/ready")).status == "200":
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{words[0]} does not start")
            time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=20)


def _triton(repository: Path) -> contextlib.AbstractContextManager[Server]:
    server = Server(_free_port(), _free_port())
    words = triton.command(repository, server.http_port, server.grpc_port, [MODEL])
    return _running(words, server, triton.environment())


def running(model: Path) -> contextlib.AbstractContextManager[Server]:
    """The runtime with the model in that folder."""
    server = Server(_free_port(), _free_port())
    words = [sys.executable, "-m", "slipway_runtime", "serve", "--model-name", MODEL, "--model-version", "1"]
    words += ["--uri", model.resolve().as_uri(), "--host", "127.0.0.1", "--max-batch-size", str(MAX_ROWS)]
    words += ["--http-port", str(server.http_port), "--grpc-port", str(server.grpc_port), "--pre-stop", "0s"]
    return _running(words, server, {"SLIPWAY_TERMINATION_LOG": "/dev/null"})


def answers(start: Callable[[], contextlib.AbstractContextManager[Server]]) -> dict[str, Answer]:
    """What a server answers to everything, by kind and name; one that a request ended is started again."""
    found: dict[str, Answer] = {}
    waiting: list[Request | Call] = [*requests(), *calls()]
    while waiting:
        with start() as server, grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            while waiting:
                one = waiting.pop(0)
                is_call = isinstance(one, Call)
                answer = call(channel, one) if isinstance(one, Call) else ask(server, one)
                found[f"{'grpc' if is_call else 'http'}: {one.name}"] = answer
                if not _lives(server):
                    found[f"{'grpc' if is_call else 'http'}: {one.name}"] = Answer(GONE)
                    break
    return found


def _lives(server: Server) -> bool:
    try:
        return ask(server, Request("", "GET", "/v2/health/live")).status == "200"
    except OSError:
        return False


def recorded(theirs: dict[str, Answer]) -> dict[str, object]:
    """The requests with Triton's answers."""

    def packed(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return {
        "http": [
            {
                "name": one.name,
                "method": one.method,
                "path": one.path,
                "headers": one.headers,
                "body": packed(one.body),
                "answer": theirs[f"http: {one.name}"].as_json(),
            }
            for one in requests()
        ],
        "grpc": [
            {"name": one.name, "method": one.method, "body": packed(one.body)}
            | {"answer": theirs[f"grpc: {one.name}"].as_json()}
            for one in calls()
        ],
    }


def main() -> int:
    """Compare; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.conformance", description=__doc__)
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.relative_to(ROOT)}")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slipway-conformance-") as name:
        repository = _write_repository(Path(name) / "repository")
        model = write_handler(Path(name) / "model")
        theirs, ours = answers(lambda: _triton(repository)), answers(lambda: running(model))
    if given.record:
        RECORD.write_text(json.dumps(recorded(theirs), indent=1, sort_keys=True) + "\n")
    failed = 0
    for name, answer in ours.items():
        for text in differences(name, theirs[name], answer):
            failed += 1
            sys.stdout.write(f"{name}: {text}\n")
    sys.stdout.write(f"{len(ours)} requests, {failed} differences that are not meant\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
