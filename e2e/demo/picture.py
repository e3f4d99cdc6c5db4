"""The demo as a picture: weights, requests per second, latency and replicas over time."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from e2e.demo.load import Answer
from e2e.demo.timeline import Look

__all__ = ["draw"]

COLOURS = {"v1": "#4477aa", "v2": "#228833", "v3": "#cc3311"}


def draw(looks: Sequence[Look], answers: Sequence[Answer], marks: Sequence[tuple[float, str]], path: Path) -> None:
    """Write a PNG. ``marks`` are moments (seconds since the epoch) with a word each."""
    mpl.use("Agg")
    begin = answers[0].at if answers else looks[0].at
    looks = [look for look in looks if look.at >= begin - 5]
    times = np.array([look.at - begin for look in looks])
    figure, (weights, rates, latency, replicas) = plt.subplots(4, 1, figsize=(10, 10), sharex=True)
    for version, colour in COLOURS.items():
        weights.plot(
            times, [look.weight(version) for look in looks], color=colour, label=version, drawstyle="steps-post"
        )
        ready = [look.versions.get(version, {}).get("readyReplicas", 0) for look in looks]
        replicas.plot(times, ready, color=colour, label=version, drawstyle="steps-post")
        _rates(rates, answers, begin, version, colour)
    _latency(latency, answers, begin)
    weights.set_ylabel("weight applied (%)")
    rates.set_ylabel("answers per second")
    latency.set_ylabel("latency (ms)")
    replicas.set_ylabel("ready replicas")
    replicas.set_xlabel("seconds")
    weights.legend(loc="center left")
    for axes in (weights, rates, latency, replicas):
        axes.grid(alpha=0.3)
        for at, _ in marks:
            axes.axvline(at - begin, color="grey", linewidth=0.8, linestyle="--")
    for at, word in marks:
        weights.annotate(word, (at - begin, 104), fontsize=8, annotation_clip=False)
    figure.suptitle("Slipway demo: a good version is promoted, a broken one rolled back (sandbox, simulated GPUs)")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _rates(axes: plt.Axes, answers: Sequence[Answer], begin: float, version: str, colour: str) -> None:
    good = np.array([answer.at - begin for answer in answers if answer.version == version and answer.code == 200])
    bad = np.array([answer.at - begin for answer in answers if answer.version == version and answer.code != 200])
    edges = np.arange(0, max((answer.at - begin for answer in answers), default=1.0) + 1, 1.0)
    axes.plot(edges[:-1], np.histogram(good, edges)[0], color=colour, label=version)
    if len(bad):
        axes.plot(edges[:-1], np.histogram(bad, edges)[0], color=colour, linestyle=":", label=f"{version} failed")


def _latency(axes: plt.Axes, answers: Sequence[Answer], begin: float) -> None:
    buckets: dict[int, list[float]] = {}
    for answer in answers:
        buckets.setdefault(int((answer.at - begin) // 2), []).append(answer.seconds * 1000)
    at = sorted(buckets)
    for quantile, style in ((0.5, "-"), (0.99, ":")):
        axes.plot(
            [2 * bucket for bucket in at],
            [float(np.quantile(buckets[bucket], quantile)) for bucket in at],
            "k",
            linestyle=style,
            label=f"p{100 * quantile:.0f}",
        )
    axes.set_yscale("log")
    axes.legend(loc="upper right")
