"""The answer cache: keys, bounds and order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slipway_runtime.serving.cache import AnswerCache, CacheCounts, input_key
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Tensor


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Tally:
    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        self.value += amount


class Counted(AnswerCache):
    """A cache and its counters."""

    def __init__(self, max_bytes: int, ttl: float, clock: Clock) -> None:
        self.tallies = [Tally() for _ in range(5)]
        super().__init__(max_bytes, ttl, CacheCounts(*self.tallies), clock)

    def numbers(self) -> list[float]:
        """Hits, misses, shared, evictions and bytes."""
        return [one.value for one in self.tallies]


def tensor(name: str, values: Any, datatype: Datatype = Datatype.FP32) -> Tensor:
    return Tensor(name, datatype, np.asarray(values, dtype=datatype.numpy))


def words(name: str, *values: bytes) -> Tensor:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return Tensor(name, Datatype.BYTES, array)


KEY = b"key"


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "get", "wait", "clear"]), st.integers(0, 6), st.integers(0, 900)), max_size=60
    )
)
def test_the_cache_keeps_its_bounds_and_gives_what_was_put(steps: list[tuple[str, int, int]]) -> None:
    clock = Clock()
    cache = Counted(6_000, 10.0, clock)
    newest: dict[bytes, tuple[float, float]] = {}
    asked = 0
    for step, number, size in steps:
        key = bytes([number])
        if step == "put":
            value = float(len(newest) + size)
            cache.put(key, (tensor("y", [value] * size),))
            newest[key] = (value if size else -1.0, clock.now)
        elif step == "get":
            asked += 1
            found = cache.get(key)
            if found is not None:
                value, at = newest[key]
                assert clock.now < at + 10.0
                assert not found[0].array.size or found[0].array[0] == value
        elif step == "wait":
            clock.now += size / 100
        else:
            cache.clear()
            newest.clear()
        assert 0 <= cache.size <= 6_000
        assert cache.size >= 1024 * len(cache)
        assert cache.numbers()[4] == cache.size
    assert sum(cache.numbers()[:2]) == asked


def test_the_least_recently_used_goes_first() -> None:
    cache = Counted(3 * 1100, 10.0, Clock())
    for key in (b"a", b"b", b"c"):
        cache.put(key, (tensor("y", [1.0]),))
    assert cache.get(b"a") is not None
    cache.put(b"d", (tensor("y", [1.0]),))
    assert cache.get(b"b") is None
    assert all(cache.get(key) is not None for key in (b"a", b"c", b"d"))
    assert cache.numbers()[:4] == [4, 1, 0, 1]


def test_an_answer_has_an_end() -> None:
    clock = Clock()
    cache = Counted(10_000, 60.0, clock)
    cache.put(KEY, (tensor("y", [1.0]),))
    clock.now = 59.9
    assert cache.get(KEY) is not None
    clock.now = 60.0
    assert cache.get(KEY) is None and len(cache) == 0 and cache.size == 0


def test_what_is_kept_is_a_copy_that_nobody_changes() -> None:
    large = np.zeros((1000, 4), dtype=np.float32)
    cache = Counted(10_000, 60.0, Clock())
    cache.put(KEY, (Tensor("y", Datatype.FP32, large[:1]),))
    large[:] = 7
    found = cache.get(KEY)
    assert found is not None and found[0].array.tolist() == [[0.0] * 4]
    assert found[0].array.base is None
    with pytest.raises(ValueError, match="read-only"):
        found[0].array[0, 0] = 1
    cache.put(b"huge", (Tensor("y", Datatype.FP32, large),))
    assert cache.get(b"huge") is None and len(cache) == 1


def test_a_key_tells_every_difference() -> None:
    keys = [
        input_key("m/v1/aa", [tensor("x", [1, 2])]),
        input_key("m/v1/bb", [tensor("x", [1, 2])]),
        input_key("m/v1/aa", [tensor("y", [1, 2])]),
        input_key("m/v1/aa", [tensor("x", [[1, 2]])]),
        input_key("m/v1/aa", [tensor("x", [[1], [2]])]),
        input_key("m/v1/aa", [tensor("x", [1, 3])]),
        input_key("m/v1/aa", [tensor("x", [1, 2], Datatype.INT32)]),
        input_key("m/v1/aa", [tensor("x", [1, 2]), tensor("z", [1])]),
        input_key("m/v1/aa", [words("x", b"ab", b"c")]),
        input_key("m/v1/aa", [words("x", b"a", b"bc")]),
        input_key("m/v1/aa", [tensor("x", np.zeros((0, 2)))]),
        input_key("m/v1/aa", [tensor("x", np.zeros((2, 0)))]),
        input_key("m/v1/aa", [tensor("x", 1)]),
    ]
    assert len(set(keys)) == len(keys)
    one, two = tensor("a", [1]), tensor("b", [2])
    assert input_key("m", [one, two]) == input_key("m", [two, one])
    strided = tensor("x", [[1, 2], [3, 4]]).array.T
    assert input_key("m", [Tensor("x", Datatype.FP32, strided)]) == input_key("m", [tensor("x", [[1, 3], [2, 4]])])
