"""The table of faults: what was done, what had to hold, how often it was tried and what came of it."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Row", "table"]


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    fault: str
    injected: str
    """How."""
    holds: str
    """What must hold."""
    tried: int
    failed: tuple[str, ...] = ()
    """What did not hold, one entry per try."""
    note: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """For people."""
        result = f"{len(self.failed)} FAILED" if self.failed else "held"
        return self.fault, self.injected, self.holds, str(self.tried), f"{result}{'; ' if self.note else ''}{self.note}"


def table(rows: Iterable[Row]) -> str:
    """Markdown."""
    lines = [
        ("Fault", "How injected", "What must hold", "Tried", "Result"),
        ("---", "---", "---", "---:", "---"),
        *(row.cells for row in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
