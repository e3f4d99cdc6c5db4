"""Tenants' shares and the memory budget: pure parts."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.serving.budget import ByteBudget
from slipway_runtime.serving.tenants import Share, TenantCounts, TenantRules, Tenants, TokenBucket, read_rules


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Tally:
    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        self.value += amount


class Ledger(dict[str, tuple[Tally, Tally]]):
    """What is counted by tenant: admitted and limited requests."""

    def __call__(self, name: str) -> TenantCounts:
        self[name] = Tally(), Tally()
        return TenantCounts(*self[name])

    def numbers(self) -> dict[str, tuple[float, float]]:
        return {name: (admitted.value, limited.value) for name, (admitted, limited) in self.items()}


@given(st.floats(0.1, 500), st.lists(st.floats(0, 3), min_size=1, max_size=60))
def test_a_bucket_admits_its_rate_and_a_second_at_once(rate: float, gaps: list[float]) -> None:
    now = 0.0
    bucket = TokenBucket(rate, now)
    for admitted, gap in enumerate(gaps, start=1):
        now += gap
        wait = bucket.take(now)
        if wait:
            # Neither sooner nor later than it said.
            assert bucket.take(now + wait * 0.99) > 0
            now += wait
            assert bucket.take(now) == 0
        assert admitted <= max(rate, 1.0) + now * rate + 1e-3


def test_a_bucket_ignores_a_clock_that_goes_back() -> None:
    bucket = TokenBucket(1.0, 10.0)
    assert bucket.take(10.0) == 0
    assert bucket.take(5.0) == pytest.approx(1.0)
    assert bucket.take(10.5) == pytest.approx(0.5)


def test_a_tenant_beyond_its_rate_is_told_when_to_come_back() -> None:
    clock = Clock()
    ledger = Ledger()
    tenants = Tenants(TenantRules("x-tenant", default=Share(0.25, 1), named={"gold": Share(0, 10)}), ledger, clock)
    assert tenants.admit("iron") == pytest.approx(0.9)
    with pytest.raises(RequestFailure) as caught:
        tenants.admit("iron")
    assert (caught.value.status, caught.value.retry_after) == (429, 4)
    assert [tenants.admit("gold") for _ in range(50)] == [0.0] * 50
    assert tenants.admit("other") == tenants.admit("")
    clock.now += 4
    tenants.admit("iron")
    assert ledger.numbers() == {"gold": (50, 0), "default": (4, 1)}


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 0.4)), max_size=120), st.integers(1, 4))
def test_made_up_names_neither_fill_the_memory_nor_get_round_the_rate(
    requests: list[tuple[int, float]], bound: int
) -> None:
    clock = Clock()
    begun = clock.now
    ledger = Ledger()
    tenants = Tenants(TenantRules("x-tenant", default=Share(1.0, 1)), ledger, clock, max_unknown=bound)
    for name, gap in requests:
        clock.now += gap
        try:
            tenants.admit(f"made-up-{name}")
        except RequestFailure as failure:
            assert failure.status == 429
        assert tenants.tracked <= bound
    # Each bucket gives a second's worth at once and one a second; there are the bound and the crowd's.
    assert ledger.numbers()["default"][0] <= (bound + 1) * (1 + clock.now - begun) + 1e-6
    assert list(ledger) == ["default"]


def test_forgotten_names_make_room_when_they_have_rested() -> None:
    clock = Clock()
    tenants = Tenants(TenantRules("x-tenant", default=Share(1.0, 1)), Ledger(), clock, max_unknown=2)
    for name in ("a", "b", "c"):
        tenants.admit(name)
    with pytest.raises(RequestFailure):
        tenants.admit("d")  # it shares the bucket of the crowd with c
    clock.now += 1
    for name in ("d", "e", "f"):
        tenants.admit(name)
    assert tenants.tracked == 2


def payload(claims: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


def test_a_claim_of_a_verified_token_names_the_tenant() -> None:
    rules = TenantRules("x-jwt-payload", "org", Share(0, 1), {"gold": Share(0, 2), "7": Share(0, 2)})
    tenants = Tenants(rules, Ledger(), Clock())
    assert tenants.admit(payload({"org": "gold"})) == 0
    assert tenants.admit(payload({"org": 7})) == 0
    assert tenants.admit(payload({"sub": "gold"})) == tenants.admit("") == 0.5
    for damaged in (
        "gold",
        "{}",
        "\x00",
        payload(["gold"]),
        payload({"org": ["gold"]}),
        payload({"org": True}),
        "a" * 20_000,
    ):
        with pytest.raises(RequestFailure) as caught:
            tenants.admit(damaged)
        assert caught.value.status == 401 and "gold" not in caught.value.text


def test_rules_are_read_from_text_or_file(tmp_path: Any) -> None:
    text = """{"header": "X-Org", "default": {"requestsPerSecond": 50, "priority": 1},
               "overrides": [{"name": "gold", "requestsPerSecond": 500, "priority": 10}]}"""
    rules = read_rules(text)
    assert rules == TenantRules("x-org", "", Share(50, 1), {"gold": Share(500, 10)})
    (tmp_path / "rules.json").write_text(text)
    assert read_rules(str(tmp_path / "rules.json")) == rules
    assert read_rules("{}") == TenantRules("x-tenant")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "/no/such/file",
        '{"heeder": "x"}',
        '{"header": " "}',
        '{"default": {"requestsPerSecond": -1}}',
        '{"default": {"priority": -1}}',
        '{"default": {"priority": 101}}',
        '{"overrides": [{"requestsPerSecond": 1}]}',
        '{"overrides": [{"name": ""}]}',
        '{"overrides": [{"name": "a"}, {"name": "a"}]}',
        '{"overrides": [{"name": "default"}]}',
    ],
)
def test_bad_rules_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_rules(text)


@given(st.integers(0, 100), st.lists(st.integers(0, 60), max_size=30))
def test_a_budget_never_holds_more_than_its_limit(limit: int, sizes: list[int]) -> None:
    budget = ByteBudget(limit)
    held: list[int] = []
    for size in sizes:
        try:
            budget.reserve(size)
            held.append(size)
        except RequestFailure as failure:
            assert limit and sum(held) + size > limit
            assert failure.status == (413 if size > limit else 429)
            assert (failure.retry_after is None) == (failure.status == 413)
            if held:
                budget.release(held.pop(0))
        assert budget.held == sum(held)
        assert not limit or budget.held <= limit
