"""What ``serve`` was told about telling of requests."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_RATIO = "OTEL_TRACES_SAMPLER_ARG"
_DEFAULT_RATIO = 0.01


@dataclass(frozen=True)
class TelemetrySettings:
    """Access log and traces; both are off by default."""

    access_log: bool = False
    access_log_ratio: float = 1.0
    """Share of the successful requests that is logged; failures always are."""
    trace_endpoint: str = ""
    """OTLP collector (HTTP); empty: no traces."""
    trace_sample_ratio: float = _DEFAULT_RATIO
    """Share of the requests that start a trace where the caller has not decided."""
    allow_changes: bool = False
    """Requests may change what is logged and traced."""

    @property
    def observes(self) -> bool:
        """Whether requests have to be watched at all."""
        return self.access_log or bool(self.trace_endpoint)


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("must be from 0 to 1")
    return value


def add_arguments(serve: argparse.ArgumentParser) -> None:
    """The flags; traces default to OpenTelemetry's environment variables."""
    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")
    serve.add_argument("--access-log", action="store_true", help="write a JSON line per request to standard output")
    serve.add_argument("--access-log-ratio", type=_share, default=1.0, help="share of the successful requests logged")
    serve.add_argument(
        "--trace-endpoint",
        default=endpoint,
        help="OTLP collector, such as http://HOST:4318; or $OTEL_EXPORTER_OTLP_ENDPOINT",
    )
    serve.add_argument(
        "--trace-sample-ratio",
        type=_share,
        default=os.environ.get(_RATIO) or _DEFAULT_RATIO,
        help="share of the requests traced whose caller has not decided; or $OTEL_TRACES_SAMPLER_ARG",
    )
    serve.add_argument("--allow-setting-changes", action="store_true", help="by requests: of logging and tracing")


def settings_of(given: argparse.Namespace) -> TelemetrySettings:
    """The settings of parsed arguments."""
    return TelemetrySettings(
        given.access_log,
        given.access_log_ratio,
        given.trace_endpoint,
        given.trace_sample_ratio,
        given.allow_setting_changes,
    )
