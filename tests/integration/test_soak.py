"""A short soak; `make soak` runs a long one."""

import pytest

from e2e.soak.soak import soak

SEED = 3
SECONDS = 30.0
KINDS = 6
"""Different acts, of thirteen; on a slow machine they take longer than those seconds."""

pytestmark = pytest.mark.integration


async def test_nothing_that_must_never_be_seen_is_seen(tmp_path):
    report = await soak(tmp_path, SEED, SECONDS, kinds=KINDS)
    assert not report.problems, report.text()
    assert report.requests > 0 and report.writes > 0 and report.rollouts["Promoted"] >= 1, report.text()
    assert len(report.acts) >= KINDS, report.text()
