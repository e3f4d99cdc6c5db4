"""Alerts and dashboard speak of metrics that exist, in queries that Prometheus can read."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from slipway.api.versions import Engine
from slipway.engine.telemetry import Telemetry
from slipway.resources.engines.server import default_ports
from slipway.resources.identity import MANAGED_BY

from e2e.sandbox.binaries import prometheus_path
from tests.chart.rendering import CHART, EVERYTHING, of_kind, rendered

RUNTIME = {
    *("slipway_requests_total", "slipway_request_duration_seconds", "slipway_queue_duration_seconds"),
    *("slipway_model_ready", "slipway_executor_busy_seconds_total"),
}
_METRIC = re.compile(r"\b(?:slipway|DCGM)_\w+")


def rules() -> dict[str, Any]:
    return dict(yaml.safe_load((CHART / "files" / "rules.yaml").read_text()))


def dashboard() -> dict[str, Any]:
    return dict(json.loads((CHART / "files" / "dashboard.json").read_text()))


def queries() -> list[str]:
    alerts = [rule["expr"] for group in rules()["groups"] for rule in group["rules"]]
    return alerts + [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]


def known() -> set[str]:
    return {row[0] for row in Telemetry().rows()} | RUNTIME | {"DCGM_FI_DEV_GPU_UTIL"}


@pytest.mark.parametrize("query", queries())
def test_every_metric_exists(query: str) -> None:
    used = {re.sub(r"_(bucket|sum|count)$", "", name) for name in _METRIC.findall(query)}
    assert used
    assert used <= known()


def test_prometheus_reads_all_queries(tmp_path: Path) -> None:
    promtool = prometheus_path().with_name("promtool")
    if not promtool.exists():
        pytest.fail("promtool is not beside prometheus")
    recorded = [
        {"record": f"q{index}", "expr": query.replace("$namespace", ".*").replace("$model", ".*")}
        for index, query in enumerate(queries())
    ]
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(rules()))
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": recorded}]}))
    answer = subprocess.run(
        [str(promtool), "check", "rules", str(tmp_path / "alerts.yaml"), str(tmp_path / "queries.yaml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_chart_carries_both_with_the_labels_asked_for() -> None:
    objects = rendered(EVERYTHING)
    [rule] = of_kind(objects, "PrometheusRule")
    assert rule["spec"] == rules()
    assert rule["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    [carrier] = of_kind(objects, "ConfigMap")
    assert json.loads(carrier["data"]["slipway.json"]) == dashboard()
    assert carrier["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_panels_do_not_overlap() -> None:
    cells = [
        (column, row)
        for panel in dashboard()["panels"]
        for column in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for row in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))


def test_model_pods_are_selected_by_the_label_they_carry() -> None:
    monitor = next(obj for obj in of_kind(rendered(EVERYTHING), "PodMonitor"))
    assert monitor["spec"]["selector"]["matchLabels"] == {"app.kubernetes.io/managed-by": MANAGED_BY}
    [service] = of_kind(rendered(EVERYTHING), "Service")
    [scrape] = of_kind(rendered(EVERYTHING), "ServiceMonitor")
    assert scrape["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()


def test_the_operator_may_ask_the_servers_of_every_engine() -> None:
    [policy] = of_kind(rendered({"networkPolicy": {"enabled": True}}), "NetworkPolicy")
    open_ports = {port["port"] for rule in policy["spec"]["egress"] if "to" in rule for port in rule["ports"]}
    assert {default_ports(engine)["http"] for engine in Engine} <= open_ports


def test_models_are_scraped_on_the_port_that_has_metrics_with_the_labels_of_pods(tmp_path: Path) -> None:
    """Triton's are on another port than its answers; nobody's series but Slipway's own say whose they are."""
    monitor = next(
        obj for obj in of_kind(rendered(EVERYTHING), "PodMonitor") if obj["metadata"]["name"].endswith("models")
    )
    endpoints = {entry["port"]: entry["relabelings"] for entry in monitor["spec"]["podMetricsEndpoints"]}
    assert set(endpoints) == {"http", "metrics"}
    assert endpoints["http"] == endpoints["metrics"]
    for rule in endpoints["http"]:
        sources = rule.get("sourceLabels", [])
        assert "__meta_kubernetes_pod_annotation_prometheus_io_port" not in sources, "a mesh rewrites it"
    relabelings = [
        {re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", key): value for key, value in rule.items()}
        for rule in endpoints["http"]
    ]
    job = {"job_name": "models", "static_configs": [{"targets": ["a:1"]}], "relabel_configs": relabelings}
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    answer = subprocess.run(
        [str(prometheus_path().with_name("promtool")), "check", "config", str(tmp_path / "prometheus.yaml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr
