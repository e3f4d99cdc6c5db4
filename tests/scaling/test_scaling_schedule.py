"""Minima by time of day."""

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from slipway.api.autoscaling import Autoscaling, Schedule
from slipway.api.validation import validate
from slipway.scaling import MinimumReplicas, minimum_at

from tests.scaling.scenes import autoscaling, decide, request

WORKDAYS = {"cron": "0 8 * * 1-5", "timezone": "Europe/Berlin", "minReplicas": 4}
EVENINGS = {"cron": "0 20 * * *", "timezone": "Europe/Berlin", "minReplicas": 0}


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def scaling(*entries: dict[str, Any], **settings: Any) -> Autoscaling:
    return autoscaling(minReplicas=1, schedule=list(entries), **settings)


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-03-02T06:59:59", 1),
        ("2026-03-02T07:00:00", 4),
        ("2026-03-02T18:59:59", 4),
        ("2026-03-02T19:00:00", 1),
        ("2026-03-07T12:00:00", 1),
        ("2026-07-06T06:00:00", 4),
    ],
)
def test_the_entry_that_started_last_counts_in_its_own_time_zone(moment: str, expected: int) -> None:
    """Monday in winter and in summer, and a Saturday."""
    assert minimum_at(scaling(WORKDAYS, EVENINGS), at(moment)).replicas == expected


@pytest.mark.parametrize(
    ("cron", "moment", "started"),
    [
        ("30 2 * * *", "2026-03-29T00:59:00", False),
        ("30 2 * * *", "2026-03-29T01:31:00", True),
        ("30 2 * * *", "2026-10-25T00:30:00", True),
    ],
)
def test_the_hour_that_a_change_of_clocks_skips_or_repeats(cron: str, moment: str, started: bool) -> None:
    midnight = {"cron": "0 0 * * *", "timezone": "Europe/Berlin", "minReplicas": 2}
    night = {"cron": cron, "timezone": "Europe/Berlin", "minReplicas": 6}
    assert minimum_at(scaling(midnight, night), at(moment)).replicas == (6 if started else 2)


def test_the_order_of_starts_is_kept_where_an_hour_is_repeated() -> None:
    """What began before it, and in its first half, is not undone as the clock shows the same times once more."""
    entries = [
        {"cron": cron, "timezone": "Europe/Berlin", "minReplicas": replicas}
        for cron, replicas in (("0 1 * * *", 2), ("30 2 * * *", 5), ("45 2 * * *", 7), ("15 3 * * *", 3))
    ]
    begin = at("2026-10-24T23:00:00")
    seen = [minimum_at(scaling(*entries), begin + 60 * minute).replicas for minute in range(0, 240)]
    changes = [(minute, now) for minute, (before, now) in enumerate(itertools.pairwise(seen), 1) if before != now]
    assert (seen[0], changes) == (2, [(90, 5), (105, 7), (195, 3)])


def test_without_entries_or_before_the_first_start_min_replicas_counts() -> None:
    assert minimum_at(scaling(), at("2026-03-02T12:00:00")) == MinimumReplicas(1)
    never = Schedule(cron="* * */20 * 1L", min_replicas=9)
    assert minimum_at(autoscaling().model_copy(update={"schedule": (never,)}), at("2026-03-02T12:00:00")).replicas == 1


def test_of_entries_that_start_together_the_greater_counts() -> None:
    one, other = ({"cron": "0 8 * * *", "minReplicas": count} for count in (3, 5))
    for order in ((one, other), (other, one)):
        assert minimum_at(scaling(*order), at("2026-03-02T09:00:00")).replicas == 5


def test_the_decision_names_the_schedule() -> None:
    minimum = minimum_at(scaling(WORKDAYS), at("2026-03-02T09:00:00"))
    seen = request(1, 10.0, minimum=minimum.replicas, minimum_from=minimum.source)
    result = decide(seen)
    assert (result.replicas, result.reason, result.signal) == (4, "ScaledToMinimum", "schedule")
    assert result.decision is not None
    assert result.decision.message == "at least 4 (schedule 0 8 * * 1-5 Europe/Berlin)"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"cron": "0 8 * *"}, "schedule[0].cron: must be five fields: minute hour day month weekday"),
        ({"cron": "0 25 * * *"}, "schedule[0].cron: bad hour in '0 25 * * *'"),
        ({"timezone": "Mars/Olympus"}, "schedule[0].timezone: 'Mars/Olympus' is no IANA time zone"),
        ({"timezone": "../etc/passwd"}, "schedule[0].timezone: '../etc/passwd' is no IANA time zone"),
        ({"minReplicas": 99}, "schedule[0].minReplicas: must not exceed maxReplicas"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(entry: dict[str, Any], problem: str) -> None:
    raw = {
        "metadata": {"name": "m"},
        "spec": {
            "versions": [{"name": "v1", "uri": "file:///m"}],
            "autoscaling": {"schedule": [WORKDAYS | entry]},
        },
    }
    outcome = validate(raw)
    assert outcome.spec is None
    assert any(problem in str(found) for found in outcome.problems), outcome.problems
