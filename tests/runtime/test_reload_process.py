"""Several models in a server process: its command line, reloads under load, memory, and the drain of all."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from slipway_runtime.refusal import Refusal
from slipway_runtime.repository import arguments
from slipway_runtime.settings import ModelSettings, parse_duration

from e2e.bench.runtime_reload import Server, memory, served, soak, write_models
from e2e.bench.steady_load import SteadyLoad
from tests.runtime.harness import await_condition, json_request
from tests.runtime.repository_server import write, write_waiting

RATE = 400.0
BODY = json_request(np.ones((1, 4)))


@contextlib.asynccontextmanager
async def steady(server: Server, target: str) -> AsyncIterator[SteadyLoad]:
    """Requests for the model at a steady rate; when the block is left, all of them are answered."""
    load = SteadyLoad("127.0.0.1", server.port, target, BODY, RATE, connections=8)
    sending = asyncio.create_task(load.run())
    try:
        await load.answered(100)
        yield load
    finally:
        load.stop()
        await sending


def outcomes(load: SteadyLoad) -> set[tuple[int, float]]:
    return {
        (answer.status, json.loads(answer.body)["outputs"][0]["data"][0] if answer.status == 200 else 0.0)
        for answer in load.answers
    }


async def test_reloads_under_load_fail_nothing(tmp_path: Path) -> None:
    places = [write(tmp_path / name, factor) for name, factor in (("two", 2), ("three", 3))]
    async with served(places[0]) as server, steady(server, "/v2/models/m/infer") as load:
        for place in (places[1], places[0], places[1]):
            assert await asyncio.to_thread(server.load, place.as_uri()) == 200
            await load.answered(len(load.answers) + 100)
    assert outcomes(load) == {(200, 2.0), (200, 3.0)}


async def test_a_drain_of_several_models_loses_no_request(tmp_path: Path) -> None:
    more = [f"{name}={write(tmp_path / name, factor)}" for name, factor in (("a", 5), ("b:7", 7))]
    async with (
        served(write(tmp_path / "m", 2), "--pre-stop", "3s", beside=more) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        targets = ("/v2/models/m/infer", "/v2/models/a/infer", "/v2/models/b/versions/7/infer")
        loads = [await stack.enter_async_context(steady(server, target)) for target in targets]
        server.process.terminate()
        # As a proxy does: requests go on until the server is seen to be unready.
        await asyncio.to_thread(await_condition, lambda: not server.ready())
        for load in loads:
            load.stop()
        assert await server.process.wait() == 0
    assert [outcomes(load) for load in loads] == [{(200, 2.0)}, {(200, 5.0)}, {(200, 7.0)}]


async def test_sigterm_does_not_wait_for_a_load(tmp_path: Path) -> None:
    slow = write_waiting(tmp_path / "slow", 3)
    async with served(write(tmp_path / "m", 2), "--pre-stop", "10ms") as server:
        (tmp_path / "gate").mkdir()
        load = asyncio.create_task(asyncio.to_thread(server.load, slow.as_uri()))
        await asyncio.to_thread(await_condition, lambda: list((tmp_path / "gate").iterdir()))
        server.process.terminate()
        assert await load == 503
        assert await server.process.wait() == 0


async def test_loads_and_failed_loads_keep_no_memory(tmp_path: Path) -> None:
    models = await asyncio.to_thread(write_models, tmp_path)
    assert await memory(models, 8)


async def test_traffic_and_probes_keep_no_memory_and_no_files(tmp_path: Path) -> None:
    models = {"two": write(tmp_path / "two", 2)}
    assert await soak(models, requests=6000, rate=1500)


def parsed(*words: str) -> tuple[ModelSettings, ...]:
    parser = argparse.ArgumentParser()
    arguments.add_arguments(parser, parse_duration, lambda _: int)
    for flag in ("--signature", "--signature-uri", "--warmup-file", "--inputs", "--outputs", "--shadow-file"):
        parser.add_argument(flag, default="")
    return arguments.models_of(parser.parse_args(words), ModelSettings("", "", "", ""))


def test_models_are_named_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("model.pt", "b=sub/other.onnx", "c:v2=s3://bucket/key", f"{tmp_path}/folder/", "hf://owner/name@main")
    assert [(one.name, one.version, one.uri) for one in parsed(*words)] == [
        ("model", "1", f"{tmp_path.as_uri()}/model.pt"),
        ("b", "1", f"{tmp_path.as_uri()}/sub/other.onnx"),
        ("c", "v2", "s3://bucket/key"),
        ("folder", "1", f"{tmp_path.as_uri()}/folder"),
        ("name@main", "1", "hf://owner/name@main"),
    ]
    told = parsed("--model-name", "m", "--model-version", "v3", "--revision", "m-v3-1", "--uri", "file:///a", "b.pt")
    assert [(one.name, one.version, one.revision) for one in told] == [("b", "1", ""), ("m", "v3", "m-v3-1")]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--model-name", "m", "--uri", "file:///a"),
        ("a.pt", "sub/a.pt"),
        ("stats=a.pt",),
        ("a.pt", "b.pt", "--sha256", "0" * 64),
        ("--repository", ".", "--inputs", "[]"),
        ("a.pt", "--shadow-file", "f", "--watch"),
    ],
)
def test_models_that_contradict_each_other_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(Refusal, match="BadArguments"):
        parsed(*words)
