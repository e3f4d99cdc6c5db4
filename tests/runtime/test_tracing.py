"""Traces: W3C context in and out, spans as a real collector gets them, and nothing lost but spans when it is away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from slipway_runtime.metrics.sheet import Sheet
from slipway_runtime.telemetry.observer import Observer
from slipway_runtime.telemetry.spans import SpanExport
from slipway_runtime.telemetry.switches import Switches
from slipway_runtime.telemetry.trace_context import begin
from tritonclient.utils import InferenceServerException

from tests.runtime.collector import Collector, attributes, collecting
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
    serving,
)
from tests.runtime.test_runtime_batching import Clients, data
from tests.runtime.test_runtime_shadow import await_active, write_config

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
BODY = json_request([[1.0, 2.0]])


@contextmanager
def tracing(
    collector: Collector, ratio: float = 0.0, model: Any = None, shadow_file: Path | None = None, **options: Any
) -> Iterator[ServerThread]:
    def observe(sheet: Sheet) -> tuple[Switches, Observer]:
        switches = Switches(traceable=True)
        switches.reset(ratio, access_log=False)
        export = SpanExport(collector.endpoint, {"service.name": "m"}, **options)
        return switches, Observer(switches, None, export, sheet)

    served = model or FunctionModel(row_signature(), echo)
    with ServerThread(served, observe=observe, shadow_file=shadow_file) as server:
        yield server


def lost(server: ServerThread) -> float:
    assert server.observer is not None
    server.on_loop(server.observer.publish)
    return server.metrics()["slipway_traces_dropped_total"]


def infer(server: ServerThread, parent: str = "", **headers: str) -> dict[str, str]:
    given = {"traceparent": parent} if parent else {}
    status, _, answer = fetch(server.address, "POST", INFER, BODY, given | headers)
    assert status == 200
    return answer


def test_a_request_has_spans_in_its_callers_trace() -> None:
    with collecting() as collector:
        with tracing(collector) as server:
            answer = infer(server, PARENT, tracestate="vendor=1", **{"x-request-id": "r-1"})
        spans = collector.await_spans(3)
        [request], [queue], [compute] = spans["POST my model"], spans["queue"], spans["compute"]
        resource = attributes(collector.requests[0].resource_spans[0].resource)
    assert {span.trace_id.hex() for span in (request, queue, compute)} == {TRACE}
    assert request.parent_span_id.hex() == SPAN
    assert queue.parent_span_id == compute.parent_span_id == request.span_id
    assert len({request.span_id, queue.span_id, compute.span_id}) == 3
    assert request.trace_state == "vendor=1"
    assert answer["traceresponse"] == f"00-{TRACE}-{request.span_id.hex()}-01"
    assert request.start_time_unix_nano <= queue.start_time_unix_nano <= queue.end_time_unix_nano
    assert queue.end_time_unix_nano == compute.start_time_unix_nano < compute.end_time_unix_nano
    assert compute.end_time_unix_nano <= request.end_time_unix_nano
    found = attributes(request)
    assert found["http.response.status_code"] == 200 and found["url.path"] == INFER
    assert found["slipway.model"] == "my model" and found["slipway.version"] == "v1"
    assert found["slipway.request_id"] == "r-1"
    assert attributes(compute) == {"slipway.batch.rows": 1, "slipway.batch.requests": 1}
    assert resource["service.name"] == "m"


def test_a_call_has_spans_in_its_callers_trace() -> None:
    tensor = triton_grpc.InferInput("x", [1, 2], "FP32").set_data_from_numpy(np.ones((1, 2), np.float32))
    with collecting() as collector:
        with tracing(collector) as server, triton_grpc.InferenceServerClient(server.grpc_address) as client:
            client.infer("my model", [tensor], headers={"traceparent": PARENT})
            with pytest.raises(InferenceServerException):
                client.infer("other", [tensor], headers={"traceparent": PARENT})
        spans = collector.await_spans(4)
    [good], [bad] = spans["POST my model"], spans["POST"]
    assert good.trace_id.hex() == TRACE and good.parent_span_id.hex() == SPAN
    assert attributes(good)["rpc.method"] == "inference.GRPCInferenceService/ModelInfer"
    assert attributes(bad)["rpc.grpc.status"] == "NOT_FOUND"
    assert len(spans["queue"]) == len(spans["compute"]) == 1


def test_requests_of_a_batch_are_linked() -> None:
    model = GatedModel()
    traces = [f"{number:032x}" for number in (1, 2)]
    with collecting() as collector:
        with tracing(collector, model=model) as server:
            clients = Clients(server)
            first = clients.send([[0.0]])
            model.started.get(timeout=PATIENCE)
            answers = [
                ThreadPoolExecutor(1).submit(
                    fetch, server.address, "POST", INFER, json_request([[1.0]]), {"traceparent": f"00-{one}-{SPAN}-01"}
                )
                for one in traces
            ]
            clients.await_waiting(2)
            model.permit()
            data(first)
            assert [answer.result(PATIENCE)[0] for answer in answers] == [200, 200]
        spans = collector.await_spans(6)
    by_trace = {span.trace_id.hex(): span for span in spans["compute"]}
    roots = {span.trace_id.hex(): span.span_id for span in spans["POST my model"]}
    for own, other in (traces, reversed(traces)):
        [link] = by_trace[own].links
        assert (link.trace_id.hex(), link.span_id) == (other, roots[other])
        assert attributes(by_trace[own])["slipway.batch.requests"] == 2


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_repeated_request_is_in_the_trace_of_the_users(tmp_path: Path, protocol: str) -> None:
    file = tmp_path / "shadow.json"
    tensor = triton_grpc.InferInput("x", [1, 2], "FP32").set_data_from_numpy(np.ones((1, 2), np.float32))
    with collecting() as collector, tracing(collector) as candidate, tracing(collector, shadow_file=file) as stable:
        write_config(file, candidate.address)
        await_active(stable)
        if protocol == "http":
            infer(stable, PARENT, tracestate="vendor=1")
        else:
            with triton_grpc.InferenceServerClient(stable.grpc_address) as client:
                client.infer("my model", [tensor], headers={"traceparent": PARENT, "tracestate": "vendor=1"})
        spans = collector.await_spans(6)["POST my model"]
    by_parent = {span.parent_span_id.hex(): span for span in spans}
    users = by_parent[SPAN]
    repeated = by_parent[users.span_id.hex()]
    assert repeated.trace_id == users.trace_id
    assert repeated.trace_state == users.trace_state == "vendor=1"


def test_the_caller_decides_and_the_ratio_where_it_does_not() -> None:
    with collecting() as collector:
        with tracing(collector, ratio=1.0) as server:
            assert infer(server, f"00-{TRACE}-{SPAN}-00")["traceresponse"].endswith("-00")
            infer(server, "rubbish")
        spans = collector.await_spans(3)
    [request] = spans["POST my model"]
    assert request.trace_id.hex() != TRACE and not request.parent_span_id
    with collecting() as collector:
        with tracing(collector, ratio=0.0) as server:
            for _ in range(20):
                infer(server)
            infer(server, PARENT)
        assert len(collector.spans()) == 3


@pytest.mark.parametrize(
    ("parent", "known"),
    [
        (PARENT, True),
        (f"00-{TRACE}-{SPAN}-00", True),
        (f"01-{TRACE}-{SPAN}-01-more", True),
        (f"00-{TRACE}-{SPAN}-01-more", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{SPAN}-01", False),
        (f"00-{TRACE[1:]}-{SPAN}-01", False),
        (f"{PARENT}, {PARENT}", False),
        ("", False),
    ],
)
def test_which_parents_are_taken(parent: str, known: bool) -> None:
    context = begin(parent, "a=1", 0.0)
    assert (context.trace_id == TRACE) is known
    assert context.parent_id == (SPAN if known else "")
    assert context.state == ("a=1" if known else "")
    assert context.span_id != SPAN


def test_the_ratio_is_drawn_by_the_traces_id() -> None:
    def drawn(number: int) -> bool:
        return begin("", "", 0.25, token=lambda size: f"{number << 60:0{2 * size}x}").sampled

    assert [drawn(number) for number in range(16)] == [True] * 4 + [False] * 12


def test_a_collector_that_is_away_costs_spans_and_nothing_else() -> None:
    with collecting() as collector:
        collector.gate.clear()
        with tracing(collector, ratio=1.0, capacity=3) as server:
            for _ in range(10):
                infer(server)
            await_condition(lambda: lost(server) > 0)
            assert infer(server)
            collector.gate.set()
    with collecting() as collector:
        collector.answer = 400
        with tracing(collector, ratio=1.0) as server:
            infer(server)
            await_condition(lambda: lost(server) == 1)


def test_what_is_noted_is_sent_before_the_end() -> None:
    with collecting() as collector:
        with tracing(collector, ratio=1.0) as server:
            infer(server)
        assert len(collector.spans()) == 3


def test_a_pod_sends_what_its_variables_say_and_all_of_it_before_it_ends(
    tmp_path: Path, model_files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables are those that the operator gives to pods."""
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "scorer")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.version=v1,k8s.pod.name=scorer-v1-abc")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "1")
        shapes = json.dumps([{"name": "x", "datatype": "FP32", "shape": [-1, 2]}])
        with serving(tmp_path, model_files["doubler.pt"].as_uri(), "--inputs", shapes) as server:
            server.await_ready()
            assert fetch(server.address, "POST", "/v2/models/m/infer", BODY)[0] == 200
            assert fetch(server.address, "POST", "/v2/trace/setting", b'{"trace_rate": "9"}')[0] == 403
            assert json.loads(fetch(server.address, "GET", "/v2/trace/setting")[1])["trace_rate"] == "1"
            server.terminate()
            assert server.wait() == 0
        spans = collector.spans()
        resource = attributes(collector.requests[0].resource_spans[0].resource)
    assert [span.name for span in spans].count("POST m") == 1
    assert (resource["service.name"], resource["service.version"]) == ("scorer", "v1")
    assert resource["k8s.pod.name"] == "scorer-v1-abc"


def test_a_close_does_not_wait_for_a_collector_that_is_gone() -> None:
    with collecting() as collector:
        endpoint = collector.endpoint
    export = SpanExport(endpoint, {})
    sheet = Sheet()
    observer = Observer(Switches(traceable=True), None, export, sheet)
    watch = observer.begin("http", "GET", "/v2", {"traceparent": PARENT}, 0.0, 0)
    watch.finish(watch, 200, 0, "")
    observer.close(0.2)
    assert export.dropped == 1


def test_the_ratio_can_be_read_and_changed_by_both_protocols() -> None:
    with collecting() as collector, tracing(collector, ratio=0.01) as server:
        with triton.InferenceServerClient(server.address) as client:
            found = client.get_trace_settings()
            assert (found["trace_rate"], found["trace_mode"], found["trace_level"]) == (
                "100",
                "opentelemetry",
                ["TIMESTAMPS"],
            )
            assert client.update_trace_settings(settings={"trace_rate": "1"})["trace_rate"] == "1"
            infer(server)
            for wrong in ({"trace_rate": "often"}, {"trace_rate": "-1"}, {"nothing": "1"}):
                with pytest.raises(InferenceServerException):
                    client.update_trace_settings(settings=wrong)
            with pytest.raises(InferenceServerException, match="cannot be changed"):
                client.update_trace_settings(settings={"trace_file": "/etc/passwd"})
        with triton_grpc.InferenceServerClient(server.grpc_address) as calls:
            assert calls.get_trace_settings().settings["trace_rate"].value == ["1"]
            off = calls.update_trace_settings(settings={"trace_level": ["OFF"]})
            assert off.settings["trace_level"].value == ["OFF"]
            # Off is off, whatever the caller wants.
            infer(server, PARENT)
            on = calls.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"], "trace_rate": "4"})
            assert on.settings["trace_rate"].value == ["4"]
            assert calls.update_log_settings({"log_info": False}).settings["log_info"].bool_param is False
        assert {span.trace_id.hex() for span in collector.await_spans(3)["POST my model"]} != {TRACE}
        assert json.loads(fetch(server.address, "GET", "/v2/trace/setting")[1])["trace_rate"] == "4"
