from typing import Any

from slipway.api.status import ModelDeploymentStatus
from slipway.engine.telemetry import Telemetry, table


def status(**fields: Any) -> dict[str, Any]:
    rollout = {
        "id": "r-2",
        "to": "v2",
        "toRevision": "m-v2",
        "weightWrittenAt": "2026-01-01T00:00:00.000000Z",
        **fields.pop("rollout", {}),
    }
    return {"rollout": rollout, **fields}


def count(before: dict[str, Any] | None, after: dict[str, Any], now: float = 1_767_225_660.0) -> str:
    telemetry = Telemetry("1.2.3")
    telemetry.changed(before, ModelDeploymentStatus.from_wire(after), now)
    return telemetry.exposition().decode()


def entry(applied: int) -> list[dict[str, Any]]:
    return [{"name": "v2", "revision": "m-v2", "weight": {"intended": 0, "applied": applied}}]


def test_a_finished_rollout_is_counted_once():
    finished = {"id": "r-2", "to": "v2", "outcome": "RolledBack"}
    assert 'rollouts_total{outcome="RolledBack"} 1.0' in count(status(), status(history=[finished]))
    assert "rollouts_total{" not in count(status(history=[finished]), status(history=[finished]))


def test_a_verdict_is_counted_when_it_is_come_to():
    def check(verdict: str) -> dict[str, Any]:
        return status(analysis=[{"name": "errors", "rollout": "r-2", "verdict": verdict}])

    assert 'verdicts_total{verdict="Harmful"} 1.0' in count(check("Undecided"), check("Harmful"))
    assert "verdicts_total{" not in count(check("Harmful"), check("Harmful"))
    assert "verdicts_total{" not in count(status(), check("Undecided"))


def test_a_scaling_decision_is_counted_by_reason():
    decision = {"at": "2026-01-01T00:00:00Z", "version": "v1", "from": 1, "to": 2, "reason": "ScaledUpDemand"}
    text = count(status(), status(scaling=[decision]))
    assert 'scaling_decisions_total{reason="ScaledUpDemand"} 1.0' in text


def test_the_time_to_a_confirmed_weight():
    after = status(rollout={"weightAppliedAt": "2026-01-01T00:00:06.500000Z"})
    assert "weight_applied_seconds_sum 6.5" in count(status(), after)
    assert "weight_applied_seconds_count 0.0" in count(after, after)


def test_the_time_from_harm_to_weight_zero():
    harm = {"harmAt": "2026-01-01T00:00:50.000000Z"}
    text = count(status(rollout=harm, versions=entry(25)), status(rollout=harm, versions=entry(0)))
    assert "harm_to_zero_seconds_sum 10.0" in text
    assert "harm_to_zero_seconds_count 0.0" in count(
        status(rollout=harm, versions=entry(25)), status(rollout=harm, versions=entry(5))
    )


def test_a_broken_former_status_is_no_obstacle():
    assert "rollouts_total{" not in count({"phase": "Nonsense"}, status())


def test_every_metric_is_in_the_table_under_the_name_that_is_scraped():
    telemetry = Telemetry("1.2.3")
    telemetry.called("GET", "pods", 200, 0.1)
    text = telemetry.exposition().decode()
    documented = {line.split("`")[1] for line in table().splitlines()[2:]}
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert documented == families
    assert all(name.startswith("slipway_operator_") for name in documented)
    assert 'slipway_operator_build_info{version="1.2.3"} 1.0' in text
