"""One object that keeps each rule of the API and one that breaks it, beside the smallest valid object."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

V1 = {"name": "v1", "uri": "file:///models/v1.pt"}
V2 = {"name": "v2", "uri": "pvc://models/sentiment/v2"}
OWN_SERVER = {"engine": "custom", "image": "ours/server:1"}


def model_deployment(name: str = "sentiment", versions: list[Object] | None = None, **spec: Any) -> Object:
    """An object with one version unless told otherwise."""
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"versions": deepcopy(versions or [V1]), **spec},
    }


def with_two(**spec: Any) -> Object:
    """An object with versions v1 and v2 that serves v1."""
    return model_deployment(versions=[V1, V2], **({"serve": "v1"} | spec))


def with_check(**check: Any) -> Object:
    """An object with one check of its analysis."""
    return model_deployment(rollout={"analysis": {"checks": [{"name": "c", **check}]}})


def with_shadow(percent: int = 0, **check: Any) -> Object:
    """An object that compares answers to repeated requests."""
    entry = {"name": "c", "metric": "shadowAgreement", **check}
    return model_deployment(rollout={"shadow": {"percent": percent}, "analysis": {"checks": [entry]}})


@dataclass(frozen=True)
class RuleCase:
    """Examples for one rule."""

    rule: str
    kept: Object
    broken: Object
    field: str
    """The field that the operator's validation blames."""


RULE_CASES = (
    RuleCase("object-name", model_deployment("a-1"), model_deployment("1a"), "metadata.name"),
    RuleCase("object-name", model_deployment("a"), model_deployment("a.b"), "metadata.name"),
    RuleCase("revision-name-length", model_deployment("a" * 51), model_deployment("a" * 52), "spec.versions[0].name"),
    RuleCase("serve-required", with_two(), model_deployment(versions=[V1, V2]), "spec.serve"),
    RuleCase("serve-required", model_deployment(serve=""), with_two(serve=""), "spec.serve"),
    RuleCase("serve-exists", with_two(serve="v2"), with_two(serve="v3"), "spec.serve"),
    RuleCase(
        "approved-version-exists",
        with_two(rollout={"promotion": "Manual", "approvedVersion": "v2"}),
        with_two(rollout={"promotion": "Manual", "approvedVersion": "v3"}),
        "spec.rollout.approvedVersion",
    ),
    RuleCase(
        "experiment-versions-exist",
        with_two(traffic={"experiments": [{"version": "v2", "weight": 5}]}),
        with_two(traffic={"experiments": [{"version": "v2", "weight": 5}, {"version": "v3"}]}),
        "spec.traffic.experiments[1].version",
    ),
    RuleCase(
        "experiment-not-served",
        with_two(traffic={"experiments": [{"version": "v2", "weight": 5}]}),
        with_two(serve="v2", traffic={"experiments": [{"version": "v2", "weight": 5}]}),
        "spec.traffic.experiments[0].version",
    ),
    RuleCase(
        "shadow-percent",
        model_deployment(rollout={"strategy": "Shadow", "shadow": {"percent": 1}}),
        model_deployment(rollout={"strategy": "Shadow"}),
        "spec.rollout.shadow.percent",
    ),
    RuleCase(
        "mirror-version-exists",
        with_two(serve="v2", traffic={"mirror": {"version": "v2", "percent": 5}}),
        with_two(traffic={"mirror": {"version": "v3", "percent": 5}}),
        "spec.traffic.mirror.version",
    ),
    RuleCase(
        "none-cannot-split",
        model_deployment(traffic={"provider": "none"}, rollout={"strategy": "BlueGreen"}),
        model_deployment(traffic={"provider": "none"}),
        "spec.rollout.strategy",
    ),
    RuleCase(
        "signature-source",
        model_deployment(versions=[{**V1, "signature": {"publicKey": {"configMap": "k"}, "value": "AAAA"}}]),
        model_deployment(versions=[{**V1, "signature": {"publicKey": {"configMap": "k"}}}]),
        "spec.versions[0].signature",
    ),
    RuleCase(
        "signature-source",
        model_deployment(versions=[{**V1, "signature": {"publicKey": {"configMap": "k"}, "uri": "s3://a/b"}}]),
        model_deployment(
            versions=[{**V1, "signature": {"publicKey": {"configMap": "k"}, "uri": "s3://a/b", "value": "AAAA"}}]
        ),
        "spec.versions[0].signature",
    ),
    RuleCase(
        "uri-required",
        model_deployment(versions=[{"name": "v1"}], runtime=OWN_SERVER),
        model_deployment(versions=[{"name": "v1"}]),
        "spec.versions[0].uri",
    ),
    RuleCase(
        "uri-required",
        model_deployment(versions=[V1], runtime={"engine": "triton"}),
        model_deployment(versions=[{"name": "v1", "uri": ""}], runtime={"engine": "triton"}),
        "spec.versions[0].uri",
    ),
    RuleCase(
        "artefact-to-check",
        model_deployment(versions=[{**V1, "sha256": "ab" * 32, "storageSecret": "s3"}], runtime=OWN_SERVER),
        model_deployment(versions=[{"name": "v1", "sha256": "ab" * 32}], runtime=OWN_SERVER),
        "spec.versions[0]",
    ),
    RuleCase(
        "artefact-to-check",
        model_deployment(versions=[{"name": "v1", "storageSecret": "", "sha256": ""}], runtime=OWN_SERVER),
        model_deployment(versions=[{"name": "v1", "storageSecret": "s3"}], runtime=OWN_SERVER),
        "spec.versions[0]",
    ),
    RuleCase(
        "uri-shape",
        model_deployment(versions=[V2]),
        model_deployment(versions=[{"name": "v1", "uri": "pvc://models"}]),
        "spec.versions[0].uri",
    ),
    RuleCase(
        "uri-shape",
        model_deployment(versions=[V1]),
        model_deployment(versions=[{"name": "v1", "uri": "file://models/v1"}]),
        "spec.versions[0].uri",
    ),
    RuleCase(
        "host-shape",
        model_deployment(traffic={"hosts": ["a.example.com", "*.example.com", "short"]}),
        model_deployment(traffic={"hosts": ["a.example.com", "a_b.example.com"]}),
        "spec.traffic.hosts[1]",
    ),
    RuleCase(
        "host-shape",
        model_deployment(traffic={"hosts": []}),
        model_deployment(traffic={"hosts": ["*"]}),
        "spec.traffic.hosts[0]",
    ),
    RuleCase(
        "gateway-shape",
        model_deployment(traffic={"gateways": ["istio-ingress/public", "local"]}),
        model_deployment(traffic={"gateways": ["a/b/c"]}),
        "spec.traffic.gateways[0]",
    ),
    RuleCase(
        "weights-ascending",
        model_deployment(rollout={"steps": [{"weight": 1}, {"weight": 50}, {"weight": 100}]}),
        model_deployment(rollout={"steps": [{"weight": 5}, {"weight": 5}]}),
        "spec.rollout.steps[1].weight",
    ),
    RuleCase(
        "weights-ascending",
        model_deployment(rollout={"steps": [{"weight": weight} for weight in range(1, 21)]}),
        model_deployment(rollout={"steps": [{"weight": weight} for weight in [*range(1, 20), 1]]}),
        "spec.rollout.steps[19].weight",
    ),
    RuleCase(
        "check-metric-or-query",
        with_check(metric="errorRate"),
        with_check(metric="errorRate", query="up", min="1"),
        "spec.rollout.analysis.checks[0]",
    ),
    RuleCase(
        "check-metric-or-query",
        with_check(metric="errorRate", query=""),
        with_check(),
        "spec.rollout.analysis.checks[0]",
    ),
    RuleCase(
        "latency-threshold",
        with_check(metric="latency", threshold="300ms"),
        with_check(metric="latency"),
        "spec.rollout.analysis.checks[0].threshold",
    ),
    RuleCase(
        "timeout-positive",
        model_deployment(runtime={"limits": {"timeout": "1ms"}}),
        model_deployment(runtime={"limits": {"timeout": "0s"}}),
        "spec.runtime.limits.timeout",
    ),
    RuleCase(
        "version-timeout-positive",
        model_deployment(versions=[{**V1, "runtime": {"limits": {"timeout": "0.5s"}}}]),
        model_deployment(versions=[{**V1, "runtime": {"limits": {"timeout": "0m0s"}}}]),
        "spec.versions[0].runtime.limits.timeout",
    ),
    RuleCase(
        "request-bytes-positive",
        model_deployment(runtime={"limits": {"maxRequestBytes": 1}}),
        model_deployment(runtime={"limits": {"maxRequestBytes": 0}}),
        "spec.runtime.limits.maxRequestBytes",
    ),
    RuleCase(
        "version-request-bytes-positive",
        model_deployment(versions=[{**V1, "runtime": {"limits": {"maxRequestBytes": "0.5Mi"}}}]),
        model_deployment(versions=[{**V1, "runtime": {"limits": {"maxRequestBytes": "0Mi"}}}]),
        "spec.versions[0].runtime.limits.maxRequestBytes",
    ),
    RuleCase(
        "jwt-issuer",
        model_deployment(traffic={"auth": {"jwt": {"issuer": "me", "jwksUri": "https://me/keys"}}}),
        model_deployment(traffic={"auth": {"jwt": {"issuer": "", "jwksUri": "https://me/keys"}}}),
        "spec.traffic.auth.jwt.issuer",
    ),
    RuleCase(
        "jwt-issuer",
        model_deployment(traffic={"auth": {"jwt": {"issuer": "", "jwksUri": "", "audiences": []}}}),
        model_deployment(traffic={"auth": {"jwt": {"audiences": ["a"]}}}),
        "spec.traffic.auth.jwt.issuer",
    ),
    RuleCase(
        "progress-deadline-positive",
        model_deployment(rollout={"progressDeadline": "10s"}),
        model_deployment(rollout={"progressDeadline": "0s"}),
        "spec.rollout.progressDeadline",
    ),
    RuleCase(
        "threshold-positive",
        with_check(metric="latency", threshold="1ms"),
        with_check(metric="latency", threshold="0ms"),
        "spec.rollout.analysis.checks[0].threshold",
    ),
    RuleCase(
        "quantile-range",
        with_check(metric="errorRate", quantile="0.999"),
        with_check(metric="errorRate", quantile="99"),
        "spec.rollout.analysis.checks[0].quantile",
    ),
    RuleCase(
        "max-value-range",
        with_check(metric="errorRate", maxValue="1e-3"),
        with_check(metric="errorRate", maxValue="0"),
        "spec.rollout.analysis.checks[0].maxValue",
    ),
    RuleCase(
        "min-value-range",
        with_shadow(percent=5, minValue="0.99"),
        with_shadow(percent=5, minValue="1"),
        "spec.rollout.analysis.checks[0].minValue",
    ),
    RuleCase(
        "query-bounds",
        with_check(query="up", min="1"),
        with_check(query="up"),
        "spec.rollout.analysis.checks[0]",
    ),
    RuleCase(
        "query-bounds-order",
        with_check(query="up", min="-1.5", max="1"),
        with_check(query="up", min="2", max="1"),
        "spec.rollout.analysis.checks[0].min",
    ),
    RuleCase("shadow-share", with_shadow(percent=5), with_shadow(), "spec.rollout.shadow.percent"),
    RuleCase(
        "interval-positive",
        model_deployment(rollout={"analysis": {"interval": "10s"}}),
        model_deployment(rollout={"analysis": {"interval": "0s"}}),
        "spec.rollout.analysis.interval",
    ),
    RuleCase(
        "replica-bounds",
        model_deployment(autoscaling={"minReplicas": 8}),
        model_deployment(autoscaling={"minReplicas": 9}),
        "spec.autoscaling.minReplicas",
    ),
    RuleCase(
        "fallback-bound",
        model_deployment(autoscaling={"fallbackReplicas": 8}),
        model_deployment(autoscaling={"fallbackReplicas": 3, "maxReplicas": 2}),
        "spec.autoscaling.fallbackReplicas",
    ),
    RuleCase(
        "qps-band",
        model_deployment(autoscaling={"qps": {"upper": 41}}),
        model_deployment(autoscaling={"qps": {"upper": 40}}),
        "spec.autoscaling.qps.lower",
    ),
    RuleCase(
        "gpu-band",
        model_deployment(autoscaling={"gpuUtilization": {"lower": 60}}),
        model_deployment(autoscaling={"gpuUtilization": {"lower": 70.5}}),
        "spec.autoscaling.gpuUtilization.lower",
    ),
)
