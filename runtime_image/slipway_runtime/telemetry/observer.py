"""Watches requests from their first byte to their answer, and tells the access log and the traces."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

from slipway_runtime.metrics.exposition import Registry
from slipway_runtime.metrics.sheet import Merge, Sheet
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.telemetry import trace_context
from slipway_runtime.telemetry.access_log import AccessLog
from slipway_runtime.telemetry.spans import SpanExport
from slipway_runtime.telemetry.switches import Switches
from slipway_runtime.telemetry.watch import CURRENT, REQUEST_ID_HEADER, ROUTINE, Watch

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


@dataclass(frozen=True)
class Clock:
    """Where the time comes from: seconds since 1970, and monotonic seconds."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


class Observer:
    """One per process. A server that neither logs nor traces requests has none."""

    def __init__(
        self,
        switches: Switches,
        access_log: AccessLog | None,
        spans: SpanExport | None,
        sheet: Sheet,
        tenant_header: str = "",
        tenant_of: Callable[[str], str] = str,
        clock: Clock | None = None,
    ) -> None:
        """``tenant_of`` gives the tenant's name that is in the value of ``tenant_header``; may raise RequestFailure."""
        self._tenant_of = tenant_of
        self._switches = switches
        self._access_log = access_log
        self._spans = spans
        self._tenant_header = tenant_header
        self._clock = clock or Clock()
        registry = Registry({}, sheet)
        self._lines_lost = registry.value(
            "counter", "slipway_access_log_dropped_total", "Lines of the access log that were lost.", Merge.SUM
        )
        self._traces_lost = registry.value(
            "counter", "slipway_traces_dropped_total", "Recorded requests whose spans no collector got.", Merge.SUM
        )
        self._lost_before = self._lines_lost.value, self._traces_lost.value

    def begin(
        self, protocol: str, method: str, target: str, headers: Mapping[str, str], begun: float, received: int
    ) -> Watch:
        """Watch a request; ``headers`` in lower case, ``begun`` in monotonic seconds, ``received`` bytes."""
        get = headers.get
        wanted = self._spans is not None and not target.startswith(ROUTINE)
        ratio = self._switches.trace_ratio if wanted else 0.0
        trace = trace_context.begin(get(trace_context.PARENT_HEADER, ""), get(trace_context.STATE_HEADER, ""), ratio)
        given = get(REQUEST_ID_HEADER, "")
        request_id = given if _REQUEST_ID.fullmatch(given) else trace_context.token_hex(16)
        watch = Watch(protocol, method, target, trace, request_id, begun, self._finish)
        watch.received = received
        if self._tenant_header:
            with contextlib.suppress(RequestFailure):
                watch.tenant = self._tenant_of(get(self._tenant_header, ""))
        return watch

    def _finish(self, watch: Watch, status: int, sent: int, rpc_status: str) -> None:
        wall, now = self._clock.wall(), self._clock.monotonic()
        if self._access_log is not None and self._switches.access_log:
            self._access_log.note(watch, status, sent, rpc_status, wall, now - watch.begun)
        if self._spans is not None and watch.trace.sampled and self._switches.tracing:
            self._spans.note((watch, status, sent, rpc_status, wall, now))

    def publish(self) -> None:
        """Bring the counters of what was lost up to date."""
        lines, traces = self._lost_before
        self._lines_lost.set(lines + (self._access_log.dropped if self._access_log else 0))
        self._traces_lost.set(traces + (self._spans.dropped if self._spans else 0))

    def close(self, seconds: float) -> None:
        """Deliver what has been noted, within ``seconds`` for each of log and traces."""
        if self._access_log is not None:
            self._access_log.close(seconds)
        if self._spans is not None:
            self._spans.close(seconds)


class working_on(AbstractContextManager[None]):  # noqa: N801 - reads as a phrase after `with`
    """What happens inside is done for the watched request."""

    __slots__ = ("_token", "_watch")

    def __init__(self, watch: Watch | None) -> None:
        self._watch = watch

    def __enter__(self) -> None:
        self._token = CURRENT.set(self._watch)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        CURRENT.reset(self._token)
