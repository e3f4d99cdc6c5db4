"""What is scraped and under which labels, without any process."""

from pathlib import Path
from typing import Any

import pytest

from e2e.sandbox.telemetry.discovery import pod_targets
from e2e.sandbox.telemetry.scraping import ScrapeTarget, dcgm_target, duration, envoy_target, prometheus_config


def pod(**changes: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "sentiment-1",
            "namespace": "nlp",
            "uid": "u-1",
            "labels": {"slipway.dev/version": "v1"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
        },
        "spec": {"nodeName": "node-0", "containers": [{"name": "server", "ports": [{"containerPort": 8080}]}]},
        "status": {
            "podIP": "10.244.0.7",
            "hostIP": "10.0.0.1",
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
        **changes,
    }


def test_a_pod_has_the_labels_of_prometheus_own_discovery() -> None:
    (target,) = pod_targets([pod()])
    assert target["targets"] == ["10.244.0.7:8080"]
    assert target["labels"] == {
        "__meta_kubernetes_namespace": "nlp",
        "__meta_kubernetes_pod_name": "sentiment-1",
        "__meta_kubernetes_pod_uid": "u-1",
        "__meta_kubernetes_pod_ip": "10.244.0.7",
        "__meta_kubernetes_pod_host_ip": "10.0.0.1",
        "__meta_kubernetes_pod_node_name": "node-0",
        "__meta_kubernetes_pod_phase": "Running",
        "__meta_kubernetes_pod_ready": "true",
        "__meta_kubernetes_pod_label_slipway_dev_version": "v1",
        "__meta_kubernetes_pod_labelpresent_slipway_dev_version": "true",
        "__meta_kubernetes_pod_annotation_prometheus_io_scrape": "true",
        "__meta_kubernetes_pod_annotationpresent_prometheus_io_scrape": "true",
        "__meta_kubernetes_pod_annotation_prometheus_io_port": "8080",
        "__meta_kubernetes_pod_annotationpresent_prometheus_io_port": "true",
        "__meta_kubernetes_pod_container_port_number": "8080",
    }


def test_every_declared_port_is_a_target_and_a_pod_without_ports_is_one() -> None:
    two = [{"name": "server", "ports": [{"containerPort": 8080}, {"containerPort": 9000}]}]
    found = pod_targets([pod(spec={"containers": two})])
    assert [item["targets"] for item in found] == [["10.244.0.7:8080"], ["10.244.0.7:9000"]]
    assert [item["targets"] for item in pod_targets([pod(spec={"containers": [{"name": "server"}]})])] == [
        ["10.244.0.7"]
    ]


def test_a_pod_without_an_address_is_no_target() -> None:
    assert pod_targets([pod(status={"phase": "Pending"})]) == []


@pytest.mark.parametrize(("seconds", "text"), [(1.0, "1000ms"), (0.25, "250ms"), (15, "15000ms")])
def test_durations_are_exact(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_scrape_never_takes_longer_than_the_interval() -> None:
    for interval, timeout in ((0.5, "500ms"), (30, "10000ms")):
        config = prometheus_config(Path("pods.json"), Path("targets.json"), interval)
        assert config["global"]["scrape_timeout"] == timeout


def test_targets_carry_their_path_and_parameters() -> None:
    assert ScrapeTarget("operator", "http://127.0.0.1:9100").discovered() == {
        "targets": ["127.0.0.1:9100"],
        "labels": {"job": "operator", "__scheme__": "http", "__metrics_path__": "/metrics"},
    }
    labels = envoy_target("http://127.0.0.1:1").discovered()["labels"]
    assert labels["__metrics_path__"] == "/stats/prometheus"
    assert "__param_filter" in labels
    assert dcgm_target("http://127.0.0.1:2/metrics").discovered()["labels"]["pod"] == "simulated-dcgm-exporter"
