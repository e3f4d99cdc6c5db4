"""What a real Triton answered to two hundred requests, and what this server answers to them.

``python -m e2e.bench.conformance --record`` recorded Triton 2.51's side; the rule and the list of intended
differences are that command's own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from e2e.bench.conformance.__main__ import Server, ask, call, running, write_handler
from e2e.bench.conformance.calls import Call, calls
from e2e.bench.conformance.requests import Request, requests
from e2e.bench.conformance.rule import DIFFERENCES, Answer, differences

RECORD: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "triton_answers.json").read_text()
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(write_handler(tmp_path_factory.mktemp("conformance") / "model")) as started:
        yield started


def body_of(record: dict[str, Any]) -> bytes:
    return base64.b64decode(record["body"])


def test_http_answers_are_those_of_triton(server: Server) -> None:
    unlike = {}
    for record in RECORD["http"]:
        request = Request(record["name"], record["method"], record["path"], record["headers"], body_of(record))
        name = f"http: {request.name}"
        found = differences(name, Answer.of_json(record["answer"]), ask(server, request))
        if found:
            unlike[name] = found
    assert unlike == {}


def test_grpc_answers_are_those_of_triton(server: Server) -> None:
    unlike = {}
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        for record in RECORD["grpc"]:
            one = Call(record["name"], record["method"], body_of(record))
            name = f"grpc: {one.name}"
            found = differences(name, Answer.of_json(record["answer"]), call(channel, one))
            if found:
                unlike[name] = found
    assert unlike == {}


def test_the_record_holds_every_request() -> None:
    """A request that was added or changed has to be recorded again."""
    http = {one["name"]: (one["method"], one["path"], one["headers"], body_of(one)) for one in RECORD["http"]}
    assert http == {one.name: (one.method, one.path, one.headers, one.body) for one in requests() if one.name in http}
    assert set(http) == {one.name for one in requests()}
    assert {one["name"] for one in RECORD["grpc"]} == {one.name for one in calls()}
    assert set(DIFFERENCES) <= {f"http: {name}" for name in http} | {f"grpc: {one.name}" for one in calls()}


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        ("500", b'{"error": "x"}', "answers 500, Triton 400"),
        ("400", b'{"detail": "x"}', "no object with the key 'error'"),
        ("404", b"not found", "no JSON"),
    ],
)
def test_the_rule_tells_what_is_unlike(status: str, body: bytes, told: str) -> None:
    [found] = differences("http: wrong width", Answer("400"), Answer(status, {}, body))
    assert told in found


def test_the_rule_tells_other_tensors_and_lists_that_are_out_of_date() -> None:
    def answer(value: float) -> Answer:
        output = {"name": "y", "datatype": "FP32", "shape": [1], "data": [value]}
        return Answer("200", {}, json.dumps({"model_name": "m", "outputs": [output]}).encode())

    assert differences("http: json", answer(1.0), answer(1.0)) == []
    assert len(differences("http: json", answer(1.0), answer(2.0))) == 1
    [found] = differences("http: not JSON", Answer("400"), Answer("400"))
    assert "is listed as a difference" in found
