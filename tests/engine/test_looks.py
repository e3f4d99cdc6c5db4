"""A rollout is looked at when its wait is over, and seldom before: events and metrics tell of the rest."""

from typing import Any

import pytest
from slipway.api.status import ModelDeploymentStatus, Outcome, Role, RolloutStatus, Stage, VersionStatus, VersionWeight
from slipway.api.timestamps import format_time
from slipway.engine.looks import MARGIN, UNHURRIED, next_look

NOW = 1_000_000.0
ASKED = 1.0


def version(role: Role, intended: int = 0, applied: int | None = None, **changes: Any) -> VersionStatus:
    weight = VersionWeight(intended=intended, applied=intended if applied is None else applied)
    return VersionStatus(name=role.value, revision=f"m-{role.value}", role=role, weight=weight, **changes)


def status(stage: Stage, *versions: VersionStatus, **changes: Any) -> ModelDeploymentStatus:
    rollout = RolloutStatus(id="r-1", to="v2", to_revision="m-Candidate", stage=stage, **changes)
    return ModelDeploymentStatus(versions=versions, rollout=rollout)


def at(seconds: float) -> str:
    return format_time(NOW + seconds)


STABLE, CANDIDATE = version(Role.STABLE, 100), version(Role.CANDIDATE)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (status(Stage.STARTING, STABLE, CANDIDATE, deadline=at(600)), UNHURRIED),
        (status(Stage.STARTING, STABLE, CANDIDATE, deadline=at(3)), 3 + MARGIN),
        (status(Stage.STARTING, STABLE, CANDIDATE, deadline=at(-3)), ASKED),
        (status(Stage.STARTING, STABLE, CANDIDATE), ASKED),
        (status(Stage.STARTING, version(Role.CANDIDATE, 0, 100), deadline=at(600)), UNHURRIED),
        (status(Stage.STARTING, version(Role.STABLE, 100, 90), CANDIDATE, deadline=at(600)), ASKED),
        (status(Stage.STARTING, STABLE, CANDIDATE, version(Role.RETIRING), deadline=at(600)), ASKED),
        (status(Stage.STARTING, STABLE, CANDIDATE, version(Role.EXPERIMENT), deadline=at(600)), ASKED),
        (
            status(Stage.OBSERVING, STABLE, CANDIDATE, version(Role.PREVIOUS, retire_at=at(2)), deadline=at(600)),
            2 + MARGIN,
        ),
        (status(Stage.OBSERVING, STABLE, CANDIDATE, deadline=at(4.5)), 4.5 + MARGIN),
        (status(Stage.OBSERVING, STABLE, CANDIDATE, deadline=at(4.5), outcome=Outcome.ABORTED), ASKED),
        (status(Stage.EXPOSING, STABLE, version(Role.CANDIDATE, subset=True, subset_at=at(-1))), 1 + MARGIN),
        (status(Stage.EXPOSING, STABLE, version(Role.CANDIDATE, subset=True)), ASKED),
        (status(Stage.SHIFTING, STABLE, CANDIDATE, weight_seen_at=at(-0.5)), 1.5 + MARGIN),
        (status(Stage.SHIFTING, STABLE, CANDIDATE, weight_seen_at=at(-0.5), weight_applied_at=at(0)), ASKED),
        (status(Stage.PROMOTING, STABLE, CANDIDATE), ASKED),
        (status(Stage.RETURNING, STABLE, CANDIDATE, deadline=at(600)), ASKED),
        (ModelDeploymentStatus(), ASKED),
    ],
)
def test_the_next_look_is_when_the_wait_is_over(found: ModelDeploymentStatus, expected: float) -> None:
    assert next_look(ASKED, found, 2.0, NOW) == pytest.approx(expected, abs=1e-5)


def test_where_no_look_is_asked_for_there_is_none() -> None:
    assert next_look(None, status(Stage.STARTING, STABLE, CANDIDATE, deadline=at(9)), 2.0, NOW) is None
