"""Shares of requests as status shows them."""

from slipway.api.observed import Observed
from slipway.api.samples import MetricsView, Quality, RevisionMetrics, Sample
from slipway.api.status import ModelDeploymentStatus, VersionStatus, VersionWeight
from slipway.engine.display import with_display

OBSERVED = Observed(name="m", namespace="n", uid="u", generation=1)


def shares(quality: Quality, applied: int = 25) -> list[str | None]:
    """What is shown of two revisions of which the second one's arrivals have a quality."""
    rates = {"m-v1": Sample(75.0, Quality.OK), "m-v2": Sample(25.0, quality)}
    metrics = MetricsView(available=True, revisions={name: RevisionMetrics(name, rate) for name, rate in rates.items()})
    weights = {"m-v1": 100 - applied, "m-v2": applied}
    versions = tuple(
        VersionStatus(name=name[2:], revision=name, weight=VersionWeight(intended=weight, applied=weight))
        for name, weight in weights.items()
    )
    shown = with_display(ModelDeploymentStatus(versions=versions), OBSERVED, metrics)
    return [entry.weight.observed for entry in shown.versions]


def test_shares_are_those_of_all_requests():
    assert shares(Quality.OK) == ["75", "25"]


def test_shares_of_requests_that_are_known_in_part_are_unknown():
    assert shares(Quality.PARTIAL) == [None, None]
    assert shares(Quality.MISSING) == [None, None]


def test_a_revision_without_weight_needs_no_requests_to_be_known():
    assert shares(Quality.MISSING, applied=0) == ["100", "0"]
