"""How long the model takes, by number of rows: decides what may run on the event-loop thread."""

from __future__ import annotations

# Below the first bound the hand-over to a thread costs more than the model; above the second, health
# answers would wait. In between, what was decided last stays.
_INLINE_BELOW = 200e-6
_INLINE_UNTIL = 400e-6
_WEIGHT = 0.2


class CostModel:
    """Moving averages of execution seconds, in power-of-two buckets of rows."""

    def __init__(self, inline_allowed: bool) -> None:
        self._allowed = inline_allowed
        self._seconds: dict[int, float] = {}
        self._inline: dict[int, bool] = {}

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from one execution."""
        bucket = rows.bit_length()
        known = self._seconds.get(bucket)
        average = seconds if known is None else known + _WEIGHT * (seconds - known)
        self._seconds[bucket] = average
        if average < _INLINE_BELOW:
            self._inline[bucket] = True
        elif average > _INLINE_UNTIL:
            self._inline[bucket] = False

    def may_run_inline(self, rows: int) -> bool:
        """Whether an execution of ``rows`` rows is short enough for the event-loop thread."""
        return self._allowed and self._inline.get(rows.bit_length(), False)
