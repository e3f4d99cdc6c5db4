"""What arrives for a revision, now and by the time that a pod ordered now would be ready."""

import math
from dataclasses import dataclass

from slipway.api.autoscaling import Forecast
from slipway.api.samples import Quality, Sample
from slipway.api.scalars import DecimalString
from slipway.api.status import DemandTrend
from slipway.api.timestamps import format_time, parse_time
from slipway.scaling.request import ScalingRequest

__all__ = ["Demand", "demand_of", "usable"]

SLOW_START = 180.0
"""Seconds of start from which following a trend pays; below, replicas come soon enough without."""
FORECAST_CAP = 1.15
LEVEL_TIME = 60.0
"""Seconds over which the level is smoothed."""
SLOPE_TIME = 180.0
"""Seconds over which the slope is smoothed."""
TREND_INTERVAL = 15.0
"""Seconds between two updates of the trend."""
TREND_FORGOTTEN = 900.0
"""Seconds after which a trend says nothing any more."""
FLAT = 0.05
"""Change that is not worth being remembered, as a share of the level."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests per second for one revision."""

    rate: float
    """Requests per second; a lower bound unless ``quality`` is OK."""
    quality: Quality
    """Of the total of all revisions."""
    known: bool
    """Whether ``rate`` says anything."""
    reason: str
    """What is wrong with the total, if anything is."""
    trend: DemandTrend
    forecast: float
    """Expected rate at the horizon; never below ``rate``, at most 1.15 times it."""


def usable(sample: Sample) -> bool:
    """Whether a sample's value can be used, if only as a lower bound."""
    return sample.quality in (Quality.OK, Quality.PARTIAL)


def demand_of(request: ScalingRequest, slow_start: float) -> Demand:
    """The revision's share of all arrivals, or its own arrivals where they are more (pinned requests).

    The total is what counts: a revision's own rate says nothing about weight that it is about to get, and a rate per
    pod says nothing while pods start.
    """
    total, own = request.total_arrivals, request.metrics.arrivals
    known = usable(total) or usable(own)
    rate = max(
        total.value * request.share if usable(total) else 0.0,
        own.value if usable(own) else 0.0,
        0.0,
    )
    trend, forecast = request.entry.trend, rate
    if request.autoscaling.forecast is Forecast.OFF or slow_start < SLOW_START:
        trend = DemandTrend()
    elif total.ok:
        trend, expected = _follow(trend, rate, slow_start, request.now)
        forecast = min(FORECAST_CAP * rate, max(rate, expected))
    return Demand(rate, total.quality, known, total.reason, trend, forecast)


def _follow(trend: DemandTrend, rate: float, horizon: float, now: float) -> tuple[DemandTrend, float]:
    """Holt's linear smoothing with the time between updates as it comes; returns the trend and the rate expected."""
    at = parse_time(trend.at)
    if at is None or trend.level is None or trend.slope is None or abs(now - at) > TREND_FORGOTTEN:
        return _remember(rate, 0.0, now), rate
    level, slope = trend.level.number, trend.slope.number
    elapsed = now - at
    if elapsed < TREND_INTERVAL:
        return trend, level + slope * (elapsed + horizon)
    weight = 1 - math.exp(-elapsed / LEVEL_TIME)
    new_level = weight * rate + (1 - weight) * (level + slope * elapsed)
    weight = 1 - math.exp(-elapsed / SLOPE_TIME)
    new_slope = weight * (new_level - level) / elapsed + (1 - weight) * slope
    expected = new_level + new_slope * horizon
    flat = FLAT * level
    if abs(rate - level) <= flat and abs(slope * horizon) <= flat and elapsed < TREND_FORGOTTEN / 2:
        return trend, expected
    return _remember(new_level, new_slope, now), expected


def _remember(level: float, slope: float, now: float) -> DemandTrend:
    return DemandTrend(level=_millionths(level), slope=_millionths(slope), at=format_time(now))


def _millionths(rate: float) -> DecimalString:
    return DecimalString.of(round(rate, 6), 9)
