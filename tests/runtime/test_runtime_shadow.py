"""Live requests repeated to a candidate: compared, counted, and never in the way of users."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slipway_runtime.settings import Limits
from slipway_runtime.shadow.comparison import agree
from slipway_runtime.shadow.config import Comparator, ShadowFile
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Tensor

from tests.runtime.harness import (
    INFER,
    FunctionModel,
    GatedModel,
    ServerThread,
    await_condition,
    echo,
    fetch,
    json_request,
    row_signature,
)

CANDIDATE = "m-v2-22222222"


def write_config(path: Path, target: str, percent: float = 100, compare: str = "Auto") -> None:
    content = {"target": f"http://{target}", "candidate": CANDIDATE, "percent": percent, "compare": compare}
    path.write_text(json.dumps(content))


def counts(server: ServerThread, pair: str) -> dict[str, float]:
    series = server.metrics()
    return {
        result: series.get(
            f'slipway_shadow_comparisons_total{{candidate="{CANDIDATE}",pair="{pair}",result="{result}"}}', -1
        )
        for result in ("agree", "differ", "error", "dropped")
    }


def await_active(server: ServerThread) -> None:
    await_condition(lambda: counts(server, "self")["agree"] >= 0)


def model(function: Callable[[Sequence[Tensor]], tuple[Tensor, ...]]) -> FunctionModel:
    return FunctionModel(row_signature(), function)


def negative_rows_differ(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    (one,) = inputs
    if (one.array == 7).any():
        raise ValueError("seven")
    return (Tensor("y", one.datatype, np.abs(one.array)),)


def test_answers_are_compared_and_users_counted_once(tmp_path: Path) -> None:
    file = tmp_path / "shadow.json"
    with (
        ServerThread(model(negative_rows_differ), revision=CANDIDATE) as candidate,
        ServerThread(model(echo), shadow_file=file) as stable,
    ):
        write_config(file, candidate.address)
        await_active(stable)
        for values in ([[1.0]], [[2.0]], [[-3.0]], [[7.0]]):
            assert stable.infer(values)[0] == 200
        await_condition(lambda: sum(counts(stable, "candidate").values()) == 4)
        assert counts(stable, "candidate") == {"agree": 2, "differ": 1, "error": 1, "dropped": 0}
        assert counts(stable, "self") == {"agree": 4, "differ": 0, "error": 0, "dropped": 0}
        assert stable.metrics()['slipway_requests_total{code="200",shadow="false"}'] == 4
        seen = candidate.metrics()
        assert seen['slipway_requests_total{code="200",shadow="true"}'] == 3
        assert seen['slipway_requests_total{code="500",shadow="true"}'] == 1
        assert seen['slipway_requests_total{code="200",shadow="false"}'] == 0


def test_the_candidates_own_servers_repeat_nothing(tmp_path: Path) -> None:
    file = tmp_path / "shadow.json"
    with (
        ServerThread(model(echo), revision=CANDIDATE, shadow_file=file) as candidate,
        ServerThread(model(echo), shadow_file=file) as stable,
    ):
        write_config(file, candidate.address)
        file.write_text(file.read_text().replace("{", '{"stable": "rev-1", ', 1))
        await_active(stable)
        for server in (candidate, stable):
            assert server.infer([[1.0]])[0] == 200
        await_condition(lambda: counts(stable, "candidate")["agree"] == 1)
        assert "slipway_shadow_comparisons_total" not in str(candidate.metrics())


def test_a_model_that_contradicts_itself_shows_in_the_noise(tmp_path: Path) -> None:
    draws = iter(range(1000))

    def noisy(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return (Tensor("y", Datatype.FP32, inputs[0].array + np.float32(next(draws))),)

    file = tmp_path / "shadow.json"
    with ServerThread(model(echo)) as candidate, ServerThread(model(noisy), shadow_file=file) as stable:
        write_config(file, candidate.address, compare="Exact")
        await_active(stable)
        stable.infer([[1.0]])
        await_condition(lambda: counts(stable, "self")["differ"] == 1)


def test_a_candidate_that_hangs_costs_users_nothing(tmp_path: Path) -> None:
    file, hanging = tmp_path / "shadow.json", GatedModel()
    with ServerThread(hanging) as candidate, ServerThread(model(echo), shadow_file=file) as stable:
        write_config(file, candidate.address)
        await_active(stable)
        # Four are with the candidate, 32 wait; the others are dropped, and every user has had an answer.
        for _ in range(50):
            assert stable.infer([[1.0]])[0] == 200
        await_condition(lambda: counts(stable, "candidate")["dropped"] >= 50 - 4 - 32 - 1)
        hanging.permit()


def test_what_cannot_be_reached_is_dropped_not_held_against_the_candidate(tmp_path: Path) -> None:
    file = tmp_path / "shadow.json"
    with ServerThread(model(echo)) as candidate:
        address = candidate.address
    with ServerThread(model(echo), shadow_file=file) as stable:
        write_config(file, address)
        await_active(stable)
        stable.infer([[1.0]])
        await_condition(lambda: counts(stable, "candidate")["dropped"] == 1)
        assert counts(stable, "candidate")["error"] == 0


def test_the_file_may_vanish_and_come_back(tmp_path: Path) -> None:
    file = tmp_path / "shadow.json"
    shadowed = ShadowFile(file)
    assert shadowed.read() is None
    write_config(file, "c:80", percent=5)
    first = shadowed.read()
    assert first is not None
    assert (first.percent, first.compare) == (5, Comparator.AUTO)
    file.write_text('{"target": "ftp://x", "candidate": "c", "percent": 5}')
    assert shadowed.read() is None
    file.write_text("{")
    assert shadowed.read() is None
    write_config(file, "c:80")
    assert shadowed.read() is not None
    file.unlink()
    assert shadowed.read() is None


def test_the_request_id_decides_who_is_in_the_sample(tmp_path: Path) -> None:
    file = tmp_path / "shadow.json"
    with ServerThread(model(echo)) as candidate, ServerThread(model(echo), shadow_file=file) as stable:
        write_config(file, candidate.address, percent=30)
        await_active(stable)

        def send(request_id: str) -> None:
            headers = {"x-request-id": request_id}
            assert fetch(stable.address, "POST", INFER, json_request([[1.0]]), headers)[0] == 200

        def compared() -> float:
            return sum(counts(stable, "candidate").values())

        for number in range(60):
            send(f"request-{number}")
        chosen = sum(stable_choice(f"request-{number}") for number in range(60))
        assert 5 < chosen < 35
        await_condition(lambda: compared() == chosen)
        own = sum(share(f"request-{number}") >= 92.5 for number in range(60))
        await_condition(lambda: sum(counts(stable, "self").values()) == own)
        always = next(name for name in (f"again-{number}" for number in range(100)) if stable_choice(name))
        for _ in range(3):
            send(always)
        await_condition(lambda: compared() == chosen + 3)


def share(request_id: str) -> float:
    return zlib.crc32(request_id.encode()) % 1_000_000 / 1_000_000 * 100


def stable_choice(request_id: str) -> bool:
    return share(request_id) < 30


def test_a_busy_server_refuses_repeated_requests_first() -> None:
    gated = GatedModel()
    with ServerThread(gated, Limits(max_batch_size=1, max_delay=0)) as server, ThreadPoolExecutor(4) as pool:
        users = [pool.submit(server.infer, [[float(n)]]) for n in range(4)]
        await_condition(lambda: server.on_loop(lambda: server.batcher.waiting) == 3)
        status = fetch(server.address, "POST", INFER, json_request([[1.0]]), {"x-slipway-shadow": "true"})[0]
        assert status == 429
        gated.permit()
        assert [user.result()[0] for user in users] == [200] * 4


def floats(values: Any, datatype: Datatype = Datatype.FP32) -> Tensor:
    return Tensor("y", datatype, np.asarray(values, dtype=datatype.numpy))


@pytest.mark.parametrize(
    ("ours", "theirs", "agreeing"),
    [
        ([[0.1, 0.9]], [[0.1, 0.9]], "Exact AllClose ArgMax TopK Auto"),
        ([[0.1, 0.9]], [[0.100001, 0.9]], "AllClose ArgMax TopK Auto"),
        ([[0.1, 0.9]], [[0.3, 0.7]], "ArgMax TopK Auto"),
        ([[0.1, 0.9]], [[0.6, 0.4]], "TopK"),
        ([[5.0, 2.0]], [[5.5, 2.0]], "ArgMax TopK"),
        ([[9.0, 1, 2, 3, 4, 5]], [[0.0, 1, 2, 3, 4, 5]], ""),
        ([[float("nan")]], [[float("nan")]], "Exact AllClose ArgMax TopK Auto"),
        ([1.0], [[1.0]], ""),
        (2.0, 2.00001, "AllClose ArgMax TopK Auto"),
    ],
)
def test_comparators(ours: Any, theirs: Any, agreeing: str) -> None:
    found = {one for one in Comparator if agree([floats(ours)], [floats(theirs)], one)}
    assert found == {Comparator(name) for name in agreeing.split()}


def test_other_datatypes_and_outputs() -> None:
    text = Tensor("y", Datatype.BYTES, np.array([b"a", b"b"], dtype=object))
    other = Tensor("y", Datatype.BYTES, np.array([b"a", b"c"], dtype=object))
    assert agree([text], [text], Comparator.AUTO)
    assert not agree([text], [other], Comparator.ALL_CLOSE)
    whole = Tensor("y", Datatype.INT64, np.array([1, 2]))
    assert not agree([whole], [floats([1, 2])], Comparator.ALL_CLOSE)
    assert not agree([whole], [], Comparator.AUTO)
    assert not agree([whole], [whole, floats([1])], Comparator.AUTO)
    bits = Tensor("y", Datatype.BF16, np.array([[0x3F80, 0x4000]], dtype=np.uint16))
    assert agree([bits], [bits], Comparator.ALL_CLOSE)
    swapped = Tensor("y", Datatype.BF16, bits.array[:, ::-1])
    assert not agree([bits], [swapped], Comparator.ARG_MAX)
