"""A batcher that answers identical requests once. Lives on the event-loop thread.

A request whose answer is kept is answered at once; one that is identical to a request under way waits for the answer
of that one. When the first of them gets no answer (it has less time, its client leaves), the next takes its place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from slipway_runtime.metrics.recorder import ServingMetrics
from slipway_runtime.metrics.statistics import ModelStatistics
from slipway_runtime.protocol.failures import RequestFailure, overloaded, timed_out, unavailable
from slipway_runtime.protocol.request import InferRequest
from slipway_runtime.serving.batcher import Batcher
from slipway_runtime.serving.cache import AnswerCache, input_key
from slipway_runtime.serving.job import Job, Outcome
from slipway_runtime.serving.streaming import StreamRunner
from slipway_runtime.settings import Limits

# These say nothing about the other requests for the same answer.
_PERSONAL = (HTTPStatus.GATEWAY_TIMEOUT, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that waits for an answer which others may wait for, too."""

    request: InferRequest
    done: Callable[[Outcome], None]
    tenant_lag: float
    deadline: float
    timer: asyncio.TimerHandle | None = None
    flight: Flight | None = None


@dataclass(slots=True, eq=False)
class Flight:
    """An answer under way and the requests for it. ``leader`` is the one whose job it is, while it is there."""

    key: bytes
    waiters: list[Waiter] = field(default_factory=list)
    leader: Waiter | None = None
    job: Job | None = None


class CachingBatcher:
    """Stands in front of a ``Batcher`` and does what it does."""

    def __init__(
        self, batcher: Batcher, cache: AnswerCache, identity: str, limits: Limits, statistics: ModelStatistics
    ) -> None:
        """``identity`` of the model (name, version, digest) is part of every key."""
        self._statistics = statistics
        self._batcher = batcher
        self.cache = cache
        self._identity = identity
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._flights: dict[bytes, Flight] = {}
        self._waiters = 0
        self._closing = False

    @property
    def streams(self) -> StreamRunner | None:
        """See ``Batcher.streams``."""
        return self._batcher.streams

    @property
    def plain(self) -> Batcher:
        """The batcher behind."""
        return self._batcher

    @property
    def _followers(self) -> int:
        return max(0, self._waiters - len(self._flights))

    @property
    def unfinished(self) -> int:
        """Requests admitted and not finished."""
        return self._batcher.unfinished + self._followers

    @property
    def waiting(self) -> int:
        """Requests admitted and not started."""
        return self._batcher.waiting

    def submit(self, request: InferRequest, done: Callable[[Outcome], None], tenant_lag: float = 0.0) -> Job | Waiter:
        """As ``Batcher.submit``; outcomes from the cache are ``Remembered``."""
        if not request.repeatable:
            return self._batcher.submit(request, done, tenant_lag)
        begun = time.perf_counter()
        key = input_key(self._identity, request.inputs)
        timeout = min(request.timeout or self._limits.timeout, self._limits.timeout)
        waiter = Waiter(request, done, tenant_lag, time.monotonic() + timeout)
        flight = self._flights.get(key)
        if flight is not None:
            self._follow(flight, waiter, timeout)
            return waiter
        kept = self.cache.get(key)
        self._statistics.cache_asked(kept is not None, time.perf_counter() - begun)
        if kept is not None:
            # Not from in here: the caller has yet to note that the request was submitted.
            self._loop.call_soon(_answer, waiter, kept)
        else:
            flight = Flight(key)
            self._launch(flight, waiter)
            self._flights[key] = flight
            self._join(flight, waiter)
        return waiter

    def cancel(self, job: Job | Waiter) -> None:
        """The client left; others who wait for the same answer still get it."""
        if isinstance(job, Job):
            self._batcher.cancel(job)
        else:
            self._leave(job)
            _answer(job, unavailable("the client left"))

    def refuse_waiting(self) -> None:
        """Answer all that still waits with 503; for the end of a drain."""
        self._closing = True
        self._batcher.refuse_waiting()

    def hurry(self, hurried: bool) -> None:
        """See ``Batcher.hurry``."""
        self._batcher.hurry(hurried)

    def forget(self) -> None:
        """Another model takes this one's place: keep no answers."""
        self.cache.clear()

    def _follow(self, flight: Flight, waiter: Waiter, timeout: float) -> None:
        if self._followers >= self._limits.max_queue:
            raise overloaded("too many requests wait for answers under way")
        self.cache.counts.shared.add()
        waiter.timer = self._loop.call_later(timeout, self._expire, waiter)
        self._join(flight, waiter)

    def _join(self, flight: Flight, waiter: Waiter) -> None:
        waiter.flight = flight
        flight.waiters.append(waiter)
        self._waiters += 1

    def _launch(self, flight: Flight, waiter: Waiter) -> None:
        """A waiter becomes the one whose request the batcher has. Raises RequestFailure."""
        request = waiter.request.within(waiter.deadline - time.monotonic())
        flight.job = self._batcher.submit(request, partial(self._landed, flight), waiter.tenant_lag)
        flight.leader = waiter

    def _landed(self, flight: Flight, outcome: Outcome) -> None:
        leader, flight.leader, flight.job = flight.leader, None, None
        if isinstance(outcome, tuple):
            self.cache.put(flight.key, outcome)
        elif outcome.status in _PERSONAL and not self._closing:
            if leader is not None:
                self._leave(leader)
                _answer(leader, outcome)
            self._go_on(flight)
            return
        self._finish(flight, outcome)

    def _go_on(self, flight: Flight) -> None:
        """The next in line asks the model; what keeps it from that keeps the others as well."""
        if flight.waiters and flight.job is None:
            try:
                self._launch(flight, flight.waiters[0])
            except RequestFailure as failure:
                self._finish(flight, failure)

    def _finish(self, flight: Flight, outcome: Outcome) -> None:
        self._forget_flight(flight)
        for waiter in list(flight.waiters):
            self._leave(waiter)
            _answer(waiter, outcome)

    def _forget_flight(self, flight: Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    def _expire(self, waiter: Waiter) -> None:
        self._leave(waiter)
        _answer(waiter, timed_out())

    def _leave(self, waiter: Waiter) -> None:
        """Take a request out of its flight. When nobody is left in it, the model need not answer."""
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = None
        flight, waiter.flight = waiter.flight, None
        if flight is None:
            return
        flight.waiters.remove(waiter)
        self._waiters -= 1
        if flight.leader is waiter:
            flight.leader = None
        if not flight.waiters:
            self._forget_flight(flight)
            job, flight.job = flight.job, None
            if job is not None:
                self._batcher.cancel(job)


def caching(
    batcher: Batcher, limits: Limits, identity: str, metrics: ServingMetrics, statistics: ModelStatistics
) -> Batcher | CachingBatcher:
    """A batcher that remembers answers, if it is to and may: a model that answers in parts is asked every time."""
    if not limits.cache_bytes or batcher.streams is not None:
        return batcher
    cache = AnswerCache(limits.cache_bytes, limits.cache_ttl, counts=metrics.cache_counts())
    return CachingBatcher(batcher, cache, identity, limits, statistics)


def _answer(waiter: Waiter, outcome: Outcome) -> None:
    """Hand over the outcome, once."""
    done, waiter.done = waiter.done, _nobody
    done(outcome)


def _nobody(_: Outcome) -> None:
    """Who waits for a request that was answered."""
