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
    plain = {"__meta_kubernetes_pod_container_port_number": "8080", "__meta_kubernetes_pod_node_name": "n1"}
    triton = {**plain, "__meta_kubernetes_pod_annotation_slipway_dev_metrics_port": "8002"}
    meshed = {
        **plain,
        "__meta_kubernetes_pod_annotation_prometheus_io_path": "/stats/prometheus",
        "__meta_kubernetes_pod_label_slipway_dev_revision": "m-v1-aaaaaaaa",
    }
    assert scraped(endpoints["http"], {"10.1.0.1:8080": plain, "10.1.0.2:8080": triton}, tmp_path) == {
        "10.1.0.1:8080": ("/metrics", "n1", "")
    }
    # The mesh's proxy gives the metrics of both to everybody, whatever TLS the pod asks for.
    assert scraped(endpoints["http"], {"10.1.0.3:8080": meshed, "[fd00::3]:8080": meshed}, tmp_path) == {
        "10.1.0.3:15020": ("/stats/prometheus", "n1", "m-v1-aaaaaaaa"),
        "[fd00::3]:15020": ("/stats/prometheus", "n1", "m-v1-aaaaaaaa"),
    }


def scraped(
    rules: list[dict[str, Any]], targets: dict[str, dict[str, str]], folder: Path
) -> dict[str, tuple[str, str, str]]:
    """Path, node and revision by address, of what a real Prometheus would scrape."""
    relabelings = [
        {re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", key): value for key, value in rule.items()}
        for rule in rules
    ]
    found = [{"targets": [address], "labels": labels} for address, labels in targets.items()]
    job = {"job_name": "models", "static_configs": found, "relabel_configs": relabelings}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    tool = str(prometheus_path().with_name("promtool"))
    answer = subprocess.run(
        [tool, "check", "service-discovery", "--timeout=1s", str(folder / "prometheus.yaml"), "models"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr
    kept = [entry["labels"] for entry in json.loads(answer.stdout) if entry.get("labels")]
    return {
        labels["__address__"]: (labels["__metrics_path__"], labels["node"], labels.get("slipway_dev_revision", ""))
        for labels in kept
    }


def test_a_monitor_of_models_leaves_the_proxies_own_metrics_to_the_mesh() -> None:
    monitor = next(
        obj for obj in of_kind(rendered(EVERYTHING), "PodMonitor") if obj["metadata"]["name"].endswith("models")
    )
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        [rule] = endpoint["metricRelabelings"]
        assert (rule["action"], rule["sourceLabels"]) == ("drop", ["__name__"])
        names = (
            "istio_requests_total",
            "envoy_cluster_upstream_rq",
            "slipway_requests_total",
            "vllm:num_requests_running",
        )
        assert [re.fullmatch(rule["regex"], name) is not None for name in names] == [True, True, False, False]


def test_an_operator_in_the_mesh_reaches_its_control_plane() -> None:
    principal = "cluster.local/ns/slipway-system/sa/slipway"
    closed = {"networkPolicy": {"enabled": True}}

    def ports(values: dict[str, Any], way: str) -> set[Any]:
        [policy] = of_kind(rendered(values), "NetworkPolicy")
        return {port["port"] for rule in policy["spec"][way] for port in rule["ports"]}

    assert ports({**closed, "istio": {"principal": principal}}, "egress") - ports(closed, "egress") == {15008, 15012}
    assert ports({**closed, "istio": {"principal": principal}}, "ingress") - ports(closed, "ingress") == {15008, 15020}


def test_an_operator_in_a_strict_mesh_is_scraped_at_its_own_port() -> None:
    values = {
        "istio": {"principal": "cluster.local/ns/slipway-system/sa/slipway"},
        "monitoring": {"operator": "PodMonitor"},
    }
    [deployment] = of_kind(rendered(values), "Deployment")
    ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
    [metrics] = [str(port["containerPort"]) for port in ports if port["name"] == "http"]
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations["traffic.sidecar.istio.io/excludeInboundPorts"] == metrics


def test_an_annotation_of_the_users_own_replaces_ours() -> None:
    values = {"podAnnotations": {"prometheus.io/port": "9", "a": "b"}}
    [deployment] = of_kind(rendered(values), "Deployment")
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {
        "a": "b",
        "prometheus.io/path": "/metrics",
        "prometheus.io/port": "9",
        "prometheus.io/scrape": "true",
    }
