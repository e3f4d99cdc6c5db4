"""What Prometheus scrapes and how the series are labelled. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from e2e.sandbox.mesh.bootstrap import STAT_SCOPE
from e2e.sandbox.telemetry.discovery import PREFIX

Json = dict[str, Any]

LONGEST_TIMEOUT_SECONDS = 10.0
ENVOY_STATS = rf"^(cluster\.outbound|http\.mesh\.|{STAT_SCOPE}|server\.)"
"""The part of Envoy's metrics worth a scrape every second."""


@dataclass(frozen=True)
class ScrapeTarget:
    """Something to scrape that is no annotated pod: `url` of the metrics, the job's name, labels to be added."""

    job: str
    url: str
    labels: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)

    def discovered(self) -> Json:
        """The target as an entry of a file of targets."""
        parts = urlsplit(self.url)
        labels = {"job": self.job, "__scheme__": parts.scheme, "__metrics_path__": parts.path or "/metrics"}
        labels |= {f"__param_{name}": value for name, value in self.parameters.items()}
        return {"targets": [parts.netloc], "labels": labels | dict(self.labels)}


def envoy_target(admin_url: str) -> ScrapeTarget:
    """An Envoy, by the address of its administration: its own metrics and Istio's standard request metrics."""
    parameters = {"filter": ENVOY_STATS, "usedonly": ""}
    return ScrapeTarget("envoy", f"{admin_url}/stats/prometheus", {"pod": "sandbox-envoy"}, parameters)


def dcgm_target(url: str, namespace: str = "gpu-operator") -> ScrapeTarget:
    """The stand-in for the DCGM exporter.

    The target has pod labels of its own, so that the workload's arrive as exported_pod, exported_namespace and
    exported_container, as they do with a real exporter.
    """
    labels = {"namespace": namespace, "pod": "simulated-dcgm-exporter", "container": "simulated-dcgm-exporter"}
    return ScrapeTarget("dcgm-exporter", url, labels)


def prometheus_config(pods_file: Path, targets_file: Path, scrape_interval: float) -> Json:
    """Prometheus' configuration: the annotated pods among those in `pods_file`, and the targets in `targets_file`.

    `scrape_interval` is in seconds.
    """
    interval = duration(scrape_interval)
    return {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": duration(min(scrape_interval, LONGEST_TIMEOUT_SECONDS)),
            "evaluation_interval": interval,
        },
        "scrape_configs": [_pods(pods_file), _others(targets_file)],
    }


def duration(seconds: float) -> str:
    """Seconds in Prometheus' notation, exact to the millisecond."""
    return f"{round(seconds * 1000)}ms"


def _pods(pods_file: Path) -> Json:
    pod = f"{PREFIX}_pod"
    annotation = f"{pod}_annotation_prometheus_io"
    return {
        "job_name": "kubernetes-pods",
        "file_sd_configs": [{"files": [str(pods_file)]}],
        "relabel_configs": [
            _keep([f"{annotation}_scrape"], "true"),
            _keep([f"{pod}_phase"], "Running"),
            # One target for each pod, whatever number of ports it declares.
            _replace([f"{pod}_ip", f"{annotation}_port"], r"(.+);(\d+)", "$1:$2", "__address__"),
            _replace([f"{pod}_ip", f"{annotation}_port"], r"(.+);", "$1:8080", "__address__"),
            _replace([f"{annotation}_path"], "(.+)", "$1", "__metrics_path__"),
            _replace([f"{annotation}_scheme"], "(https?)", "$1", "__scheme__"),
            _replace([f"{PREFIX}_namespace"], "(.*)", "$1", "namespace"),
            _replace([f"{pod}_name"], "(.*)", "$1", "pod"),
            _replace([f"{pod}_node_name"], "(.*)", "$1", "node"),
            # Whose pods they are: other servers than Slipway's do not know it.
            {"action": "labelmap", "regex": f"{pod}_label_(slipway_dev_.+)"},
        ],
    }


def _others(targets_file: Path) -> Json:
    cluster = ["upstream_cluster"]
    return {
        "job_name": "others",
        "file_sd_configs": [{"files": [str(targets_file)]}],
        "metric_relabel_configs": [
            # Envoy puts prefixes before Istio's metrics, and knows the destination only as a cluster's name.
            _replace(["__name__"], rf"envoy_{STAT_SCOPE}_(istio_.+)", "$1", "__name__"),
            _replace(["__name__"], "istio_.+", "source", "reporter"),
            _replace(cluster, r"outbound\|\d+\|[^|]*\|(.+)", "$1", "destination_service"),
            _replace(cluster, r"outbound\|\d+\|[^|]*\|([^.]+)\..+", "$1", "destination_service_name"),
            _replace(cluster, r"outbound\|\d+\|[^|]*\|[^.]+\.([^.]+)\..+", "$1", "destination_service_namespace"),
            # Envoy leaves a label out where there is nothing to say: nobody was asked for an answer.
            *(
                _replace(["__name__", label], "istio_.+;-?", "unknown", label)
                for label in ("destination_service", "destination_workload", "destination_workload_namespace")
            ),
        ],
    }


def _keep(sources: Sequence[str], regex: str) -> Json:
    return {"source_labels": list(sources), "regex": regex, "action": "keep"}


def _replace(sources: Sequence[str], regex: str, replacement: str, target: str) -> Json:
    return {
        "source_labels": list(sources),
        "regex": regex,
        "replacement": replacement,
        "target_label": target,
        "action": "replace",
    }
