"""Loads for the comparison of scalers: the recorded trace and generated shapes, each with requests drawn at random."""

import itertools
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from slipway.simulation.load import Load, read_load

__all__ = ["loads"]

MEAN = 400.0
"""Requests per second on average, in every load."""
RECORDED = Path(__file__).parents[2] / "tests" / "data" / "traces" / "azure-llm-2023-conv.csv"
HOUR = 3600


def loads(seed: int) -> Iterator[Load]:
    """All loads; those that are drawn differ with ``seed``."""
    yield recorded()
    for name, hours, shape in (
        ("step", 3, _step),
        ("ramp", 3, _ramp),
        ("diurnal", 12, _diurnal),
        ("mmpp", 6, _mmpp),
        ("gamma", 6, _gamma),
    ):
        yield _drawn(name, hours * HOUR, shape, random.Random(f"{name} {seed}"))  # noqa: S311  to be repeated


def recorded() -> Load:
    """The recorded trace with every arrival weighted so that the mean is that of the other loads."""
    load = read_load(RECORDED)
    return load.scaled(MEAN * load.duration / load.requests)


def _drawn(name: str, seconds: int, shape: Callable[[int, random.Random], list[float]], dice: random.Random) -> Load:
    rates = shape(seconds, dice)
    factor = MEAN * seconds / math.fsum(rates)
    return Load(name, tuple(_poisson(factor * rate, dice) for rate in rates))


def _poisson(mean: float, dice: random.Random) -> float:
    """A Poisson number; by its normal limit, which is near enough above 30."""
    if mean > 30:
        return max(0.0, float(round(dice.gauss(mean, math.sqrt(mean)))))
    limit, count, product = math.exp(-mean), 0, dice.random()
    while product > limit:
        count += 1
        product *= dice.random()
    return float(count)


def _step(seconds: int, _: random.Random) -> list[float]:
    """Doubles twice, then falls back, and again."""
    levels = (1.0, 2.0, 4.0, 1.0, 1.0, 3.0, 1.5, 1.0)
    return [levels[second * len(levels) // seconds] for second in range(seconds)]


def _ramp(seconds: int, _: random.Random) -> list[float]:
    """Rises to six times the load within half an hour, stays, falls as slowly."""
    points = ((0.0, 1.0), (0.2, 1.0), (0.37, 6.0), (0.55, 6.0), (0.72, 1.0), (1.0, 1.0))
    return [_between(points, second / seconds) for second in range(seconds)]


def _diurnal(seconds: int, dice: random.Random) -> list[float]:
    """A day in half its time: a peak of four times the night, and a wandering deviation of a few per cent."""
    wander, rates = 0.0, []
    for second in range(seconds):
        if second % 60 == 0:
            wander = 0.95 * wander + dice.gauss(0, 0.03)
        rates.append((1 - 0.6 * math.cos(2 * math.pi * second / seconds)) * math.exp(wander))
    return rates


def _mmpp(seconds: int, dice: random.Random) -> list[float]:
    """A Markov-modulated Poisson process of two states, three times apart, that last ten minutes on average."""
    rates, high = [], False
    for _second in range(seconds):
        if dice.random() < 1 / 600:
            high = not high
        rates.append(3.0 if high else 1.0)
    return rates


def _gamma(seconds: int, dice: random.Random) -> list[float]:
    """Bursts: every 30 s another mean, Gamma-distributed with a squared coefficient of variation of 0.25."""
    rates, mean = [], 1.0
    for second in range(seconds):
        if second % 30 == 0:
            mean = dice.gammavariate(4.0, 0.25)
        rates.append(mean)
    return rates


def _between(points: tuple[tuple[float, float], ...], at: float) -> float:
    for (left, low), (right, high) in itertools.pairwise(points):
        if at <= right:
            return low + (high - low) * (at - left) / (right - left)
    return points[-1][1]
