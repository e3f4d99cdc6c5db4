from typing import Any

import pytest
from slipway.api.errors import SlipwayError
from slipway.api.timestamps import format_time
from slipway.cli.columns import ago, table
from slipway.cli.show import text_of

from tests.api.cases import with_two

NOW = 1_800_000_000.0


def before(seconds: float) -> str:
    return format_time(NOW - seconds)


STATUS: dict[str, Any] = {
    "observedGeneration": 2,
    "phase": "Progressing",
    "url": "http://sentiment.default.svc.cluster.local",
    "stable": "v1",
    "candidate": "v2",
    "weight": 25,
    "versions": [
        {
            "name": "v1", "revision": "sentiment-v1-11111111", "role": "Stable", "replicas": 4, "readyReplicas": 4,
            "weight": {"intended": 75, "applied": 75}, "qps": "212.4", "latencyP99": "84ms", "errorRate": "0.0002",
            "gpuUtilization": "63", "gpuSource": "dcgm",
        },
        {
            "name": "v2", "revision": "sentiment-v2-22222222", "role": "Candidate", "replicas": 2, "readyReplicas": 1,
            "weight": {"intended": 25, "applied": 5}, "reason": "WaitingForPods", "message": "1 of 2 pods are ready",
        },
    ],
    "rollout": {
        "id": "r-000002", "from": "v1", "to": "v2", "step": 2, "steps": 3, "stage": "Observing",
        "stageAt": before(252), "startedAt": before(900), "deadline": before(-600),
        "reason": "CollectingEvidence", "message": "latency: 240 more requests",
    },
    "analysis": [
        {
            "name": "errors", "rollout": "r-000002", "verdict": "Undecided", "reason": "CollectingEvidence",
            "evidence": "0.31", "candidate": {"requests": 610, "bad": 1}, "stable": {"requests": 5480, "bad": 6},
            "requestsNeeded": 240, "window": before(30), "windows": 8,
        }
    ],
    "scaling": [
        {"at": before(60), "version": "v1", "from": 3, "to": 4, "reason": "ScaledUpDemand", "signal": "qps",
         "message": "212 req/s needs 4 at 60 per replica"}
    ],
    "history": [
        {"id": "r-000001", "to": "v1", "outcome": "Promoted", "finishedAt": before(3600), "by": "operator"}
    ],
    "lastAction": {"id": "a", "verb": "Promote", "result": "Accepted", "message": "goes on", "at": before(300)},
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "CollectingEvidence", "message": "not yet",
         "lastTransitionTime": "2027-01-15T07:55:00Z", "observedGeneration": 2}
    ],
}  # fmt: skip


def obj(**status: Any) -> dict[str, Any]:
    result = with_two(serve="v2") | {"status": STATUS | status}
    result["metadata"] |= {"generation": 2}
    return result


def test_status_shows_versions_rollout_and_trouble() -> None:
    text = text_of("status", obj(), NOW)
    assert text.startswith("sentiment in default: Progressing (CollectingEvidence)\n")
    assert "r-000002: v1 to v2, step 2 of 3, Observing for 4m12s" in text
    assert "is given up or stalls in 10m" in text
    assert "25 % (router: 5 %)" in text
    assert "63 % (dcgm)" in text
    assert "v2: WaitingForPods: 1 of 2 pods are ready" in text
    assert "has not looked at the newest spec" not in text
    assert "Conditions" not in text


def test_status_says_when_the_newest_spec_was_not_seen() -> None:
    newer = obj()
    newer["metadata"]["generation"] = 3
    assert "has not looked at the newest spec" in text_of("status", newer, NOW)


def test_explain_shows_the_evidence_and_the_numbers() -> None:
    text = text_of("explain", obj(), NOW)
    for words in (
        "errors: Undecided (CollectingEvidence)",
        "candidate 1 bad of 610 (0.164 %), stable 6 bad of 5480",
        "about 240 more requests to the candidate needed",
        "3 to 4",
        "212 req/s needs 4 at 60 per replica",
        "nothing to v1",
        "Promote: Accepted 5m ago: goes on",
        "CollectingEvidence: Requests are counted",
    ):
        assert words in text


def test_explain_shows_what_is_wrong_with_the_spec() -> None:
    broken = obj()
    broken["spec"]["serve"] = "v9"
    assert "spec.serve: must be the name of an entry" in text_of("explain", broken, NOW)


@pytest.mark.parametrize("what", ["status", "explain"])
def test_an_object_that_nobody_has_looked_at_is_shown(what: str) -> None:
    fresh = with_two()
    assert "Pending" in text_of(what, fresh, NOW)


def test_a_status_that_somebody_broke_is_told() -> None:
    with pytest.raises(SlipwayError, match=r"status\.phase"):
        text_of("status", obj(phase="Odd"), NOW)


def test_columns_are_as_wide_as_they_need() -> None:
    assert table(("A", "B"), [("long", "x"), ("s", "")]) == ["A     B", "long  x", "s"]


@pytest.mark.parametrize(("text", "shown"), [("", "-"), ("no time", "no time"), (before(90), "1m30s")])
def test_times_are_shown_as_ages(text: str, shown: str) -> None:
    assert ago(text, NOW) == shown
