"""The metrics contract of a Slipway server: names, labels and what counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from http import HTTPStatus

from slipway_runtime.metrics.exposition import Histogram, Registry, Value
from slipway_runtime.metrics.sheet import Merge, Sheet
from slipway_runtime.serving.cache import CacheCounts

DURATION_BOUNDS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25,
    0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
_WINDOW_SECONDS = 5.0
_BATCH_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
# A client that went away got no status; 499 is what proxies log for it.
CLIENT_GONE = 499
# These series exist at zero from the start: Prometheus cannot see the first increment of a series that
# appears with it, and exact counts are what the canary analysis is built on.
_USUAL_CODES = (
    HTTPStatus.OK,
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)


class ServingMetrics:
    """Every series the server exports. Warm-up and health requests never reach it."""

    def __init__(self, model: str, version: str, revision: str, sheet: Sheet | None = None) -> None:
        """``sheet`` is where the numbers are; servers of one sheet are exposed together."""
        self.model = model
        self.version = version
        self._registry = Registry({"model": model, "version": version, "revision": revision}, sheet)
        self._requests: dict[tuple[int, bool], Value] = {}
        for code in _USUAL_CODES:
            for shadow in (False, True):
                self._request_series(code, shadow)
        self._durations = {shadow: self._duration_series(shadow) for shadow in (False, True)}
        self.in_flight = self._gauge("slipway_requests_in_flight", "Inference requests not answered yet.")
        self._queue_time = self._registry.histogram(
            "slipway_queue_duration_seconds", "Time from arrival to the start of execution.", DURATION_BOUNDS
        )
        self.queue_depth = self._gauge("slipway_queue_depth", "Requests waiting for the executor.")
        self._batch_size = self._registry.histogram(
            "slipway_batch_size", "Rows per execution of the model.", _BATCH_BOUNDS
        )
        self._busy = self._counter(
            "slipway_executor_busy_seconds_total", "Seconds the executor spent executing the model."
        )
        # What a worker that died had counted in this one's place.
        self._busy_before = self._busy.value
        self._utilization = self._gauge(
            "slipway_executor_utilization_ratio",
            "Share of the last seconds in which the executor was busy.",
            Merge.MEAN,
        )
        self._window = time.monotonic(), 0.0
        self.load_seconds = self._gauge(
            "slipway_model_load_seconds", "Time from start to ready: load and warm-up.", Merge.HIGHEST
        )
        self.ready = self._gauge(
            "slipway_model_ready", "1 once the model is loaded and warm, 0 before and in drain.", Merge.HIGHEST
        )
        self._shadow: dict[tuple[str, str, str], Value] = {}
        self.rows = self._counter("slipway_request_rows_total", "Rows of the requests that were executed.")

    def _gauge(self, name: str, text: str, merge: Merge = Merge.SUM) -> Value:
        return self._registry.value("gauge", name, text, merge)

    def _counter(self, name: str, text: str) -> Value:
        return self._registry.value("counter", name, text)

    def _duration_series(self, shadow: bool) -> Histogram:
        return self._registry.histogram(
            "slipway_request_duration_seconds",
            "Time from the last byte of a request to its answer.",
            DURATION_BOUNDS,
            shadow=str(shadow).lower(),
        )

    def _request_series(self, code: int, shadow: bool) -> Value:
        series = self._requests.get((code, shadow))
        if series is None:
            series = self._registry.value(
                "counter",
                "slipway_requests_total",
                "Inference requests by exact HTTP status (499: the client left before the answer).",
                code=str(int(code)),
                shadow=str(shadow).lower(),
            )
            self._requests[(code, shadow)] = series
        return series

    def request_finished(self, code: int, shadow: bool, seconds: float) -> None:
        """Count one inference request. Every counted request is in the duration histogram as well."""
        self._request_series(code, shadow).add()
        self._durations[shadow].observe(seconds)

    def batch_finished(self, rows: int, queue_seconds: Iterable[float]) -> None:
        """Count one execution and how long each of its requests had waited."""
        self._batch_size.observe(rows)
        self.rows.add(rows)
        for seconds in queue_seconds:
            self._queue_time.observe(seconds)

    def cache_counts(self) -> CacheCounts:
        """The series of an answer cache; a server without one does not have them."""

        def requests(result: str) -> Value:
            text = "Requests by what the answer cache did: hit, miss, or shared with an identical one under way."
            return self._registry.value("counter", "slipway_cache_requests_total", text, result=result)

        return CacheCounts(
            hits=requests("hit"),
            misses=requests("miss"),
            shared=requests("shared"),
            evictions=self._counter("slipway_cache_evictions_total", "Answers dropped for their age or for room."),
            size=self._gauge("slipway_cache_bytes", "Bytes of the answers that are kept."),
        )

    def shadow_series(self, candidate: str, pair: str, result: str) -> Value:
        """The counter of comparisons with the answers of the revision ``candidate``; see ``shadow.repeater``."""
        series = self._shadow.get((candidate, pair, result))
        if series is None:
            series = self._registry.value(
                "counter",
                "slipway_shadow_comparisons_total",
                "Repeated requests by whose answer was compared with the user's and by what came out.",
                candidate=candidate,
                pair=pair,
                result=result,
            )
            self._shadow[(candidate, pair, result)] = series
        return series

    def shadow_compared(self, candidate: str, pair: str, result: str) -> None:
        """Count one repetition."""
        self.shadow_series(candidate, pair, result).add()

    def render(self, busy_seconds: Callable[[], float]) -> bytes:
        """The exposition; ``busy_seconds`` includes the part of a running execution that has passed."""
        self.publish_busy(busy_seconds())
        return self._registry.render()

    def publish_busy(self, seconds: float) -> None:
        """Let other workers' expositions see how long this process's executor has been busy since its start."""
        self._busy.set(self._busy_before + seconds)
        now = time.monotonic()
        since, earlier = self._window
        if now - since >= _WINDOW_SECONDS:
            self._utilization.set(min(1.0, max(0.0, (seconds - earlier) / (now - since))))
            self._window = now, seconds
