"""Dynamic batching: which requests run when. Lives on the event-loop thread.

An idle executor takes a lone request at once. Under load the requests that arrive during an execution
form the next batch. Once a batch has held several requests, the next one is held back for up to
``max_delay`` until as many are there again: their clients are about to send, and half a batch costs
almost as much as a whole one. When they do not come, the expectation falls with the batch that ran. Nothing is held
back behind others that wait for company, until it would be late, or once no more requests are going to come.

What cannot finish within its deadline is not started, and a batch is no larger than its most urgent request has time
for, except under more load than the model can take: then small batches would only make it worse.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial

from slipway_runtime import journal
from slipway_runtime.metrics.recorder import ServingMetrics
from slipway_runtime.metrics.statistics import ModelStatistics
from slipway_runtime.models.model import DeviceLost, Model
from slipway_runtime.protocol.failures import model_failed, overloaded, timed_out, unavailable, unsupported
from slipway_runtime.protocol.request import InferRequest
from slipway_runtime.serving.batch import run_batch
from slipway_runtime.serving.cost import BatchTarget, CostModel
from slipway_runtime.serving.executor import Instance
from slipway_runtime.serving.job import Job, JobState, Outcome, batch_key
from slipway_runtime.serving.streaming import StreamRunner
from slipway_runtime.serving.waiting import Company, WaitingLine, lag_of
from slipway_runtime.settings import Limits
from slipway_runtime.telemetry.watch import CURRENT, note_batch

# After so many refusals in a row something is run all the same: an estimate that is too high could not correct itself.
_REFUSALS_BELIEVED = 8
# Before its deadline a request gets as many times the longest execution for its own.
_RESERVE = 2.0


@dataclass(frozen=True)
class _Execution:
    """A batch on its way through the model."""

    instance: Instance
    jobs: list[Job]
    rows: int
    started: float


class Batcher:
    """Admission, queue and dispatch for one model; a batch goes to an instance that is idle."""

    def __init__(
        self,
        instances: Sequence[Instance],
        limits: Limits,
        metrics: ServingMetrics,
        statistics: ModelStatistics,
        device_lost: Callable[[BaseException], None],
        max_rows: int,
        cost: CostModel | None = None,
    ) -> None:
        """``max_rows`` bounds a batch (the model's own limit may be below the configured one);
        ``device_lost`` is told when only a new process can help.
        """
        model = instances[0].model
        self._signature = model.signature
        self._idle = list(instances)
        self._limits = limits
        self._max_rows = max_rows
        self._metrics = metrics
        self._statistics = statistics
        self._device_lost = device_lost
        self._loop = asyncio.get_running_loop()
        self._cost = cost or CostModel(inline_allowed=not model.on_accelerator)
        self._nobody = copy_context()
        self._line = WaitingLine()
        self._unfinished = 0
        self._deciding = False
        self._hold: asyncio.TimerHandle | None = None
        self._hurried = False
        self._expected_jobs = 1
        self._target = BatchTarget(max_rows)
        self._refusals = 0
        self.streams: StreamRunner | None = None
        """Where requests go whose model answers in parts."""
        if self._signature.streams:
            self.streams = StreamRunner(instances, limits, metrics, statistics, device_lost)

    @property
    def plain(self) -> Batcher:
        """A batcher that asks the model every time: this one."""
        return self

    @property
    def unfinished(self) -> int:
        """Jobs admitted and not finished."""
        return self._unfinished + (0 if self.streams is None else self.streams.active)

    @property
    def waiting(self) -> int:
        """Jobs admitted and not started."""
        return len(self._line)

    def submit(self, request: InferRequest, done: Callable[[Outcome], None], tenant_lag: float = 0.0) -> Job:
        """Admit a request that was checked against the signature; ``done`` gets its outcome, once.

        ``tenant_lag``, from 0 to 1, lets those of more important tenants go first.
        Raises RequestFailure: 429 when the queue or the concurrency limit is full, 501 for a model that streams.
        """
        if self.streams is not None:
            raise unsupported("this model answers in parts: use generate, generate_stream or ModelStreamInfer")
        if len(self._line) >= self._limits.max_queue:
            raise overloaded("the queue is full")
        if 0 < self._limits.max_concurrency <= self._unfinished:
            raise overloaded("the server handles as many requests at once as it may")
        now = time.monotonic()
        timeout = min(request.timeout or self._limits.timeout, self._limits.timeout)
        rows, key = batch_key(self._signature, request)
        lag = lag_of(request.priority, tenant_lag)
        job = Job(request, rows, key, now, partial(self._count_down, done), now + timeout, lag)
        job.timer = self._loop.call_later(timeout, self._expire, job)
        watch = CURRENT.get()
        if watch is not None:
            job.watch = watch
            watch.admitted(self._metrics.model, self._metrics.version, request.id)
        self._unfinished += 1
        self._line.add(job)
        self._metrics.queue_depth.set(len(self._line))
        self._wake_up()
        return job

    def cancel(self, job: Job) -> None:
        """The client left: a queued job never runs, the result of a running one is dropped."""
        self._finish_early(job, unavailable("the client left"))

    def refuse_waiting(self) -> None:
        """Answer all that still waits with 503; for the end of a drain."""
        if self.streams is not None:
            self.streams.end_all()
        for job in self._line.drain():
            job.finish(unavailable("the server is shutting down"))
        self._metrics.queue_depth.set(0)

    def hurry(self, hurried: bool) -> None:
        """Whether requests go without company: when no more of them come here."""
        self._hurried = hurried
        if hurried and len(self._line):
            self._wake_up()

    def forget(self) -> None:
        """Drop the answers that are kept: there are none."""

    def _count_down(self, done: Callable[[Outcome], None], outcome: Outcome) -> None:
        self._unfinished -= 1
        done(outcome)

    def _expire(self, job: Job) -> None:
        self._finish_early(job, timed_out())

    def _finish_early(self, job: Job, outcome: Outcome) -> None:
        if job.state is JobState.QUEUED:
            self._line.remove(job)
            self._metrics.queue_depth.set(len(self._line))
        job.finish(outcome)

    def _wake_up(self) -> None:
        """Decide at the end of this turn of the loop: everything parsed in it is then in the queue."""
        if not self._idle or self._deciding:
            return
        self._deciding = True
        # Not for the request that happens to be worked on: the batch is of others as well.
        self._loop.call_soon(self._consider, context=self._nobody)

    def _consider(self) -> None:
        self._deciding = False
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None
        if not self._idle:
            return
        now = time.monotonic()
        oldest = self._line.oldest()
        if oldest is None:
            return
        # The usual case costs no more than these comparisons.
        comfortable = self._comfortable(oldest, now)
        if not comfortable and (oldest := self._first_in_time(now)) is None:
            return
        jobs, rows = self._line.beside(oldest)
        waits = oldest.key is not None and not self._complete(jobs, rows)
        if waits and now < oldest.arrived + self._limits.max_delay:
            due = self._due(now)
            if due is None:
                return
            oldest, rows = due.first, due.rows
            comfortable = self._comfortable(oldest, now)
        if comfortable:
            batch, late = self._line.take(min(self._max_rows, self._target.rows), now, oldest)
            self._dispatch(self._taken(batch, late))
        else:
            self._dispatch(self._take_batch(oldest, rows, now))

    def _comfortable(self, job: Job, now: float) -> bool:
        return job.deadline - now > self._cost.longest * self._max_rows

    def _complete(self, jobs: int, rows: int) -> bool:
        """Whether that many are not worth waiting for more."""
        enough = self._limits.adaptive and jobs >= self._expected_jobs
        return self._hurried or enough or rows >= min(self._max_rows, self._target.rows)

    def _due(self, now: float) -> Company | None:
        """The most urgent group that is complete or has waited long enough; otherwise the next look is arranged."""
        best: Company | None = None
        next_look = math.inf
        reserve = _RESERVE * self._cost.longest
        for company in self._line.companies(self._limits.max_delay, reserve):
            if company.due > now and not self._complete(company.jobs, company.rows):
                next_look = min(next_look, company.due)
            elif best is None or company.first.urgency < best.first.urgency:
                best = company
        if best is None:
            self._hold = self._loop.call_later(next_look - now, self._consider)
        return best

    def _first_in_time(self, now: float) -> Job | None:
        """The most urgent job that may still finish; those before it are answered."""
        soonest = now if self._refusals >= _REFUSALS_BELIEVED else now + self._cost.at_least(1)
        while (job := self._line.oldest()) is not None and job.deadline < soonest:
            self._refuse_late(job)
        return job

    def _take_batch(self, oldest: Job, waiting_rows: int, now: float) -> list[Job]:
        """``oldest``, of whose group ``waiting_rows`` wait, and its company, if it may run together in time."""
        most = min(self._max_rows, self._target.rows)
        fitting = self._cost.rows_within(oldest.deadline - now, most)
        if fitting == most or waiting_rows < most:
            jobs, late = self._line.take(fitting, now, oldest)
        else:
            jobs, late = self._line.take(most, now + self._cost.at_least(most), oldest)
        return self._taken(jobs, late)

    def _taken(self, jobs: list[Job], late: list[Job]) -> list[Job]:
        """The jobs to run; those that are too late for it are answered, but something is always run."""
        if not jobs:
            jobs, late = [late[0]], late[1:]
        for job in late:
            self._refusals += 1
            job.finish(timed_out())
        self._metrics.queue_depth.set(len(self._line))
        return jobs

    def _refuse_late(self, job: Job) -> None:
        self._refusals += 1
        self._finish_early(job, timed_out())

    def _dispatch(self, jobs: list[Job]) -> None:
        rows = sum(job.rows for job in jobs)
        self._expected_jobs = len(jobs)
        instance = self._idle.pop()
        execution = _Execution(instance, jobs, rows, time.monotonic())
        instance.executor.started()
        work = partial(_timed_run, instance.model, jobs, self._max_rows)
        if self._cost.may_run_inline(rows):
            self._run_inline(execution, work)
        else:
            instance.executor.submit(work, partial(self._finished, execution))
            if len(self._line):
                self._wake_up()

    def _run_inline(self, execution: _Execution, work: Callable[[], tuple[list[Outcome], float]]) -> None:
        try:
            result = work()
        except BaseException as error:
            self._finished(execution, None, error)
        else:
            self._finished(execution, result, None)

    def _finished(
        self, execution: _Execution, result: tuple[list[Outcome], float] | None, error: BaseException | None
    ) -> None:
        self._idle.append(execution.instance)
        jobs, rows, executor = execution.jobs, execution.rows, execution.instance.executor
        if result is None:
            executor.finished(time.monotonic() - execution.started)
            self._failed(jobs, error)
            return
        outcomes, seconds = result
        executor.finished(seconds)
        self._cost.observe(rows, seconds)
        self._refusals = 0
        if len(jobs) > 1 and execution.started + seconds > min(job.deadline for job in jobs):
            self._target.too_late(rows)
        else:
            self._target.in_time()
        waits = [execution.started - job.arrived for job in jobs]
        self._metrics.batch_finished(rows, waits)
        self._statistics.batch_finished(rows, waits, seconds)
        watched = [(job.watch, job.arrived) for job in jobs if job.watch is not None]
        if watched:
            note_batch(watched, execution.started, seconds, rows, len(jobs))
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.finish(outcome)
        if len(self._line):
            self._wake_up()

    def _failed(self, jobs: list[Job], error: BaseException | None) -> None:
        journal.record("executor-failed", "error", cause=f"{type(error).__name__}: {error}")
        for job in jobs:
            job.finish(model_failed())
        if isinstance(error, DeviceLost):
            self._device_lost(error)
        if len(self._line):
            self._wake_up()


def _timed_run(model: Model, jobs: list[Job], max_rows: int) -> tuple[list[Outcome], float]:
    begun = time.perf_counter()
    with journal.about([job.watch for job in jobs if job.watch is not None]):
        outcomes = run_batch(model, [job.request.inputs for job in jobs], [job.rows for job in jobs], max_rows)
    return outcomes, time.perf_counter() - begun
