"""Prometheus, read once per tick for all ModelDeployments, as typed samples and raw counters."""

from slipway.metrics.credentials import Credentials
from slipway.metrics.snapshot import Snapshot
from slipway.metrics.source import PrometheusSource

__all__ = ["Credentials", "PrometheusSource", "Snapshot"]
