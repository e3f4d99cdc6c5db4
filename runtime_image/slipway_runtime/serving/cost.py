"""How long the model takes, by number of rows.

Decides what may run on the event-loop thread, what cannot finish in time any more, and how many rows a batch may have.
"""

from __future__ import annotations

# Below the first bound the hand-over to a thread costs more than the model; above the second, health
# answers would wait. In between, what was decided last stays.
_INLINE_BELOW = 200e-6
_INLINE_UNTIL = 400e-6
# A busy machine now and then takes the processor away in the middle of an execution; that is not the model's time.
_SLOW_IN_A_ROW = 3
_TOO_SLOW = 20e-3
_COUNTED = 2e-3
_WEIGHT = 0.2
# Share of an estimate that counts as certain: an execution may be quicker than the average.
_CERTAIN = 0.8
_SAME_SIZE = 1e-6
_FADING = 0.99


class CostModel:
    """Moving averages of execution seconds, in power-of-two buckets of rows, and a line through all of them.

    The line ``fixed + per_row * rows`` is fitted by least squares in which older executions count less and less.
    Neither part is ever negative: a negative slope would promise that larger batches are free.
    """

    def __init__(self, inline_allowed: bool) -> None:
        self._allowed = inline_allowed
        self._seconds: dict[int, float] = {}
        self._inline: dict[int, bool] = {}
        self._slow: dict[int, int] = {}
        self._known = False
        self.longest = 0.0
        """Seconds of the longest execution, which fades with the number of others since."""
        self._mean_rows = self._mean_seconds = 0.0
        self._variance = self._covariance = 0.0

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from one execution."""
        bucket = rows.bit_length()
        known = self._seconds.get(bucket)
        average = seconds if known is None else known + _WEIGHT * (min(seconds, _COUNTED) - known)
        self._seconds[bucket] = average
        self.longest = max(seconds, self.longest * _FADING)
        slow = self._slow.get(bucket, 0) + 1 if seconds > _INLINE_UNTIL else 0
        self._slow[bucket] = slow
        if slow >= _SLOW_IN_A_ROW or seconds > _TOO_SLOW:
            self._inline[bucket] = False
        elif average < _INLINE_BELOW:
            self._inline[bucket] = True
        if not self._known:
            self._known, self._mean_rows, self._mean_seconds = True, float(rows), seconds
            return
        off_rows, off_seconds = rows - self._mean_rows, seconds - self._mean_seconds
        self._mean_rows += _WEIGHT * off_rows
        self._mean_seconds += _WEIGHT * off_seconds
        self._variance = (1 - _WEIGHT) * (self._variance + _WEIGHT * off_rows * off_rows)
        self._covariance = (1 - _WEIGHT) * (self._covariance + _WEIGHT * off_rows * off_seconds)

    def may_run_inline(self, rows: int) -> bool:
        """Whether an execution of ``rows`` rows is short enough for the event-loop thread."""
        return self._allowed and self._inline.get(rows.bit_length(), False)

    def line(self) -> tuple[float, float]:
        """Seconds per execution and per row, both 0 or more; all is fixed while executions were of one size."""
        if self._variance < _SAME_SIZE:
            return self._mean_seconds, 0.0
        slope = self._covariance / self._variance
        if slope <= 0:
            return self._mean_seconds, 0.0
        fixed = self._mean_seconds - slope * self._mean_rows
        if fixed < 0:
            return 0.0, self._mean_seconds / self._mean_rows
        return fixed, slope

    def at_least(self, rows: int) -> float:
        """Seconds that an execution of ``rows`` rows takes for certain; 0 while nothing is known."""
        if not self._known:
            return 0.0
        fixed, slope = self.line()
        if slope == 0.0:
            # How much of it is fixed is not known: fewer rows may take less in proportion.
            return _CERTAIN * fixed * min(1.0, rows / max(self._mean_rows, 1.0))
        return _CERTAIN * (fixed + slope * rows)

    def rows_within(self, seconds: float, most: int) -> int:
        """The rows, from 1 to ``most``, of the largest execution that may take no longer than ``seconds``."""
        if not self._known:
            return most
        fixed, slope = self.line()
        if fixed + slope * most <= seconds:
            return most
        if slope == 0.0:
            return max(1, min(most, int(self._mean_rows * max(seconds, 0.0) / fixed)))
        return max(1, min(most, int((seconds - fixed) / slope)))


class BatchTarget:
    """How many rows a batch may have: halved when a request ran out of time in one, one more after each good one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.rows = most

    def in_time(self) -> None:
        """A batch finished, and nobody had given up."""
        if self.rows < self._most:
            self.rows += 1

    def too_late(self, rows: int) -> None:
        """A request gave up while it was in a batch of ``rows`` rows."""
        self.rows = max(1, min(self.rows, rows) // 2)
