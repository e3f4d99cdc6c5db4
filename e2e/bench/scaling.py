"""Compares Slipway's scaling with models of HPA, KEDA and KPA at equal cost: ``python -m e2e.bench.scaling``.

A simulation (see ``slipway.simulation``). The decision is the operator's own; one setting for all loads and starts.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from slipway.api.spec import ModelDeploymentSpec
from slipway.cli.columns import table
from slipway.simulation.load import Load
from slipway.simulation.replay import COST_TOLERANCE, Conditions, Result, replay
from slipway.simulation.rivalry import RIVALS, against
from slipway.simulation.slipway_policy import SlipwayPolicy

from e2e.bench.scaling_loads import loads

COLD_STARTS = (20.0, 60.0, 300.0)
"""Seconds."""
CAPACITY = 100.0
"""Requests per second of one replica at most."""
TARGET = 60.0
"""``qps.target``, and what rivals are first tried with."""
PARETO_TARGETS = (35.0, 45.0, 60.0, 75.0)
BOUNDS = (2, 60)
COLOURS = {"slipway": "#228833", "hpa": "#4477aa", "keda": "#cc3311", "kpa": "#aa3377"}


@dataclass(frozen=True, slots=True)
class Gate:
    """What is promised of Slipway against HPA, over all loads of one cold start."""

    cold_start: float
    misses: float
    """Largest share of HPA's misses."""
    scalings: float = 0.7
    """Largest share of HPA's scalings."""


GATES = (Gate(60.0, 1.0), Gate(300.0, 0.6))


@dataclass(frozen=True, slots=True)
class Run:
    """A result and its cold start."""

    cold_start: float
    result: Result


def spec(target: float) -> ModelDeploymentSpec:
    """Defaults, but for bounds and target."""
    scaling = {"minReplicas": BOUNDS[0], "maxReplicas": BOUNDS[1], "qps": {"target": target}}
    return ModelDeploymentSpec.model_validate(
        {"versions": [{"name": "v1", "uri": "file:///models/v1"}], "autoscaling": scaling}
    )


def conditions(load: Load, cold_start: float, seed: int) -> Conditions:
    """The cluster at the start of a run: as many replicas as the first minute needs."""
    first = math.fsum(load.rates[:60]) / 60
    return Conditions(CAPACITY, cold_start, max(BOUNDS[0], math.ceil(first / TARGET)), seed=seed)


def compared(seeds: Sequence[int]) -> list[Run]:
    """All runs of the table; prints each load as it is done."""
    scaling = spec(TARGET)
    runs = []
    for seed in seeds:
        for load in loads(seed):
            for cold_start in COLD_STARTS:
                cluster = conditions(load, cold_start, seed)
                own = replay(SlipwayPolicy(scaling), load, cluster)
                rivals = against(own, tuple(RIVALS), load, cluster, scaling.autoscaling)
                runs += [Run(cold_start, result) for result in (own, *rivals)]
            print(f"seed {seed}: {load.name} done", flush=True)
    return runs


def by_load(runs: Sequence[Run]) -> list[str]:
    """Lines of the table: misses, scalings per load and cold start, averaged over seeds; cost where it is not equal."""
    rows = []
    for name in dict.fromkeys(run.result.load for run in runs):
        for cold_start in COLD_STARTS:
            cells = [name, f"{cold_start:g} s"]
            own = _of(runs, "slipway", name, cold_start)
            cells.append(f"{_hours(own) / len(own):.1f}")
            for policy in ("slipway", *RIVALS):
                found = _of(runs, policy, name, cold_start)
                cells.append(f"{100 * _misses(found):.2f} % / {_scalings(found) / len(found):.0f}{_cost(found, own)}")
            rows.append(cells)
    head = ("LOAD", "START", "GPU HOURS", *(f"{name} missed/scalings" for name in ("slipway", *RIVALS)))
    return table(head, rows)


def in_all(runs: Sequence[Run]) -> list[str]:
    """Lines of the sums over all loads, and whether the gates are met."""
    rows = []
    for cold_start in COLD_STARTS:
        for policy in ("slipway", *RIVALS):
            found = _of(runs, policy, "", cold_start)
            reversals = sum(run.reversals for run in found)
            cells = (f"{100 * _misses(found):.3f} %", f"{_hours(found):.1f}", str(_scalings(found)), str(reversals))
            rows.append((f"{cold_start:g} s", policy, *cells))
    lines = table(("START", "POLICY", "MISSED", "GPU HOURS", "SCALINGS", "REVERSALS"), rows)
    for gate in GATES:
        own, hpa = _of(runs, "slipway", "", gate.cold_start), _of(runs, "hpa", "", gate.cold_start)
        misses = _misses(own) / max(_misses(hpa), 1e-12)
        scalings = _scalings(own) / max(_scalings(hpa), 1)
        lines.append(
            f"gate at {gate.cold_start:g} s: misses {misses:.0%} of HPA's (at most {gate.misses:.0%}: "
            f"{_verdict(misses <= gate.misses)}), scalings {scalings:.0%} (at most {gate.scalings:.0%}: "
            f"{_verdict(scalings <= gate.scalings)})"
        )
    return lines


def draw_pareto(path: Path, seed: int) -> None:
    """Misses over cost for several targets of each policy, all loads together: no scaler is one point."""
    mpl.use("Agg")
    figure, panels = plt.subplots(1, len(COLD_STARTS), figsize=(15, 5), sharey=True)
    all_loads = list(loads(seed))
    for axes, cold_start in zip(panels, COLD_STARTS, strict=True):
        for policy, colour in COLOURS.items():
            points = []
            for target in PARETO_TARGETS:
                results = [
                    replay(
                        SlipwayPolicy(spec(target)) if policy == "slipway" else RIVALS[policy](target, *BOUNDS),
                        load,
                        conditions(load, cold_start, seed),
                    )
                    for load in all_loads
                ]
                points.append((_hours(results), 100 * _misses(results)))
            points.sort()
            axes.plot(*zip(*points, strict=True), "o-", color=colour, label=policy)
        axes.set_title(f"cold start {cold_start:g} s")
        axes.set_xlabel("GPU hours")
        axes.set_yscale("symlog", linthresh=0.1)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("requests that missed the objective (%)")
    panels[0].legend()
    figure.suptitle(f"Targets {', '.join(f'{target:g}' for target in PARETO_TARGETS)}/s per replica (simulation)")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _of(runs: Sequence[Run], policy: str, load: str, cold_start: float) -> list[Result]:
    """Results of a policy at a cold start; of all loads where ``load`` is empty."""
    return [
        run.result
        for run in runs
        if run.result.policy == policy and run.cold_start == cold_start and load in ("", run.result.load)
    ]


def _misses(results: Sequence[Result]) -> float:
    """The share of all requests that missed the objective."""
    return sum(run.missed * run.requests for run in results) / sum(run.requests for run in results)


def _hours(results: Sequence[Result]) -> float:
    return math.fsum(run.pod_hours for run in results)


def _scalings(results: Sequence[Result]) -> int:
    return sum(run.scalings for run in results)


def _cost(results: Sequence[Result], own: Sequence[Result]) -> str:
    """The difference of cost, where it could not be made equal."""
    difference = _hours(results) / _hours(own) - 1
    return f" ({difference:+.1%} GPU hours)" if abs(difference) > COST_TOLERANCE else ""


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def main() -> None:
    """Run the comparison, print both tables and write the picture."""
    parser = argparse.ArgumentParser(description="Compare scalers at equal cost, in a simulation.")
    parser.add_argument("--seeds", type=int, default=2, help="how many draws of each generated load (default: 2)")
    parser.add_argument("--out", type=Path, default=Path(".slipway/bench"), help="folder for tables and picture")
    parsed = parser.parse_args()
    runs = compared(range(1, parsed.seeds + 1))
    print()
    lines = [*by_load(runs), "", *in_all(runs)]
    print("\n".join(lines))
    parsed.out.mkdir(parents=True, exist_ok=True)
    (parsed.out / "scaling.txt").write_text("\n".join(lines) + "\n")
    draw_pareto(parsed.out / "scaling.png", 1)
    print(f"\nwrote {parsed.out / 'scaling.txt'} and {parsed.out / 'scaling.png'}")


if __name__ == "__main__":
    main()
