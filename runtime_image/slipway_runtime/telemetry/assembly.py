"""The observer of a server, as its settings ask for it."""

from __future__ import annotations

import os

from slipway_runtime.metrics.sheet import Sheet
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.serving.tenants import TenantRules
from slipway_runtime.telemetry.access_log import AccessLog
from slipway_runtime.telemetry.observer import Observer
from slipway_runtime.telemetry.options import TelemetrySettings
from slipway_runtime.telemetry.spans import SpanExport
from slipway_runtime.telemetry.switches import Switches


def observer_of(
    settings: TelemetrySettings, switches: Switches, sheet: Sheet, models: str, tenants: TenantRules | None = None
) -> Observer | None:
    """None for a server that tells nothing of its requests. Raises Refusal.

    ``models`` names the service in traces, unless ``$OTEL_SERVICE_NAME`` does.
    """
    if not settings.observes:
        return None
    spans = None
    if settings.trace_endpoint:
        resource = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": models}
        try:
            spans = SpanExport(settings.trace_endpoint, resource)
        except ImportError as error:
            text = "--trace-endpoint needs the packages of the extra runtime-tracing"
            raise Refusal("BadArguments", text, ExitCode.BAD_ARGUMENTS) from error
    log = AccessLog(settings.access_log_ratio) if settings.access_log else None
    if tenants is None:
        return Observer(switches, log, spans, sheet)
    return Observer(switches, log, spans, sheet, tenants.header, tenants.name_in)
