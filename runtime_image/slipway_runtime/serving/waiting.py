"""The queue in front of the model: jobs by priority, then by arrival, grouped by what may run together."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from slipway_runtime.serving.job import GroupKey, Job, JobState

_LAST = 2**64
"""Level of jobs without a priority."""


@dataclass(slots=True)
class _Group:
    """Jobs that may run together, with the numbers of those still waiting."""

    line: deque[Job] = field(default_factory=deque)
    jobs: int = 0
    rows: int = 0


class WaitingLine:
    """Jobs not started yet. Finished ones (cancelled, timed out) are skipped, not searched for."""

    def __init__(self) -> None:
        self._arrivals: dict[int, deque[Job]] = {}
        """By level: the lower one goes first."""
        self._groups: dict[tuple[int, GroupKey], _Group] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, job: Job) -> None:
        """Put a job at the end."""
        self._count += 1
        level = _level(job)
        self._arrivals.setdefault(level, deque()).append(job)
        if job.key is not None:
            group = self._groups.setdefault((level, job.key), _Group())
            group.line.append(job)
            group.jobs += 1
            group.rows += job.rows

    def remove(self, job: Job) -> None:
        """Account for a waiting job that is about to be finished (cancelled, timed out)."""
        self._count -= 1
        if job.key is None:
            return
        place = _level(job), job.key
        group = self._groups[place]
        group.jobs -= 1
        group.rows -= job.rows
        # Shapes are the client's choice: empty groups must not pile up.
        if group.jobs == 0:
            del self._groups[place]

    def oldest(self) -> Job | None:
        """The job that has waited longest, of those that go first."""
        for level in sorted(self._arrivals):
            arrivals = self._arrivals[level]
            while arrivals and arrivals[0].state is not JobState.QUEUED:
                arrivals.popleft()
            if arrivals:
                return arrivals[0]
            # Levels are the client's choice as well.
            del self._arrivals[level]
        return None

    def beside(self, job: Job) -> tuple[int, int]:
        """Jobs and rows waiting in the group of a waiting ``job``, itself included."""
        if job.key is None:
            return 1, job.rows
        group = self._groups[_level(job), job.key]
        return group.jobs, group.rows

    def take(self, max_rows: int) -> list[Job]:
        """The next batch: the oldest job and, as far as ``max_rows`` allows, those of its group behind it."""
        first = self.oldest()
        if first is None:
            return []
        if first.key is None:
            return [self._start(first)]
        line = self._groups[_level(first), first.key].line
        batch: list[Job] = []
        rows = 0
        while line:
            job = line[0]
            if job.state is JobState.QUEUED:
                if batch and rows + job.rows > max_rows:
                    break
                batch.append(self._start(job))
                rows += job.rows
            line.popleft()
        return batch

    def drain(self) -> list[Job]:
        """All waiting jobs; the line is empty afterwards."""
        jobs = [job for line in self._arrivals.values() for job in line if job.state is JobState.QUEUED]
        self._arrivals.clear()
        self._groups.clear()
        self._count = 0
        return jobs

    def _start(self, job: Job) -> Job:
        self.remove(job)
        job.state = JobState.RUNNING
        return job


def _level(job: Job) -> int:
    return job.request.priority or _LAST
