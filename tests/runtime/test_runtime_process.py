"""The server as Kubernetes runs it: a process with flags, probes, signals and an exit code."""

from __future__ import annotations

import json
import queue
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from slipway_runtime.artefact.digest import digest_of
from slipway_runtime.cli import main
from slipway_runtime.settings import parse_duration

from tests.runtime.harness import (
    PATIENCE,
    ROOT,
    ServerProcess,
    await_condition,
    fetch,
    json_request,
    parse_metrics,
    serving,
)

INPUTS = json.dumps([{"name": "x", "datatype": "FP32", "shape": [-1, 4]}])
OUTPUTS = json.dumps([{"name": "y", "datatype": "FP32", "shape": [-1, 4]}])
FLAGS = ("--inputs", INPUTS, "--outputs", OUTPUTS)


def infer(server: ServerProcess, client: Any, rows: int = 1, protocol: Any = triton) -> None:
    array = np.full((rows, 4), 1.5, dtype=np.float32)
    tensor = protocol.InferInput("x", list(array.shape), "FP32").set_data_from_numpy(array)
    assert (client.infer("m", [tensor]).as_numpy("y") == 3.0).all()


def journal(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "stderr").read_bytes().splitlines()]


def test_a_whole_life(tmp_path: Path, model_files: dict[str, Path]) -> None:
    model = model_files["doubler.pt"]
    with serving(tmp_path, model.as_uri(), "--sha256", digest_of(model), *FLAGS) as server:
        server.await_ready()
        with triton.InferenceServerClient(server.address) as client:
            metadata = client.get_model_metadata("m")
            assert metadata["inputs"] == json.loads(INPUTS)
            assert len(metadata["parameters"]["sha256"]) == 64
            for rows in (1, 2, 40):
                infer(server, client, rows)
            metrics = parse_metrics(fetch(server.address, "GET", "/metrics")[1].decode())
        # The warm-up is in none of these.
        assert metrics['slipway_requests_total{code="200",shadow="false"}'] == 3
        assert metrics["slipway_request_rows_total"] == 43
        assert metrics["slipway_model_load_seconds"] > 0
        server.terminate()
        assert server.wait() == 0
    events = [line["event"] for line in journal(tmp_path)]
    assert events == ["listening", "loading", "ready", "draining", "drained"]
    assert not server.termination_log.exists()


def test_live_while_loading_and_ready_only_after_the_warm_up(tmp_path: Path, model_files: dict[str, Path]) -> None:
    with serving(tmp_path, model_files["slow.pt"].as_uri(), *FLAGS, "--warmup-requests", "20") as server:

        def live() -> bool:
            try:
                return fetch(server.address, "GET", "/v2/health/live")[0] == 200
            except OSError:
                return False

        await_condition(live, patience=60)
        assert not server.ready()
        status, _, headers = fetch(server.address, "POST", "/v2/models/m/infer", b"{}")
        assert (status, headers["retry-after"]) == (503, "1")
        server.await_ready()
        metrics = parse_metrics(fetch(server.address, "GET", "/metrics")[1].decode())
        assert metrics['slipway_requests_total{code="200",shadow="false"}'] == 0
        assert metrics["slipway_batch_size_count"] == 0


def test_sigterm_while_loading_ends_at_once(tmp_path: Path, model_files: dict[str, Path]) -> None:
    with serving(tmp_path, model_files["slow.pt"].as_uri(), *FLAGS, "--warmup-requests", "10000") as server:
        await_condition(lambda: (tmp_path / "stderr").read_bytes().count(b'"loading"'), patience=60)
        server.terminate()
        assert server.wait() == 0


@pytest.mark.parametrize("protocol", [triton, triton_grpc], ids=["http", "grpc"])
def test_a_drain_loses_no_request(tmp_path: Path, model_files: dict[str, Path], protocol: Any) -> None:
    with serving(tmp_path, model_files["slow.pt"].as_uri(), *FLAGS, "--pre-stop", "3s") as server:
        server.await_ready()
        failures: list[str] = []
        answered: list[float] = []

        def client() -> None:
            # As a proxy does: requests go on until the pod is seen to be unready, over kept connections.
            address = server.address if protocol is triton else f"127.0.0.1:{server.grpc_port}"
            with protocol.InferenceServerClient(address) as connection:
                while server_is_listed.is_set():
                    try:
                        infer(server, connection, protocol=protocol)
                        answered.append(time.monotonic())
                    except Exception as error:
                        failures.append(repr(error))

        server_is_listed = threading.Event()
        server_is_listed.set()
        clients = [threading.Thread(target=client) for _ in range(4)]
        for one in clients:
            one.start()
        await_condition(lambda: len(answered) >= 4)
        begun = time.monotonic()
        server.terminate()
        await_condition(lambda: not server.ready())
        server_is_listed.clear()
        assert server.wait() == 0
        for one in clients:
            one.join(PATIENCE)
        assert failures == []
        # Requests in flight at the signal, and some that came after it, were answered.
        assert max(answered) > begun
    assert journal(tmp_path)[-1]["refused"] == 0


def test_what_is_under_way_when_the_server_closes_is_served_to_its_end(
    tmp_path: Path, model_files: dict[str, Path]
) -> None:
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1.5] * 4}]}).encode()
    head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: m\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with serving(tmp_path, model_files["doubler.pt"].as_uri(), *FLAGS, "--pre-stop", "10ms") as server:
        server.await_ready()
        port = int(server.address.rpartition(":")[2])
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as upload,
            triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client,
        ):
            upload.sendall(head + body[:10])
            client.start_stream(lambda result, error: answers.put((result, error)))
            tensor = triton_grpc.InferInput("x", [1, 4], "FP32").set_data_from_numpy(np.ones((1, 4), np.float32))
            client.async_stream_infer("m", [tensor])
            assert answers.get(timeout=PATIENCE)[1] is None
            server.terminate()
            await_condition(lambda: not listening(port))
            client.async_stream_infer("m", [tensor])
            upload.sendall(body[10:])
            assert upload.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
            result, error = answers.get(timeout=PATIENCE)
            assert error is None
            assert (result.as_numpy("y") == 2.0).all()
            client.stop_stream()
            assert server.wait() == 0
    assert journal(tmp_path)[-1]["refused"] == 0


def listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except OSError:
        return False
    return True


def test_answers_in_a_drain_send_clients_away(tmp_path: Path, model_files: dict[str, Path]) -> None:
    with serving(tmp_path, model_files["doubler.pt"].as_uri(), *FLAGS, "--pre-stop", "10m", "--grace", "10m") as server:
        server.await_ready()
        assert "connection" not in fetch(server.address, "GET", "/v2/health/live")[2]
        server.terminate()
        await_condition(lambda: not server.ready())
        _, _, headers = fetch(server.address, "GET", "/v2/health/live")
        assert headers["connection"] == "close"
        server.terminate()  # a second signal: no more waiting
        assert server.wait() == 0


ROWS = 20_000
"""One after the other, more than any machine computes while the end of a server is waited for."""


def test_grace_bounds_the_drain(tmp_path: Path, model_files: dict[str, Path]) -> None:
    flags = (*FLAGS, "--grace", "300ms", "--pre-stop", "10ms", "--max-batch-size", "1", "--warmup-requests", "1")
    with serving(tmp_path, model_files["slow.pt"].as_uri(), *flags) as server:
        server.await_ready()
        body = json.dumps(
            {"inputs": [{"name": "x", "shape": [ROWS, 4], "datatype": "FP32", "data": [1.0] * 4 * ROWS}]}
        ).encode()
        pending = threading.Thread(target=lambda: fetch_quietly(server.address, body))
        pending.start()
        await_condition(
            lambda: (
                b"slipway_requests_in_flight" in (text := fetch(server.address, "GET", "/metrics")[1])
                and parse_metrics(text.decode())["slipway_requests_in_flight"] == 1
            )
        )
        server.terminate()
        assert server.wait() == 0
        pending.join(PATIENCE)


def fetch_quietly(address: str, body: bytes) -> None:
    try:
        fetch(address, "POST", "/v2/models/m/infer", body)
    except OSError:
        return


def refused(tmp_path: Path, uri: str, *flags: str) -> tuple[int, str]:
    """Exit code and termination message of a server that does not start."""
    with serving(tmp_path, uri, *flags) as server:
        return server.wait(), server.termination_log.read_text()


def test_a_wrong_digest_is_refused_before_loading(tmp_path: Path, model_files: dict[str, Path]) -> None:
    model = model_files["doubler.pt"]
    code, message = refused(tmp_path, model.as_uri(), "--sha256", "a" * 64)
    assert code == 65
    assert message == f"DigestMismatch: expected sha256 {'a' * 64}, the model has sha256 {digest_of(model)}"
    assert [line["event"] for line in journal(tmp_path)] == ["listening", "refused"]


def test_refusals_have_their_exit_codes(tmp_path: Path, model_files: dict[str, Path]) -> None:
    words = tmp_path / "words.pt"
    words.write_text("not a model")
    contract = json.dumps([{"name": "x", "datatype": "FP32", "shape": [-1, 5]}])
    cases = [
        (words.as_uri(), (), 65, "NotAModel: this is no TorchScript, torch.export or ONNX program but a text file"),
        (model_files["checkpoint.pt"].as_uri(), (), 65, "checkpoint"),
        ("ftp://host/key", (), 65, "SchemeNotSupported"),
        ("file:///nowhere", (), 66, "ArtefactNotFound"),
        (model_files["weighted.pt"].as_uri(), ("--inputs", contract), 65, "ContractMismatch"),
        (words.as_uri(), ("--max-batch-size", "0"), 64, "BadArguments"),
        (words.as_uri(), ("--timeout", "fast"), 64, "not a duration"),
    ]
    for number, (uri, flags, code, message) in enumerate(cases):
        place = tmp_path / str(number)
        place.mkdir()
        found = refused(place, uri, *flags)
        assert found[0] == code and message in found[1], found


def test_a_port_in_use_is_an_internal_failure(tmp_path: Path, model_files: dict[str, Path]) -> None:
    uri = model_files["doubler.pt"].as_uri()
    with serving(tmp_path, uri, *FLAGS) as server:
        server.await_ready()
        place = tmp_path / "second"
        place.mkdir()
        assert refused(place, uri, "--http-port", str(server.port))[0] == 70


def test_digest_command(tmp_path: Path, model_files: dict[str, Path]) -> None:
    path = model_files["doubler.pt"]
    command = [sys.executable, "-m", "slipway_runtime", "digest", str(path)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    assert printed == f"{digest_of(path)}\n"


COMMAND = ["serve", "--model-name", "m", "--model-version", "v1", "--uri", "file:///nowhere"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["serve"],
        ["digest", "/nowhere"],
        ["serve", "--model-name", "stats"],
        ["verify", "a", "b", "--atol", "nan"],
        ["verify", "a", "b", "--rtol", "-1"],
        [*COMMAND, "--http-port", "65536"],
        [*COMMAND, "--grpc-port", "-1"],
        [*COMMAND, "--tenants", '{"heeder": "x"}'],
        [*COMMAND, "--cache-bytes", "-1"],
        [*COMMAND, "--cache-ttl", "long"],
        [*COMMAND, "--max-inflight-bytes", "1Mi"],
    ],
)
def test_bad_command_lines(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("SLIPWAY_TERMINATION_LOG", str(tmp_path / "log"))
    assert main(arguments) in (64, 66)
    assert (tmp_path / "log").read_text()
    assert json.loads(capfdbinary.readouterr().err)["event"] == "refused"


def test_flags_of_admission_are_kept(tmp_path: Path, model_files: dict[str, Path]) -> None:
    rules = tmp_path / "tenants.json"
    rules.write_text('{"header": "X-Org", "default": {"requestsPerSecond": 0.01}, "overrides": [{"name": "gold"}]}')
    flags = ("--tenants", str(rules), "--cache-bytes", "100000", "--cache-ttl", "1h", "--max-inflight-bytes", "1000")
    with serving(tmp_path, model_files["doubler.pt"].as_uri(), *FLAGS, *flags) as server:
        server.await_ready()
        body, path = json_request([[1.0, 2.0, 3.0, 4.0]]), "/v2/models/m/infer"
        answers = [fetch(server.address, "POST", path, body, {"x-org": name}) for name in ("gold", "gold", "a", "a")]
        assert [status for status, _, _ in answers] == [200, 200, 200, 429]
        assert [headers.get("x-slipway-cache") for _, _, headers in answers] == [None, "hit", "hit", None]
        assert fetch(server.address, "POST", path, body + b" " * 1000)[0] == 413


@pytest.mark.parametrize(
    ("text", "seconds"), [("5ms", 0.005), ("30s", 30), ("1m30s", 90), ("0", 0), ("1.5s", 1.5), ("250us", 0.00025)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-1s", "1s!", "1d"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)
