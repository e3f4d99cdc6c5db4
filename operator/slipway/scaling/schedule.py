"""Minima by time of day: of all entries, the one that started last is in force until another starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

from slipway.api.autoscaling import Autoscaling, Schedule

__all__ = ["MinimumReplicas", "minimum_at", "scheduled"]

NOTHING = timedelta()
RESOLUTION = 60
"""Seconds: cron knows minutes."""


@dataclass(frozen=True, slots=True)
class MinimumReplicas:
    """The fewest replicas of a revision, and the setting that says so."""

    replicas: int
    source: str = "minReplicas"


def minimum_at(autoscaling: Autoscaling, now: float) -> MinimumReplicas:
    """minReplicas, or what the schedule asks for at ``now`` (seconds since the epoch) where that is more."""
    entry = scheduled(autoscaling.schedule, now)
    if entry is None or entry.min_replicas <= autoscaling.min_replicas:
        return MinimumReplicas(autoscaling.min_replicas)
    return MinimumReplicas(entry.min_replicas, f"schedule {entry.cron} {entry.timezone}")


def scheduled(entries: Sequence[Schedule], now: float) -> Schedule | None:
    """The entry in force at ``now`` (seconds since the epoch); None where there is none, or none ever started.

    Of entries that start in the same minute the one with the most replicas counts. Daylight saving time is treated as
    cron does: what falls into the missing hour starts right after it, what falls into the repeated one starts once.
    """
    minute = int(now // RESOLUTION) * RESOLUTION
    started = [(at, entry.min_replicas, entry) for entry in entries if (at := _last_start(entry, minute)) is not None]
    return max(started, key=lambda item: item[:2])[2] if started else None


@lru_cache(maxsize=4096)
def _last_start(entry: Schedule, minute: int) -> float | None:
    """When an entry started last, at or before a minute; None for one that never does."""
    # One second later, since the search begins before the moment that it is given.
    moment = datetime.fromtimestamp(minute + 1, ZoneInfo(entry.timezone))
    if moment.fold:
        # An hour is being repeated: all that starts in it has done so the first time, before what the clock shows now.
        first = moment.replace(fold=0)
        moment = first + ((first.utcoffset() or NOTHING) - (moment.utcoffset() or NOTHING))
    starts = (start.replace(fold=0).timestamp() for start in CronSim(entry.cron, moment, reverse=True))
    return next((start for start in starts if start <= minute), None)
