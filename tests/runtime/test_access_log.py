"""The access log: one line per request, whatever is in it, and never in the way of the requests."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from slipway_runtime import journal
from slipway_runtime.metrics.sheet import Sheet
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.serving.tenants import Share, TenantRules
from slipway_runtime.settings import Limits
from slipway_runtime.telemetry.access_log import AccessLog, line
from slipway_runtime.telemetry.observer import Observer
from slipway_runtime.telemetry.outbox import Outbox
from slipway_runtime.telemetry.switches import Switches
from slipway_runtime.telemetry.trace_context import TraceContext
from slipway_runtime.telemetry.watch import Watch
from tritonclient.utils import InferenceServerException

from tests.runtime.counting import FAILING, STREAM, CountingModel
from tests.runtime.harness import (
    INFER,
    PATIENCE,
    FunctionModel,
    GatedModel,
    ServerThread,
    await_condition,
    echo,
    fetch,
    json_request,
    row_signature,
    talk,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
BODY = json.dumps({**json.loads(json_request([[1.0, 2.0]])), "id": "mine"}).encode()


@dataclass
class Logged:
    """A server with an access log in a file."""

    server: ServerThread
    path: Path

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.path.read_bytes().splitlines()]

    def await_lines(self, count: int) -> list[dict[str, Any]]:
        await_condition(lambda: self.path.read_bytes().count(b"\n") >= count)
        found = self.lines()
        assert len(found) == count
        return found


@contextmanager
def logging(
    path: Path, model: Any = None, ratio: float = 1.0, draw: Callable[[], float] = lambda: 0.5, **options: Any
) -> Iterator[Logged]:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def observe(sheet: Sheet) -> tuple[Switches, Observer]:
        switches = Switches(loggable=True)
        return switches, Observer(switches, AccessLog(ratio, descriptor, draw), None, sheet, "x-tenant")

    with ServerThread(model or FunctionModel(row_signature(), echo), observe=observe, **options) as server:
        yield Logged(server, path)
    os.close(descriptor)


def test_a_request_has_its_line(tmp_path: Path) -> None:
    tenants = TenantRules("x-tenant", default=Share(0.0, 1))
    with logging(tmp_path / "log", tenants=tenants) as log:
        sent = {"x-request-id": "r-1", "traceparent": PARENT, "x-tenant": "shop"}
        status, body, answer = fetch(log.server.address, "POST", f"{INFER}?key=secret", BODY, sent)
        assert (status, answer["x-request-id"]) == (200, "r-1")
        assert answer["traceresponse"].startswith(f"00-{TRACE}-") and answer["traceresponse"] != PARENT
        [found] = log.await_lines(1)
    assert found.pop("time").endswith("+00:00")
    assert found.pop("remote").startswith("127.0.0.1:")
    times = {name: found.pop(name) for name in ("duration_ms", "queue_ms", "compute_ms")}
    assert times["duration_ms"] >= times["queue_ms"] + times["compute_ms"] > 0
    assert found == {
        "event": "request",
        "protocol": "http",
        "method": "POST",
        "path": INFER,
        "model": "my model",
        "version": "v1",
        "status": 200,
        "received_bytes": len(BODY),
        "bytes": len(body),
        "request_id": "r-1",
        "trace_id": TRACE,
        "id": "mine",
        "tenant": "shop",
    }


def test_a_request_that_is_refused_is_logged_for_its_model(tmp_path: Path) -> None:
    with logging(tmp_path / "log", limits=Limits(max_request_bytes=1000)) as log:
        for path, body, status in ((INFER, b"{", 400), (INFER, b" " * 1001, 413), ("/v2/models/no/infer", BODY, 404)):
            assert fetch(log.server.address, "POST", path, body)[0] == status
        with triton_grpc.InferenceServerClient(log.server.grpc_address) as client:
            tensor = triton_grpc.InferInput("unknown", [1, 1], "FP32").set_data_from_numpy(np.ones((1, 1), np.float32))
            with pytest.raises(InferenceServerException):
                client.infer("my model", [tensor])
        found = log.await_lines(4)
    assert [line["model"] for line in found] == ["my model", "my model", "", "my model"]
    assert [line["version"] for line in found] == ["v1", "v1", "", "v1"]


def test_a_tenant_is_named_and_its_token_is_not_logged(tmp_path: Path) -> None:
    claims = base64.urlsafe_b64encode(b'{"org": "shop", "secret": "s"}').decode().rstrip("=")
    rules = TenantRules("x-claims", "org")
    with (tmp_path / "log").open("wb") as file:
        observer = Observer(
            Switches(loggable=True), AccessLog(1.0, file.fileno()), None, Sheet(), rules.header, rules.name_in
        )
        for value in (claims, "no token", ""):
            watch = observer.begin("http", "GET", "/v2", {"x-claims": value}, 0.0, 0)
            watch.finish(watch, 200, 0, "")
        observer.close(PATIENCE)
    lines = [json.loads(text) for text in (tmp_path / "log").read_bytes().splitlines()]
    assert [one.get("tenant") for one in lines] == ["shop", None, None]


def test_a_call_has_its_line(tmp_path: Path) -> None:
    with logging(tmp_path / "log") as log, triton_grpc.InferenceServerClient(log.server.grpc_address) as client:
        tensor = triton_grpc.InferInput("x", [1, 2], "FP32").set_data_from_numpy(np.ones((1, 2), np.float32))
        client.infer("my model", [tensor], request_id="mine", headers={"traceparent": PARENT, "x-request-id": "r-2"})
        with pytest.raises(InferenceServerException):
            client.infer("other", [tensor])
        client.get_model_metadata("my model")
        client.is_server_live()  # routine
        good, bad, metadata = log.await_lines(3)
    assert good["path"] == "/inference.GRPCInferenceService/ModelInfer"
    assert (good["protocol"], good["status"], good["grpc_status"]) == ("grpc", 200, "OK")
    assert (good["model"], good["id"], good["request_id"], good["trace_id"]) == ("my model", "mine", "r-2", TRACE)
    assert good["bytes"] > 0 and good["received_bytes"] > 0 and good["compute_ms"] > 0
    assert good["remote"].startswith("127.0.0.1:")
    assert (bad["status"], bad["grpc_status"]) == (404, "NOT_FOUND")
    assert metadata["path"].endswith("ModelMetadata")


def test_streams_and_their_ids(tmp_path: Path) -> None:
    with logging(tmp_path / "log") as log, triton_grpc.InferenceServerClient(log.server.grpc_address) as client:
        answers: list[Any] = []
        client.start_stream(lambda result, error: answers.append((result, error)), headers={"x-request-id": "s-1"})
        tensor = triton_grpc.InferInput("x", [1, 2], "FP32").set_data_from_numpy(np.ones((1, 2), np.float32))
        for _ in range(3):
            client.async_stream_infer("my model", [tensor])
        await_condition(lambda: len(answers) == 3)
        client.stop_stream()
        [found] = log.await_lines(1)
    assert found["path"].endswith("ModelStreamInfer")
    assert (found["status"], found["request_id"], found["model"]) == (200, "s-1", "my model")
    assert found["bytes"] > 3 * 8 and found["compute_ms"] > 0


def test_answers_in_parts_have_their_line(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with logging(tmp_path / "log", CountingModel()) as log:
        address = log.server.address
        status, whole, _ = fetch(address, "POST", STREAM, json.dumps({"x": 40, "id": "a7"}).encode())
        headers = {"x-request-id": "r-7"}
        assert fetch(address, "POST", STREAM, json.dumps({"x": FAILING}).encode(), headers)[0] == 200
        good, failed = log.await_lines(2)
    assert (status, good["status"], good["bytes"]) == (200, 200, len(whole))
    assert (good["id"], good["model"]) == ("a7", "my model")
    assert good["compute_ms"] > 0 and good["duration_ms"] >= good["compute_ms"]
    assert failed["request_id"] == "r-7" and failed["compute_ms"] > 0
    [found] = [json.loads(text) for text in capfdbinary.readouterr().err.splitlines() if b"stream-failed" in text]
    assert found["request_id"] == "r-7"


def test_nothing_a_client_sends_leaves_its_string(tmp_path: Path) -> None:
    path = f'{INFER}/%0a%22%7d%0a"}}{{\\'.encode()
    with logging(tmp_path / "log") as log:
        request = b"GET " + path + b' HTTP/1.1\r\nx-request-id: a"b\tc\r\nx-tenant: \xff"}\r\nConnection: close\r\n\r\n'
        talk(log.server.address, request)
        talk(log.server.address, b"GET /" + b"x" * 4000 + b" HTTP/1.1\r\nConnection: close\r\n\r\n")
        talk(log.server.address, b"not HTTP at all\r\n\r\n")
        odd, long, broken = log.await_lines(3)
    assert odd["path"] == path.decode("latin-1")
    assert odd["tenant"] == '\xff"}'
    # An id with anything but printable ASCII in it goes no further.
    assert len(odd["request_id"]) == 32
    assert len(long["path"]) == 512
    assert broken["status"] == 400


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "naïve"])
def test_a_request_without_a_usable_id_gets_one(tmp_path: Path, given: str) -> None:
    with logging(tmp_path / "log") as log:
        answers = [fetch(log.server.address, "POST", INFER, BODY, {"x-request-id": given})[2] for _ in range(2)]
        lines = log.await_lines(2)
    ids = [answer["x-request-id"] for answer in answers]
    assert ids == [one["request_id"] for one in lines]
    assert len(set(ids)) == 2 and all(len(one) == 32 for one in ids)


def test_a_share_is_logged_and_every_error(tmp_path: Path) -> None:
    draws = iter([0.1, 0.9, 0.2, 0.8])
    with logging(tmp_path / "log", ratio=0.5, draw=lambda: next(draws)) as log:
        for _ in range(4):
            assert fetch(log.server.address, "POST", INFER, BODY)[0] == 200
        for _ in range(3):
            assert fetch(log.server.address, "POST", INFER, b"no JSON")[0] == 400
        assert fetch(log.server.address, "GET", "/v2/health/ready")[0] == 200
        assert fetch(log.server.address, "GET", "/metrics")[0] == 200
        found = log.await_lines(5)
    assert [one["status"] for one in found] == [200, 200, 400, 400, 400]


def test_a_client_that_leaves_has_its_line(tmp_path: Path) -> None:
    model = GatedModel()
    with logging(tmp_path / "log", model) as log:
        host, _, port = log.server.address.partition(":")
        with socket.create_connection((host, int(port))) as leaving:
            leaving.sendall(f"POST {INFER} HTTP/1.1\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
            model.started.get(timeout=PATIENCE)
        [found] = log.await_lines(1)
        assert (found["status"], found["bytes"]) == (499, 0)
        model.permit()


def test_failures_in_the_journal_name_the_request(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    model = GatedModel()
    model.permit()
    with logging(tmp_path / "log", model) as log:
        headers = {"x-request-id": "r-9", "traceparent": PARENT}
        assert fetch(log.server.address, "POST", INFER, json_request([[666.0]]), headers)[0] == 500
    [found] = [json.loads(text) for text in capfdbinary.readouterr().err.splitlines() if b"model-failed" in text]
    assert (found["request_id"], found["trace_id"]) == ("r-9", TRACE)


def test_levels_and_the_log_can_be_switched(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with logging(tmp_path / "log") as log:

        def change(**settings: Any) -> tuple[int, Any]:
            status, body, _ = fetch(log.server.address, "POST", "/v2/logging", json.dumps(settings).encode())
            return status, json.loads(body)

        assert change(log_verbose_level=0)[1]["log_verbose_level"] == 0
        assert fetch(log.server.address, "POST", INFER, BODY)[0] == 200
        assert change(log_verbose_level=1, log_info=False)[1]["log_info"] is False
        assert fetch(log.server.address, "POST", INFER, BODY)[0] == 200
        assert change(log_error=False)[0] == 501
        assert change(log_file="/etc/passwd")[0] == 501
        assert change(log_verbose_level=7)[0] == 501
        assert change(volume=11)[0] == 400
        paths = [one["path"] for one in log.await_lines(6)]
    assert paths.count(INFER) == 1


def test_a_server_that_is_not_told_otherwise_keeps_its_settings() -> None:
    switches = Switches(traceable=True, loggable=True, locked=True)
    for change in (
        lambda: switches.change_logging({"log_info": False}),
        lambda: switches.change_tracing({"trace_rate": "1"}),
    ):
        with pytest.raises(RequestFailure) as caught:
            change()
        assert caught.value.status == 403
    switches.change_logging({"log_info": True})  # as it is


def test_the_journal_writes_the_levels_that_are_wanted(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    switches = Switches()
    switches.change_logging({"log_info": False})
    journal.want(switches.logs)
    try:
        for level in ("info", "warning", "error"):
            journal.record("tried", level)
    finally:
        journal.want(None)
    assert [json.loads(text)["level"] for text in capfdbinary.readouterr().err.splitlines()] == ["warning", "error"]


def test_a_reader_that_stops_costs_lines_and_nothing_else() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filler = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filler += os.write(writer, b"\n" * 4096)
    os.set_blocking(writer, True)

    def observe(sheet: Sheet) -> tuple[Switches, Observer]:
        switches = Switches(loggable=True)
        return switches, Observer(switches, AccessLog(1.0, writer, capacity=100), None, sheet)

    count, written = 1000, bytearray()
    with ServerThread(FunctionModel(row_signature(), echo), observe=observe) as server:
        request = b"GET /v2 HTTP/1.1\r\n\r\n"
        last = request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        assert talk(server.address, request * (count - 1) + last).count(b" 200 OK") == count
        assert server.observer is not None
        server.on_loop(server.observer.publish)
        lost = int(server.metrics()["slipway_access_log_dropped_total"])

        def read() -> None:
            with os.fdopen(reader, "rb") as pipe:
                written.extend(pipe.read())

        # The queue holds 100 lines, and as many may be on their way into the pipe.
        assert lost >= count - 200
        drain = threading.Thread(target=read)
        drain.start()
    os.close(writer)
    drain.join(PATIENCE)
    lines = bytes(written[filler:]).splitlines()
    assert len(lines) + lost == count
    assert all(json.loads(text)["path"] == "/v2" for text in lines)


def test_a_full_outbox_drops_and_counts() -> None:
    gate, delivered = threading.Event(), []

    def send(lot: Any) -> int:
        gate.wait(PATIENCE)
        delivered.extend(lot)
        return 0

    outbox: Outbox[int] = Outbox("test", send, capacity=5, lot=2, period=0.01)
    outbox.put(0)
    await_condition(lambda: not outbox._items)
    for number in range(1, 10):
        outbox.put(number)
    assert outbox.dropped == 4
    gate.set()
    outbox.close(PATIENCE)
    assert delivered == [0, 1, 2, 3, 4, 5]


def test_an_outbox_outlasts_what_goes_wrong_and_closes_in_time() -> None:
    gate = threading.Event()

    def send(lot: Any) -> int:
        if lot[0] == "bad":
            raise OSError("no space")
        gate.wait(PATIENCE)
        return 0

    outbox: Outbox[str] = Outbox("test", send, capacity=5, lot=1, period=0.01)
    outbox.put("bad")
    await_condition(lambda: outbox.dropped == 1)
    outbox.put("stuck")
    await_condition(lambda: not outbox._items)
    outbox.put("waiting")
    outbox.close(0.05)
    assert outbox.dropped == 2
    gate.set()


def test_lines_fit_into_what_a_pipe_takes_in_one_piece() -> None:
    worst = "\x01" * 5000
    watch = Watch("http", "POST", worst, TraceContext(TRACE, "1" * 16, "", True), "r" * 128, 0.0, print)
    watch.model = watch.version = watch.protocol_id = watch.tenant = "é" * 5000
    text = json.dumps(line(watch, 200, 0, "OK", 0.0, 0.0), ensure_ascii=False).encode()
    assert len(text) < 4096 + 2048
    assert len(line(watch, 200, 0, "", 0.0, 0.0)["path"]) == 512  # type: ignore[arg-type]


@pytest.mark.parametrize("access_log", [True, False])
def test_a_server_that_tells_nothing_has_no_watches(access_log: bool) -> None:
    from slipway_runtime.telemetry.assembly import observer_of
    from slipway_runtime.telemetry.options import TelemetrySettings

    observer = observer_of(TelemetrySettings(access_log=access_log), Switches(), Sheet(), "m")
    assert (observer is not None) is access_log
    if observer is not None:
        observer.close(PATIENCE)
