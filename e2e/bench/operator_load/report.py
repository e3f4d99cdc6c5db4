"""What was measured, and whether it is what was aimed at."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from e2e.bench.operator_load.figures import percentile

__all__ = ["Goal", "Report", "Rolling", "text"]

PER_ROLLOUT = ("calls", "reconciles", "cpu")


@dataclass(frozen=True)
class Rolling:
    """A batch of rollouts."""

    seconds: float
    calls: float
    """Calls to the API server per rollout."""
    reconciles: float
    """Reconciles per rollout."""
    cpu: float
    """The operator's CPU seconds per rollout."""


@dataclass(frozen=True)
class Goal:
    """A figure and its bound."""

    what: str
    figure: float
    bound: float
    unit: str

    @property
    def met(self) -> bool:
        """Whether the figure is within the bound; an unknown one is not."""
        return self.figure <= self.bound


@dataclass
class Report:
    """Figures of one run; seconds and MiB."""

    objects: int
    family: int
    """Objects that belong to one ModelDeployment, itself included."""
    bare: float = float("nan")
    converged: float = float("nan")
    created: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Calls up to convergence, by method and resource."""
    cpu: float = float("nan")
    reconciled: float = float("nan")
    """Reconciles up to convergence."""
    batches: list[Rolling] = field(default_factory=list)
    idle_reads: float = float("nan")
    """Reads a minute."""
    idle_writes: float = float("nan")
    """Writes in all."""
    idle_cpu: float = float("nan")
    """Share of a core."""
    reconciles: dict[float, float] = field(default_factory=dict)
    """Quantiles of the duration of a reconcile, while some roll."""
    edits: list[float] = field(default_factory=list)
    """From an edit of the spec to the route that shows it."""
    peak: float = float("nan")

    def goals(self) -> Iterator[Goal]:
        """What the operator is to achieve."""
        yield Goal("time to converge, in times of the bare client's", self.converged / self.bare, 2.0, "x")
        yield Goal("peak memory", self.peak * 2**20 / 1e6, 250.0, "MB")
        yield Goal("writes in steady state", self.idle_writes, 0.0, "")
        yield Goal("from an edit to the route, p99", percentile(self.edits, 0.99), 1.0, "s")

    def figures(self) -> dict[str, Any]:
        """For a machine."""
        return {
            "objects": self.objects,
            "family": self.family,
            "bareSeconds": self.bare,
            "convergedSeconds": self.converged,
            "calls": {f"{method} {resource}": count for (method, resource), count in self.created.items()},
            "cpuSeconds": self.cpu,
            "reconciles": self.reconciled,
            "batches": [
                {
                    "seconds": one.seconds,
                    "callsPerRollout": one.calls,
                    "reconcilesPerRollout": one.reconciles,
                    "cpuPerRollout": one.cpu,
                }
                for one in self.batches
            ],
            "idle": {"readsPerMinute": self.idle_reads, "writes": self.idle_writes, "cpuShare": self.idle_cpu},
            "reconcileSeconds": {str(share): value for share, value in self.reconciles.items()},
            "editSeconds": self.edits,
            "peakMiB": self.peak,
            "goals": [
                {"what": goal.what, "figure": goal.figure, "bound": goal.bound, "met": goal.met}
                for goal in self.goals()
            ],
        }


def text(report: Report) -> str:
    """A table in Markdown."""
    calls = sum(report.created.values()) / report.objects
    writes = sum(count for (method, _), count in report.created.items() if method != "GET") / report.objects
    rolls = [batch.seconds for batch in report.batches]
    per_rollout = [percentile([getattr(one, name) for one in report.batches], 0.5) for name in PER_ROLLOUT]
    rows = [
        ("ModelDeployments, of three versions each", f"{report.objects}"),
        ("objects that belong to one, itself included", f"{report.family}"),
        ("bare client: created and ready", f"{report.bare:.1f} s"),
        ("operator: created and ready", f"{report.converged:.1f} s = {report.converged / report.bare:.2f}x"),
        ("API calls per ModelDeployment, of these writes", f"{calls:.1f}, {writes:.1f}"),
        ("operator's CPU for it", f"{report.cpu:.1f} s"),
        ("reconciles per ModelDeployment", f"{report.reconciled / report.objects:.1f}"),
        ("a batch of rollouts, p50 and longest", f"{percentile(rolls, 0.5):.1f} s, {percentile(rolls, 1.0):.1f} s"),
        ("API calls, reconciles and CPU per rollout", "{:.1f}, {:.1f}, {:.3f} s".format(*per_rollout)),
        ("steady state: reads a minute, writes in all", f"{report.idle_reads:.0f}, {report.idle_writes:.0f}"),
        ("steady state: CPU", f"{100 * report.idle_cpu:.1f} % of a core"),
        ("a reconcile while 10 roll, p50 and p99", " and ".join(f"≤ {s:g} s" for s in report.reconciles.values())),
        (
            "edit of a spec to its route, p50 and p99",
            f"{percentile(report.edits, 0.5):.3f} s, {percentile(report.edits, 0.99):.3f} s",
        ),
        ("operator's peak memory", f"{report.peak:.0f} MiB"),
    ]
    goals = [
        f"goal: {goal.what}: {goal.figure:.3g} {goal.unit} (at most {goal.bound:g}: {'met' if goal.met else 'MISSED'})"
        for goal in report.goals()
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in (("what", "figure"), ("---", "---"), *rows))
    return f"Pods are hollow (simulated): only the operator is measured.\n\n{table}\n\n" + "\n".join(goals)
