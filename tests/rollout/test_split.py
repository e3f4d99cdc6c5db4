"""A revision as the split of traffic sees it."""

import pytest
from slipway.api.status import VersionStatus, VersionWeight
from slipway.api.timestamps import format_time
from slipway.rollout.draft import Draft
from slipway.rollout.split import share_of


@pytest.mark.parametrize("now", [1_767_225_600.4999997, 1_767_225_600.5, 1_767_225_600.1999998])
def test_a_moment_that_has_just_been_written_is_not_one_of_a_clock_put_back(now: float) -> None:
    """Its text has whole microseconds and may lie ahead by a fraction of one."""
    entry = VersionStatus(
        name="v1", revision="m-v1-0", subset=True, subset_at=format_time(now), weight=VersionWeight(applied=100)
    )
    draft = Draft(now=now, entries={entry.revision: entry}, rollout=None, history=[], rollouts=0)
    assert not share_of(draft, entry, settle=1.0).exposed
    later = Draft(now=now - 60, entries={entry.revision: entry}, rollout=None, history=[], rollouts=0)
    assert share_of(later, entry, settle=1.0).exposed, "the clock was put back by a minute"
