"""One model after another in the same place: swaps, refusals, ways back, and what becomes of the old one."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.harness import await_condition, json_request
from tests.runtime.repository_server import (
    EXPLICIT,
    Flat,
    RepositoryServer,
    model,
    write,
    write_failing,
    write_waiting,
)


def test_a_request_in_flight_is_finished_by_the_model_that_took_it(tmp_path: Path) -> None:
    old, new = write_waiting(tmp_path / "a", 2), write(tmp_path / "b", 3)
    with RepositoryServer(model(old)) as server, ThreadPoolExecutor() as pool:
        (tmp_path / "gate").mkdir()
        answer = pool.submit(server.infer)
        await_condition(lambda: list((tmp_path / "gate").glob("running-*")))
        assert server.load(uri=new.as_uri())[0] == 200
        assert server.infer() == 3
        assert server.ask("POST", "/v2/repository/models/m/unload", {})[0] == 200
        assert not answer.done()
        (tmp_path / "gate" / "open").touch()
        assert answer.result() == 2


def test_another_signature_is_refused(tmp_path: Path) -> None:
    with RepositoryServer(model(write(tmp_path / "a", 2))) as server:
        other = write(tmp_path / "b", module=Flat())
        status, answer = server.load(uri=other.as_uri())
        assert status == 400
        assert "output 'y' has 1 dimensions, not 2" in answer["error"]
        assert server.infer() == 2
        state, reason = server.index()["m:1"]
        assert (state, reason.partition(":")[0]) == ("READY", "SignatureChanged")
        assert server.load(uri=other.as_uri(), allow_signature_change=True)[0] == 200
        assert server.infer() == 4
        assert server.index()["m:1"] == ("READY", "")


def test_a_failed_load_leaves_the_old_model_and_says_why(tmp_path: Path) -> None:
    with RepositoryServer(model(write(tmp_path / "a", 2))) as server:
        broken = write(tmp_path / "b", 3)
        (broken / "model.pt").write_bytes(b"PK\x03\x04 cut off")
        for parameters, status, reason in (
            ({"uri": broken.as_uri()}, 400, "NotAModel"),
            ({"uri": "file:///nowhere"}, 404, "ArtefactNotFound"),
            ({"sha256": "0" * 64}, 400, "DigestMismatch"),
        ):
            assert server.load(**parameters)[0] == status
            assert server.infer() == 2
            state, said = server.index()["m:1"]
            assert (state, said.partition(":")[0]) == ("READY", reason)
        assert server.load("new", uri=broken.as_uri())[0] == 400
        assert server.index()["new:1"][0] == "UNAVAILABLE"
        assert server.ask("POST", "/v2/models/new/infer", json.loads(json_request(np.ones((1, 4)))))[0] == 503
        # What was only tried does not make the server unready.
        assert server.ask("GET", "/v2/health/ready")[0] == 200


def test_going_back_loads_nothing_and_ends_with_the_window(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a", 2), write(tmp_path / "b", 3)
    with RepositoryServer(model(one)) as server:
        first = server.repository.find("m")
        digest = first.sha256
        assert server.load(uri=two.as_uri(), version="2")[0] == 200
        assert server.index() == {"m:2": ("READY", "")}
        # The files are not needed for that.
        (one / "model.pt").unlink()
        assert server.load(uri=one.as_uri(), version="1", sha256=digest)[0] == 200
        assert server.repository.find("m") is first
        assert server.infer() == 2
        assert server.index() == {"m:1": ("READY", "")}
        assert server.load(uri=two.as_uri(), version="2")[0] == 200
        assert server.infer() == 3


def executors() -> int:
    return sum(thread.name == "executor" for thread in threading.enumerate())


def test_the_old_model_is_freed_when_the_window_ends(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a", 2), write(tmp_path / "b", 3)
    with RepositoryServer(model(one), rules=replace(EXPLICIT, rollback_window=0.2)) as server:
        assert server.infer() == 2
        old = weakref.ref(server.repository.find("m").model)
        threads = executors()
        assert server.load(uri=two.as_uri())[0] == 200
        assert old() is not None
        await_condition(lambda: gc.collect() >= 0 and old() is None)
        await_condition(lambda: executors() == threads)
        assert server.infer() == 3


@pytest.mark.parametrize(
    ("error", "attempts", "reason"),
    [
        ("RuntimeError('CUDA error: device-side assert triggered')", 1, "RolledBack: CUDA error"),
        ("torch.OutOfMemoryError('out of memory')", 5, "RolledBack: the device failed the first 5 requests"),
    ],
)
def test_a_model_whose_device_fails_at_once_is_rolled_back(
    tmp_path: Path, error: str, attempts: int, reason: str
) -> None:
    with RepositoryServer(model(write(tmp_path / "a", 2))) as server:
        assert server.load(uri=write_failing(tmp_path / "b", 3, error).as_uri())[0] == 200
        (tmp_path / "broken").touch()
        body = json.loads(json_request(np.ones((1, 4))))
        for _ in range(attempts):
            assert server.ask("POST", "/v2/models/m/infer", body)[0] in (500, 503)
        await_condition(lambda: server.infer() == 2)
        state, said = server.index()["m:1"]
        assert state == "READY" and said.startswith(reason)
        assert server.lost == []
        assert server.ask("GET", "/v2/health/ready")[0] == 200


def test_a_device_that_fails_after_answers_ends_the_server(tmp_path: Path) -> None:
    error = "RuntimeError('CUDA error: device-side assert triggered')"
    with RepositoryServer(model(write(tmp_path / "a", 2))) as server:
        assert server.load(uri=write_failing(tmp_path / "b", 3, error).as_uri())[0] == 200
        assert server.infer() == 3
        (tmp_path / "broken").touch()
        assert server.ask("POST", "/v2/models/m/infer", json.loads(json_request(np.ones((1, 4)))))[0] == 500
        await_condition(lambda: server.lost)
        assert server.ask("GET", "/v2/health/ready")[0] == 400


def test_new_code_is_not_mixed_with_the_old(tmp_path: Path) -> None:
    places = [write_waiting(tmp_path / name, 1) for name in ("a", "b")]
    for place, factor in zip(places, (2, 3), strict=True):
        (place / "arithmetic.py").write_text(f"FACTOR = {factor}\n")
        text = (place / "handler.py").read_text().replace("* 1", "* arithmetic.FACTOR")
        (place / "handler.py").write_text(f"import arithmetic\n{text}")
    with RepositoryServer(model(places[0])) as server:
        assert server.infer() == 2
        assert server.load(uri=places[1].as_uri())[0] == 200
        assert server.infer() == 3
        # The same file with as many bytes, changed within the second.
        (places[1] / "arithmetic.py").write_text("FACTOR = 4\n")
        assert server.load()[0] == 200
        assert server.infer() == 4
