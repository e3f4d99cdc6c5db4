"""The witnesses of a soak can tell right from wrong."""

import json
from pathlib import Path

import pytest

from e2e.demo.load import Answer
from e2e.soak.acts import Window
from e2e.soak.pair import Sample
from e2e.soak.report import Report
from e2e.soak.witnesses import grown, lost, two_writers, weights_of

ONE, TWO = "system:serviceaccount:slipway-system:one", "system:serviceaccount:slipway-system:two"


def answer(at: float, code: int = 503, version: str = "", seconds: float = 0.1) -> Answer:
    return Answer(at, seconds, code, version, None)


def test_a_failed_request_is_lost_unless_something_excuses_it():
    windows = [Window(100.0, "killed", 110.0)]
    answers = [
        answer(50.0, 200),
        answer(50.0, 500, "bad"),
        answer(50.0, 503, "bad"),
        answer(50.0, 500, "v1"),
        answer(50.0, 0),
        answer(99.0, seconds=2.0),
        answer(105.0),
        answer(110.5),
    ]
    inexcusable, excused = lost(answers, windows)
    assert inexcusable == [answers[2], answers[3], answers[4], answers[7]]
    assert excused == 3


def audit(folder: Path, *events: tuple[str, str, str]) -> Path:
    lines = [
        {
            "user": {"username": user},
            "verb": verb,
            "objectRef": {"resource": resource},
            "requestReceivedTimestamp": "2026-01-01T00:00:00.0Z",
        }
        for user, verb, resource in events
    ]
    path = folder / "audit.log"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


TAKE_ONE, TAKE_TWO = (ONE, "update", "leases"), (TWO, "update", "leases")
WRITE_ONE, WRITE_TWO = (ONE, "patch", "deployments"), (TWO, "patch", "deployments")
HANDED_OVER = (TAKE_ONE, WRITE_ONE, WRITE_ONE, (TWO, "get", "leases"), TAKE_TWO, WRITE_TWO, TAKE_ONE, WRITE_ONE)


def test_leaders_one_after_the_other_are_no_two_writers(tmp_path):
    others = (("system:admin", "patch", "deployments"), (ONE, "create", "events"), (TWO, "list", "deployments"))
    assert two_writers(audit(tmp_path, *HANDED_OVER, *others), (ONE, TWO)) == ([], 4)


@pytest.mark.parametrize(
    "events",
    [
        (TAKE_ONE, WRITE_ONE, WRITE_TWO),
        (TAKE_ONE, WRITE_ONE, TAKE_TWO, WRITE_TWO, WRITE_ONE),
        (WRITE_ONE,),
    ],
)
def test_a_write_without_the_lease_is_found(tmp_path, events):
    problems, _ = two_writers(audit(tmp_path, *events), (ONE, TWO))
    assert len(problems) == 1


def test_a_process_that_goes_on_growing_is_found():
    def history(*megabytes: float, files: int = 20):
        return [Sample(20.0 * number, size, files, 10) for number, size in enumerate(megabytes)]

    assert grown({1: history(60, 100, 110, 112), 2: history(60)}) == ([], 112)
    problems, _ = grown({1: history(60, 100, 110, 151)})
    assert problems == ["process 1 grew from 110 to 151 MiB"]
    assert len(grown({1: history(60, files=500)})[0]) == 1
    assert grown({1: []}) == ([], 0.0)


def test_weights_are_those_of_the_route_that_unpinned_requests_take():
    def to(subset: str, **weight: int):
        return {"destination": {"host": "m", "subset": subset}, **weight}

    pinned = {"name": "pin", "route": [to("a")]}
    route = {"spec": {"http": [pinned, {"name": "default", "route": [to("a", weight=75), to("b", weight=25)]}]}}
    assert weights_of(route) == {"a": 75, "b": 25}
    assert weights_of({"spec": {"http": [{"name": "default", "route": [to("a")]}]}}) == {"a": 100}
    assert weights_of({"spec": {"http": [pinned]}}) == {}


def test_the_report_counts_what_was_lost():
    report = Report(1, problems=["request lost at 1: x", "at rest: phase Degraded"])
    assert "0, 1 lost" in report.text() and "| violations | 2 |" in report.text()
