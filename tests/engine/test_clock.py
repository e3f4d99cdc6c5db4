"""A wall clock that was put back, and a status that is ahead of it."""

from slipway.api.status import (
    CheckStatus,
    ModelDeploymentStatus,
    Role,
    RolloutStatus,
    Stage,
    VersionStatus,
    VersionWeight,
)
from slipway.api.timestamps import format_time
from slipway.engine.clock import SKEW, with_past_moments

NOW = 1_767_225_600.0


def status(ahead: float) -> ModelDeploymentStatus:
    """Written by somebody whose clock is so many seconds ahead."""
    at = format_time(NOW + ahead)
    revisions = {"from_revision": "m-v1", "to_revision": "m-v2"}
    moments = {"stage_at": at, "evidence_from": at, "deadline": format_time(NOW + ahead + 300)}
    rollout = RolloutStatus.model_validate({"id": "r-2", "to": "v2", "stage": Stage.OBSERVING} | revisions | moments)
    stable = VersionStatus(name="v1", revision="m-v1", role=Role.STABLE, weight=VersionWeight(intended=90, applied=90))
    candidate = VersionStatus(name="v2", revision="m-v2", subset_at=at, scaled_at=at)
    check = CheckStatus(name="errors", rollout="r-2", window=at, windows=3)
    known = stable.model_copy(update={"subset_at": at})
    return ModelDeploymentStatus(rollout=rollout, versions=(known, candidate), analysis=(check,))


def test_a_status_of_the_past_stays_as_it_is():
    before = status(-1.0)
    assert with_past_moments(before, NOW) == (before, ())


def test_moments_that_have_not_come_are_now_and_deadlines_stay():
    before = status(3600.0)
    after, events = with_past_moments(before, NOW)
    now = format_time(NOW)
    assert after.rollout is not None
    assert (after.rollout.stage_at, after.rollout.evidence_from) == (now, now)
    assert before.rollout is not None
    assert after.rollout.deadline == before.rollout.deadline
    assert [event.reason for event in events] == ["ClockWentBack"]


def test_the_age_of_a_subset_is_reset_only_where_nothing_was_led_there():
    before = status(3600.0)
    stable, candidate = with_past_moments(before, NOW)[0].versions
    assert stable.subset_at == before.versions[0].subset_at
    assert (candidate.subset_at, candidate.scaled_at) == (format_time(NOW), format_time(NOW))


def test_windows_ahead_are_not_gathered_twice_but_evidence_begins_anew():
    assert with_past_moments(status(3600.0), NOW)[0].analysis == ()


def test_clocks_of_two_leaders_may_differ_a_little():
    after, events = with_past_moments(status(SKEW - 1), NOW)
    assert (len(after.analysis), events) == (1, ())
