"""One server of several processes: its readiness, its counts, the loss of a worker, its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from slipway_runtime.cli import main
from slipway_runtime.processes.supervisor import Backoff, Supervisor, supervise
from slipway_runtime.refusal import ExitCode, Refusal

from tests.runtime.harness import (
    PATIENCE,
    ServerProcess,
    await_condition,
    fetch,
    json_request,
    parse_metrics,
    serving,
)

SHAPES = json.dumps([{"name": "x", "datatype": "FP32", "shape": [-1, 2]}])
RESULTS = json.dumps([{"name": "y", "datatype": "FP32", "shape": [-1, 2]}])
FLAGS = ("--inputs", SHAPES, "--outputs", RESULTS)
TARGET = "/v2/models/m/infer"
BODY = json_request([[1.0, 2.0]])
COUNT = 2


@dataclass
class Group:
    """A server of two processes, and where its journal is."""

    server: ServerProcess
    journal: Path

    def metrics(self) -> dict[str, float]:
        return parse_metrics(fetch(self.server.address, "GET", "/metrics")[1].decode())

    def served(self) -> float:
        return self.metrics()['slipway_requests_total{code="200",shadow="false"}']

    def infer(self, times: int) -> None:
        for _ in range(times):
            assert fetch(self.server.address, "POST", TARGET, BODY)[0] == 200

    def workers(self) -> list[int]:
        pid = self.server.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def events(self, event: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.journal.read_bytes().splitlines()]
        return [line for line in lines if line["event"] == event]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory, model_files: dict[str, Path]) -> Iterator[Group]:
    place = tmp_path_factory.mktemp("group")
    flags = (*FLAGS, "--processes", str(COUNT), "--access-log", "--allow-setting-changes")
    with serving(place, model_files["doubler.pt"].as_uri(), *flags) as server:
        server.await_ready()
        yield Group(server, place / "stderr")


def test_it_is_ready_when_all_workers_are(group: Group) -> None:
    assert len(group.workers()) == COUNT
    assert len(group.events("ready")) == len(group.events("listening")) == COUNT
    assert len(group.events("workers-ready")) == 1
    found = group.metrics()
    assert (found["slipway_workers"], found["slipway_model_ready"], found["slipway_worker_restarts_total"]) == (2, 1, 0)
    # The processors are shared out, unless the user says otherwise, as the harness does.
    assert {line["threads"] for line in group.events("ready")} == {1}


def test_all_protocols_and_workers_count_into_one_number(group: Group) -> None:
    before = group.served()
    group.infer(20)
    tensor = triton_grpc.InferInput("x", [1, 2], "FP32").set_data_from_numpy(np.ones((1, 2), np.float32))
    for _ in range(6):
        with triton_grpc.InferenceServerClient(f"127.0.0.1:{group.server.grpc_port}") as client:
            client.infer("m", [tensor])
            assert client.is_server_ready()
    assert [group.served() for _ in range(8)] == [before + 26] * 8
    counts = {
        json.loads(fetch(group.server.address, "GET", "/v2/models/stats")[1])["model_stats"][0]["inference_count"]
        for _ in range(8)
    }
    assert counts == {before + 26}


def test_settings_are_those_of_all_workers(group: Group) -> None:
    change = json.dumps({"log_verbose_level": 0}).encode()
    assert fetch(group.server.address, "POST", "/v2/logging", change)[0] == 200
    levels = {json.loads(fetch(group.server.address, "GET", "/v2/logging")[1])["log_verbose_level"] for _ in range(8)}
    assert levels == {0}


def test_a_killed_worker_costs_no_count_and_is_replaced(group: Group) -> None:
    before = group.served()
    victim = group.workers()[0]
    os.kill(victim, signal.SIGKILL)
    # What the system had given to the victim is reset; nobody else is touched.
    await_condition(lambda: not Path(f"/proc/{victim}").exists())
    await_condition(lambda: group.metrics()["slipway_worker_restarts_total"] == 1)
    seen = []
    # While one is away the others serve, and the server stays ready.
    while len(group.events("listening")) == COUNT:
        assert group.server.ready()
        seen.append(group.served())
        group.infer(1)
    await_condition(lambda: group.metrics()["slipway_workers"] == COUNT)
    group.infer(10)
    seen.append(group.served())
    assert seen == sorted(seen) and seen[0] >= before
    assert seen[-1] == before + len(seen) - 1 + 10
    assert victim not in group.workers() and len(group.workers()) == COUNT
    [ended] = group.events("worker-ended")
    assert (ended["code"], ended["crashes"]) == (-9, 1)


def test_a_drain_loses_nothing(group: Group) -> None:
    answers: list[bytes] = []

    def client() -> None:
        with socket.create_connection(("127.0.0.1", group.server.port), timeout=PATIENCE) as connection:
            request = b"POST %s HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (TARGET.encode(), len(BODY)) + BODY
            received = b""
            while b"Connection: close" not in received:
                connection.sendall(request)
                received = connection.recv(65536)
                assert received.startswith(b"HTTP/1.1 200")
            answers.append(received)

    clients = [threading.Thread(target=client) for _ in range(8)]
    for one in clients:
        one.start()
    workers = group.workers()
    before = group.served()
    await_condition(lambda: group.served() > before)
    group.server.terminate()
    assert group.server.wait() == 0
    for one in clients:
        one.join(PATIENCE)
    assert len(answers) == 8
    assert len(group.events("drained")) == COUNT
    assert all(line["refused"] == 0 for line in group.events("drained"))
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


def test_a_worker_that_cannot_start_ends_the_server(tmp_path: Path) -> None:
    with serving(tmp_path, "file:///nowhere", "--processes", "2") as server:
        assert server.wait() == 66
        assert "ArtefactNotFound" in server.termination_log.read_text()


def test_workers_end_with_a_supervisor_that_is_killed(tmp_path: Path, model_files: dict[str, Path]) -> None:
    with serving(tmp_path, model_files["doubler.pt"].as_uri(), *FLAGS, "--processes", "2") as server:
        group = Group(server, tmp_path / "stderr")
        await_condition(group.workers)
        workers = group.workers()
        server.process.kill()
        server.wait()
        await_condition(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))


@pytest.mark.parametrize(
    "flags", [("--device", "cuda"), ("--cuda-devices", "0"), ("--model-control", "explicit"), ("--watch", "1s")]
)
def test_what_several_processes_cannot_do_is_refused(
    flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TERMINATION_LOG", str(tmp_path / "log"))
    words = ["serve", "--model-name", "m", "--model-version", "v1", "--uri", "file:///m", "--processes", "2", *flags]
    assert main(words) == 64
    assert "--processes 2" in (tmp_path / "log").read_text()


# The supervisor by itself, with a small program in the place of the server.

SCRIPT = """
import sys, pathlib, os
from slipway_runtime.processes.group import membership
member = membership()
marks = pathlib.Path(sys.argv[1])
mine = marks / f"{member.slot}-{len(list(marks.glob(f'{member.slot}-*')))}"
mine.write_text(os.environ["OMP_NUM_THREADS"])
"""


def supervisor(tmp_path: Path, script: str, count: int = 2, **options: object) -> Supervisor:
    path = tmp_path / "worker.py"
    path.write_text(SCRIPT + script)
    marks = tmp_path / "marks"
    marks.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return Supervisor(
        [str(marks)],
        count,
        {"--http-port": 0},
        "127.0.0.1",
        1.0,
        environment=environment,
        program=[sys.executable, str(path)],
        **options,  # type: ignore[arg-type]
    )


def test_it_gives_up_on_a_worker_that_always_crashes(tmp_path: Path) -> None:
    script = "member.announce()\nif member.slot == 0: import time; time.sleep(60)\nos._exit(3)\n"
    found = supervisor(tmp_path, script, backoff=Backoff(first=0.01, give_up=3))
    assert supervise(found) == 3
    names = sorted(path.name for path in (tmp_path / "marks").iterdir())
    assert names == ["0-0", "1-0", "1-1", "1-2"]


def test_processors_are_shared_out(tmp_path: Path) -> None:
    from slipway_runtime.processors import usable_processors

    assert supervise(supervisor(tmp_path, "os._exit(9)\n", count=1)) == 9
    assert (tmp_path / "marks" / "0-0").read_text() == str(usable_processors())


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        found = supervisor(tmp_path, "")
        found.ports = {"--http-port": other.getsockname()[1]}
        with pytest.raises(Refusal, match="cannot listen") as caught:
            supervise(found)
    assert caught.value.code is ExitCode.INTERNAL


def test_a_port_is_taken_over_from_connections_that_time_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as before:
        port = before.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = before.accept()
            accepted.close()  # who closes first is left with the connection, for a minute
            assert client.recv(1) == b""
    found = supervisor(tmp_path, "os._exit(9)\n", count=1)
    found.ports = {"--http-port": port}
    assert supervise(found) == 9


def test_a_worker_that_does_not_end_is_killed(tmp_path: Path) -> None:
    script = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nmember.announce()\ntime.sleep(600)\n"
    now = [0.0]
    found = supervisor(tmp_path, script, clock=lambda: now[0])

    def stop() -> None:
        await_condition(lambda: len(list((tmp_path / "marks").iterdir())) == 2)
        await_condition(lambda: found._board.complete)
        os.kill(os.getpid(), signal.SIGTERM)
        await_condition(lambda: found._stopping)
        now[0] = 1000.0

    stopper = threading.Thread(target=stop)
    stopper.start()
    assert supervise(found) == ExitCode.INTERNAL
    stopper.join(PATIENCE)


def test_pauses_grow_to_a_longest() -> None:
    backoff = Backoff(first=0.5, longest=30.0)
    assert [backoff.pause(crashes) for crashes in (1, 2, 3, 7, 50)] == [0.5, 1.0, 2.0, 30.0, 30.0]
