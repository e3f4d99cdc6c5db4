"""What a soak did and what it saw."""

import collections
from dataclasses import dataclass, field

__all__ = ["Report"]


@dataclass
class Report:
    """Figures of one run; nothing in ``problems`` means that everything held."""

    seed: int
    seconds: float = 0.0
    acts: collections.Counter[str] = field(default_factory=collections.Counter)
    requests: int = 0
    excused: int = 0
    """Failed requests that were to be expected."""
    windows: float = 0.0
    """Seconds in which requests might fail."""
    rollouts: collections.Counter[str] = field(default_factory=collections.Counter)
    """By outcome."""
    operators: int = 0
    """Ends of operator processes."""
    writes: int = 0
    """Of both operators, Events and leases apart."""
    looks: collections.Counter[str] = field(default_factory=collections.Counter)
    megabytes: float = 0.0
    problems: list[str] = field(default_factory=list)

    def text(self) -> str:
        """A table in Markdown, and the problems."""
        lost = sum("request lost" in problem for problem in self.problems)
        rows = (
            ("time, seed", f"{self.seconds / 60:.1f} minutes, {self.seed}"),
            ("acts", f"{sum(self.acts.values())}: {_listed(self.acts)}"),
            ("rollouts ended", f"{sum(self.rollouts.values())}: {_listed(self.rollouts)}"),
            ("operator processes that ended", f"{self.operators}"),
            ("writes of the operators", f"{self.writes}"),
            ("requests", f"{self.requests}, {lost} lost"),
            (
                "failures to be expected",
                f"{self.excused}: answers of the bad version, and requests within the {self.windows:.0f} s in which a "
                "killed pod was being replaced",
            ),
            ("changes looked at", _listed(self.looks)),
            ("operator's peak memory", f"{self.megabytes:.0f} MiB"),
            ("violations", f"{len(self.problems)}"),
        )
        lines = [f"| {' | '.join(row)} |" for row in (("what", "figure"), ("---", "---"), *rows)]
        return "\n".join([*lines, *(f"\n- {problem}" for problem in self.problems)])


def _listed(counts: collections.Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
