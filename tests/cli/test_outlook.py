"""What `slipway status` says will happen next, in every phase."""

from typing import Any

import pytest
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus
from slipway.api.timestamps import parse_time
from slipway.cli.outlook import next_lines
from slipway.cli.show import text_of

from tests.cli.test_show import NOW, STATUS, before, obj
from tests.gitops.phases import recorded


def outlook(name: str) -> list[str]:
    held = recorded()[name]
    status = ModelDeploymentStatus.from_wire(held.get("status"))
    moment = max(
        (at for entry in (status.rollout,) if entry and (at := parse_time(entry.stage_at)) is not None),
        default=1_000_000.0,
    )
    spec = None if name == "Broken" else ModelDeploymentSpec.from_wire(held["spec"])
    return next_lines("m", spec, status, held["metadata"]["generation"], moment)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Ready", "nothing: everything is as the spec wants it"),
        ("Edited", "the operator looks at the newest spec"),
        ("Progressing", "once the pods of v2 are ready, warm and right: step 1 of 2, 10 % to v2"),
        ("Paused", "nothing moves up until: slipway resume m"),
        ("Promoting", "all traffic goes to v2; v1 is kept for a while"),
        ("RollingBack", "all traffic returns to v1; then the pods of v2 go"),
        ("Stalled", "slipway retry m"),
        ("Degraded", "traffic is answered again once a pod of v1 is ready"),
        ("Suspended", "nothing, until spec.suspend is removed"),
    ],
)
def test_each_phase_has_an_outlook(name: str, words: str) -> None:
    assert any(words in line for line in outlook(name)), outlook(name)


def test_a_broken_spec_is_told_how_to_mend() -> None:
    assert outlook("Broken") != ["nothing: everything is as the spec wants it"]


def observing(**rollout: Any) -> list[str]:
    held = obj(rollout=STATUS["rollout"] | rollout)
    held["spec"] = held["spec"] | {
        "rollout": {"steps": [{"weight": 5}, {"weight": 25, "hold": "10m"}, {"weight": 50, "hold": "5m"}]}
    }
    status = ModelDeploymentStatus.from_wire(held["status"])
    return next_lines("sentiment", ModelDeploymentSpec.from_wire(held["spec"]), status, 2, NOW)


def test_the_hold_the_evidence_and_the_next_weight_are_told_with_their_times() -> None:
    lines = observing(stepStartedAt=before(240))
    assert lines == [
        "the hold of step 2 ends in 6m",
        "check errors needs about 240 more requests",
        "then: step 3 of 3, 50 % to v2",
        "this wait is given up or stalls in 10m",
    ]


def test_a_wait_for_a_person_names_the_command() -> None:
    assert observing(reason="AwaitingPromotion")[0] == "waits for: slipway promote sentiment (or abort)"


def test_the_last_step_leads_to_promotion() -> None:
    assert "then: v2 is promoted" in observing(step=3)


def test_the_tree_is_drawn_to_its_end() -> None:
    lines = text_of("status", obj(), NOW).splitlines()
    assert sum(line.startswith("├─ ") for line in lines) == 2
    assert sum(line.startswith("└─ ") for line in lines) == 1
    assert lines[-1].startswith("   └─ ")
    assert any("check errors: Undecided (CollectingEvidence): 1/610 bad, stable 6/5480" in line for line in lines)


@pytest.mark.parametrize(("seconds", "words"), [(-90, "the pods of v0 go in 1m30s"), (1, "the pods of v0 are going")])
def test_what_is_kept_for_a_while_goes_at_its_time(seconds: float, words: str) -> None:
    kept = {"name": "v0", "revision": "sentiment-v0-0", "role": "Previous", "retireAt": before(seconds)}
    status = ModelDeploymentStatus.from_wire({"phase": "Ready", "observedGeneration": 2, "versions": [kept]})
    assert next_lines("sentiment", None, status, 2, NOW) == [words]


def test_a_step_that_waits_for_a_person_has_no_hold() -> None:
    held = obj(rollout=STATUS["rollout"] | {"step": 1, "stepStartedAt": before(1), "reason": "AwaitingPromotion"})
    held["spec"] = held["spec"] | {"rollout": {"steps": [{"weight": 5, "pause": {}}]}}
    status = ModelDeploymentStatus.from_wire(held["status"])
    lines = next_lines("sentiment", ModelDeploymentSpec.from_wire(held["spec"]), status, 2, NOW)
    assert not [line for line in lines if "hold" in line]
