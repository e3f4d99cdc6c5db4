"""Metrics on one machine: a real Prometheus, and a simulated stand-in for the DCGM exporter."""

from e2e.sandbox.telemetry.dcgm import SimulatedDcgmExporter
from e2e.sandbox.telemetry.prometheus import Prometheus
from e2e.sandbox.telemetry.scraping import ScrapeTarget, dcgm_target, envoy_target

__all__ = ["Prometheus", "ScrapeTarget", "SimulatedDcgmExporter", "dcgm_target", "envoy_target"]
