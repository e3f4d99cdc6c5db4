"""The self-test of metrics that ``slipway explain`` prints."""

from typing import Any

import pytest
from slipway.cli.signals import signal_lines
from slipway.metrics import PrometheusSource

from tests.metrics.prometheus import MODEL, FakePrometheus, Series, serving
from tests.metrics.test_snapshot import NOW, alive, flat, requests

REVISION = MODEL["revision"]


def pod(name: str) -> dict[str, Any]:
    labels = {"slipway.dev/model-deployment": "sentiment", "slipway.dev/revision": REVISION}
    return {
        "metadata": {
            "name": name, "namespace": "nlp", "labels": labels, "creationTimestamp": "1970-01-01T00:00:00Z",
        },
        "spec": {"containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"}]},
    }  # fmt: skip


async def lines_of(fake: FakePrometheus, *pods: str | dict[str, Any]) -> list[str]:
    with serving(fake) as url:
        source = PrometheusSource(url)
        try:
            return await signal_lines(
                source, "nlp", "sentiment", [pod(item) if isinstance(item, str) else item for item in pods], NOW
            )
        finally:
            source.close()


async def test_queries_matches_pods_and_samples_are_shown() -> None:
    other = Series({**alive("x-0").labels, "model": "other"}, flat(0.0))
    gpu = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "UUID": "GPU-0", "Hostname": "node-1"}
    used = Series({**gpu, "exported_pod": "p-0", "exported_namespace": "nlp"}, flat(55.0))
    fake = FakePrometheus([alive("p-0"), requests("p-0", 30.0), other, used], gateway=2.5)
    text = "\n".join(await lines_of(fake, "p-0", "p-1"))
    assert '2       1        {__name__=~"slipway_requests_in_flight|slipway_model_ready"}[300s]' in text
    assert f"{REVISION}: 1 of 2 ready pods are in the metrics" in text
    assert "not scraped: p-1" in text
    assert "arrivals: 2/s" in text
    assert "gpu utilization: 55 % (dcgm)" in text
    assert "gpu memory: Missing: GPU 0 of node-1 does not export it" in text
    assert "mesh: 2.5/s" in text


async def test_the_names_of_an_engines_series_are_shown() -> None:
    """Triton's own and the mesh's, by revision."""
    own = {"namespace": "nlp", "pod": "p-0", "slipway_dev_model_deployment": "sentiment", "slipway_dev_version": "v1"}
    own |= {"slipway_dev_revision": REVISION, "slipway_dev_engine": "triton", "model": "sentiment"}
    mesh = {"destination_workload": REVISION, "destination_workload_namespace": "nlp", "pod": "gateway", "job": "istio"}
    fake = FakePrometheus(
        [
            Series({"__name__": "nv_inference_request_success", **own}, flat(1.0)),
            Series({"__name__": "nv_inference_request_failure", **own, "reason": "OTHER"}, flat(1.0)),
            Series({"__name__": "nv_inference_request_failure", **own, "reason": "BACKEND"}, flat(1.0)),
            Series({"__name__": "istio_requests_total", **mesh, "response_code": "200"}, flat(1.0)),
        ]
    )
    found = pod("p-0")
    found["metadata"]["labels"]["slipway.dev/engine"] = "triton"
    text = "\n".join(await lines_of(fake, found))
    names = "istio_requests_total (1), nv_inference_request_failure (2), nv_inference_request_success (1)"
    assert f"engine triton: {names}" in text
    assert "no histogram of latencies" in text
    buckets = Series({"__name__": "istio_request_duration_milliseconds_bucket", **mesh, "le": "100"}, flat(1.0))
    fake.series.append(buckets)
    text = "\n".join(await lines_of(fake, found))
    assert "istio_request_duration_milliseconds_bucket (1)" in text
    assert "no histogram of latencies" not in text


async def test_no_series_at_all_says_what_to_do() -> None:
    """keda #6141, llm-d #2310: everything green and nothing scales."""
    text = "\n".join(await lines_of(FakePrometheus(), "p-0"))
    assert "0 of 1 ready pods are in the metrics" in text
    assert "No series belongs to this object." in text


async def test_series_of_other_revisions_are_named_as_the_cause() -> None:
    """kserve #5701: a label that differs from the pods' breaks the join."""
    renamed = Series({**alive("p-0").labels, "revision": "sentiment-v1"}, flat(0.0))
    text = "\n".join(await lines_of(FakePrometheus([renamed]), "p-0"))
    assert "check the label revision" in text


async def test_a_prometheus_that_fails_is_told() -> None:
    text = "\n".join(await lines_of(FakePrometheus(status=500), "p-0"))
    assert "Prometheus: 127.0.0.1" in text


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"<html>", 200, "not Prometheus' JSON"),
        (b"{}", 200, "not of Prometheus' form"),
        (b"null", 200, "not of Prometheus' form"),
        (b'{"data": {"result": null}}', 200, "no list of series"),
        (b'{"data": {"result": [1, "2"]}}', 200, "no list of series"),
        (b'{"data": {"result": [{"metric": null, "values": []}]}}', 200, "no list of series"),
        (b"{}", 503, "503"),
    ],
)
async def test_what_is_no_prometheus_is_named_instead_of_matched(body: bytes, status: int, told: str) -> None:
    """A wrong address is the commonest reason for looking at this at all."""
    lines = await lines_of(FakePrometheus(body=body, status=status), "p-0")
    assert lines[1] == "Metrics"
    assert told in lines[2]
    assert len(lines) == 3
