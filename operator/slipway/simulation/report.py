"""Results of replays as a table, a CSV file and a picture."""

import csv
from collections.abc import Sequence
from pathlib import Path

from slipway.api.errors import SlipwayError
from slipway.simulation.load import Load
from slipway.simulation.replay import Result

__all__ = ["HEAD", "rows", "write_csv", "write_picture"]

HEAD = ("POLICY", "SLO MISSES", "GPU HOURS", "SCALINGS", "REVERSALS", "MOST", "TARGET")
COLOURS = ("#228833", "#4477aa", "#cc3311", "#aa3377")


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """A row per run; the first is the one that the others' cost is compared with."""
    own = results[0].pod_hours
    found: list[tuple[str, ...]] = []
    for result in results:
        hours = f"{result.pod_hours:.2f}"
        if result is not results[0]:
            hours += f" ({result.pod_hours / own - 1:+.1%})"
        target = "-" if result.target is None else f"{result.target:.4g}/s per pod"
        misses = f"{100 * result.missed:.3f} %"
        found.append(
            (result.policy, misses, hours, str(result.scalings), str(result.reversals), str(result.largest), target)
        )
    return found


def write_csv(results: Sequence[Result], path: Path) -> None:
    """One line per policy and 15 s."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("policy", "seconds", "requests_per_second", "wanted", "ready", "backlog"))
        for result in results:
            for moment in result.course:
                writer.writerow(
                    (result.policy, moment.at, moment.rate, moment.wanted, moment.ready, round(moment.backlog, 1))
                )


def write_picture(results: Sequence[Result], load: Load, path: Path) -> None:
    """Load, replicas and backlog over time; raises SlipwayError where matplotlib is not installed."""
    try:
        import matplotlib as mpl
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise SlipwayError(
            "the picture needs matplotlib, which the operator itself does not: pip install matplotlib; "
            "table and CSV are complete without it"
        ) from error
    mpl.use("Agg")
    figure, (rates, replicas, backlog) = plt.subplots(3, 1, figsize=(11, 8), sharex=True)
    course = results[0].course
    rates.plot([moment.at / 60 for moment in course], [moment.rate for moment in course], color="grey", linewidth=0.7)
    rates.set_ylabel("requests/s")
    for result, colour in zip(results, COLOURS, strict=False):
        times = [moment.at / 60 for moment in result.course]
        label = f"{result.policy}: {100 * result.missed:.2f} % missed, {result.pod_hours:.1f} GPU hours"
        wanted = [moment.wanted for moment in result.course]
        replicas.plot(times, wanted, color=colour, label=label, drawstyle="steps-post")
        backlog.plot(times, [moment.backlog for moment in result.course], color=colour)
    replicas.set_ylabel("replicas wanted")
    replicas.legend(fontsize=8)
    backlog.set_ylabel("requests waiting")
    backlog.set_xlabel("minutes")
    for axes in (rates, replicas, backlog):
        axes.grid(alpha=0.3)
    figure.suptitle(f"{load.name} (simulation)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
