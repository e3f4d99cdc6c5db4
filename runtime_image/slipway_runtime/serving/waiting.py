"""The queue in front of the model: the most urgent job first, grouped by what may run together. Pure.

A job's urgency is the time of its arrival plus its lag: the seconds by which it lets more important ones that come
later go first. Lags are bounded, so that whatever waits is the most urgent one some day: nothing starves.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from slipway_runtime.serving.job import GroupKey, Job, JobState

TENANT_LAG = 4.0
"""Seconds by which a tenant of the lowest priority lets one of the highest go first."""
REQUEST_LAG = 2.0
"""Seconds by which a request without a priority lets one of its tenant with priority 1 go first."""
_PRIORITIES = 16
"""Priorities above are as one: each is a level of its own here, and clients choose them."""


def lag_of(priority: int, tenant_lag: float = 0.0) -> float:
    """Seconds of lag of a request with the protocol's ``priority``: 1 goes first, then 2 and so on, 0 goes last.

    ``tenant_lag`` is between 0, for the most important tenant, and 1.
    """
    own = REQUEST_LAG if priority == 0 else REQUEST_LAG / 2 * (1.0 - 1.0 / min(priority, _PRIORITIES))
    return own + TENANT_LAG * tenant_lag


@dataclass(slots=True)
class _Group:
    """Jobs of one lag that may run together, with the numbers of those still waiting."""

    line: deque[Job] = field(default_factory=deque)
    jobs: int = 0
    rows: int = 0
    latest: float = math.inf
    """When the first of the jobs that were in it has to begin."""

    def first(self) -> Job:
        """The most urgent job. A group has waiting ones, or it would be gone: those before them have left."""
        while self.line[0].state is not JobState.QUEUED:
            self.line.popleft()
        return self.line[0]


@dataclass(slots=True)
class Company:
    """Jobs that may run together: the most urgent one, how many there are, and when they have waited long enough."""

    first: Job
    jobs: int
    rows: int
    due: float


class WaitingLine:
    """Jobs not started yet. Finished ones (cancelled, timed out) are skipped, not searched for."""

    def __init__(self) -> None:
        self._arrivals: dict[float, deque[Job]] = {}
        """By lag; in each line the first is the most urgent."""
        self._groups: dict[tuple[float, GroupKey | None], _Group] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, job: Job) -> None:
        """Put a job at the end of those of its lag."""
        self._count += 1
        arrivals = self._arrivals.get(job.lag)
        if arrivals is None:
            arrivals = self._arrivals[job.lag] = deque()
        arrivals.append(job)
        place = job.lag, job.key
        group = self._groups.get(place)
        if group is None:
            group = self._groups[place] = _Group()
        group.line.append(job)
        group.jobs += 1
        group.rows += job.rows
        group.latest = min(group.latest, job.latest_start)

    def remove(self, job: Job) -> None:
        """Account for a waiting job that is about to be finished (cancelled, timed out)."""
        self._count -= 1
        place = job.lag, job.key
        group = self._groups[place]
        group.jobs -= 1
        group.rows -= job.rows
        # Shapes and priorities are the client's choice: empty groups must not pile up.
        if group.jobs == 0:
            del self._groups[place]

    def oldest(self) -> Job | None:
        """The most urgent job."""
        best: Job | None = None
        urgency = math.inf
        gone = False
        for lag, arrivals in self._arrivals.items():
            while arrivals and arrivals[0].state is not JobState.QUEUED:
                arrivals.popleft()
            if not arrivals:
                gone = True
            elif arrivals[0].arrived + lag < urgency:
                best, urgency = arrivals[0], arrivals[0].arrived + lag
        if gone:
            # Priorities are the client's choice: empty lines must not pile up.
            self._arrivals = {lag: arrivals for lag, arrivals in self._arrivals.items() if arrivals}
        return best

    def beside(self, job: Job) -> tuple[int, int]:
        """Jobs and rows waiting in the group of a waiting ``job``, itself included."""
        if job.key is None:
            return 1, job.rows
        jobs = rows = 0
        for lag in self._arrivals:
            group = self._groups.get((lag, job.key))
            if group is not None:
                jobs += group.jobs
                rows += group.rows
        return jobs, rows

    def companies(self, delay: float, reserve: float) -> Iterable[Company]:
        """All groups with waiting jobs, each due ``delay`` after its first job came, or ``reserve`` before one has
        to begin. A job that runs alone is due at once.
        """
        found: dict[GroupKey | None, Company] = {}
        for (_, key), group in self._groups.items():
            first = group.first()
            due = -math.inf if key is None else min(first.arrived + delay, group.latest - reserve)
            known = found.get(key)
            if known is None:
                found[key] = Company(first, group.jobs, group.rows, due)
                continue
            if first.urgency < known.first.urgency:
                known.first = first
            known.jobs += group.jobs
            known.rows += group.rows
            known.due = min(known.due, due)
        return found.values()

    def take(
        self, max_rows: int, start_by: float = -math.inf, oldest: Job | None = None
    ) -> tuple[list[Job], list[Job]]:
        """The next batch in the order of urgency: the most urgent job and, as far as ``max_rows`` allows, those of its
        group; and the jobs met on the way whose deadline is before ``start_by``. All of them have left the line.

        ``oldest`` spares looking for the most urgent job again.
        """
        batch: list[Job] = []
        late: list[Job] = []
        job = oldest or self.oldest()
        rows = 0
        while job is not None and (not batch or rows + job.rows <= max_rows):
            self.remove(job)
            job.state = JobState.RUNNING
            if job.deadline < start_by:
                late.append(job)
            else:
                batch.append(job)
                rows += job.rows
            job = self._next_of(batch[0].key) if batch else self.oldest()
        return batch, late

    def drain(self) -> list[Job]:
        """All waiting jobs; the line is empty afterwards."""
        jobs = [job for line in self._arrivals.values() for job in line if job.state is JobState.QUEUED]
        self._arrivals.clear()
        self._groups.clear()
        self._count = 0
        return jobs

    def _next_of(self, key: GroupKey | None) -> Job | None:
        if key is None:
            return None
        best: Job | None = None
        urgency = math.inf
        for lag in self._arrivals:
            group = self._groups.get((lag, key))
            if group is None:
                continue
            job = group.first()
            if job.arrived + lag < urgency:
                best, urgency = job, job.arrived + lag
        return best
