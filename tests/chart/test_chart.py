"""The chart renders what Kubernetes accepts, and refuses values that it does not know."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests import published
from tests.chart.pod_security import violations
from tests.chart.rendering import CHART, EVERYTHING, MATRIX, deployment, helm, of_kind, rendered
from tests.resources.rendering import canary, raw_spec, render

VERSIONS = ("1.30", "1.33", "1.36")
FOREIGN = "monitoring.coreos.com/"
"""Kinds whose schema Kubernetes does not have."""
MESH = ("istio.io", "gateway.networking.k8s.io")
"""The same, of what the operator makes; tests/istio_wire and tests/integration hand these to their own definitions."""
SERVES_ITSELF = ("slipway", "compared", "by ", "guarded", "scaled")


def test_helm_lint_is_content() -> None:
    answer = helm("lint", "--strict", str(CHART))
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", MATRIX)
def test_every_object_is_valid(name: str, version: str) -> None:
    objects = rendered(MATRIX[name], f"{version}.0")
    assert objects
    for obj in objects:
        if not obj["apiVersion"].startswith(FOREIGN):
            published.validate(obj, version)
    names = [(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in objects]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", MATRIX)
def test_the_operators_pod_is_restricted(name: str) -> None:
    spec = deployment(MATRIX[name])["spec"]["template"]["spec"]
    assert list(violations(spec)) == []
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["automountServiceAccountToken"] is False


S3 = {"name": "v1", "uri": "s3://models/v1", "storageSecret": "s3"}
GPU = {"limits": {"nvidia.com/gpu": "1"}}
MODELS: Mapping[str, dict[str, Any]] = {
    "slipway": {},
    "slipway on GPUs": {"runtime": {"device": "cuda", "resources": GPU}},
    "slipway from a bucket": {"versions": [S3, {**S3, "name": "v2"}]},
    "slipway with goldens": {"versions": [{**S3, "goldens": {"configMap": "g"}}, {**S3, "name": "v2"}]},
    "triton": {"runtime": {"engine": "triton", "resources": GPU}},
    "triton from a bucket": {"runtime": {"engine": "triton"}, "versions": [S3, {**S3, "name": "v2"}]},
    "vllm": {"runtime": {"engine": "vllm", "resources": GPU}},
    "custom": {"runtime": {"engine": "custom", "image": "ours/server:1"}},
    "custom with a volume": {
        "runtime": {
            "engine": "custom",
            "image": "ours/server:1",
            "podTemplate": {"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}]}},
        }
    },
    "compared in the shadow": {"rollout": {"strategy": "Shadow", "shadow": {"percent": 10}}},
    "by the Gateway API": {"traffic": {"provider": "gateway-api"}},
    "guarded": {
        "traffic": {
            "auth": {"jwt": {"issuer": "https://i.example", "jwksUri": "https://i.example/keys"}},
            "resilience": {"rateLimit": {"requestsPerSecond": 10}},
        }
    },
    "scaled by Kubernetes": {"autoscaling": {"mode": "HPA", "maxReplicas": 4}},
}


@pytest.mark.parametrize("name", MODELS)
def test_model_pods_are_restricted(name: str) -> None:
    spec = raw_spec(**MODELS[name])
    pods = [obj["spec"]["template"]["spec"] for obj in render(spec, canary(spec)) if obj["kind"] == "Deployment"]
    assert len(pods) == 2
    assert [list(violations(pod)) for pod in pods] == [[], []]
    assert not any(pod["automountServiceAccountToken"] for pod in pods)
    containers = [one for pod in pods for one in (*pod.get("initContainers", ()), *pod["containers"])]
    assert len(containers) == (2 if name.startswith(SERVES_ITSELF) else 4), "the others have their models brought"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", MODELS)
def test_everything_of_a_model_is_valid(name: str, version: str) -> None:
    spec = raw_spec(**MODELS[name])
    native = [obj for obj in render(spec, canary(spec)) if not obj["apiVersion"].partition("/")[0].endswith(MESH)]
    assert {obj["kind"] for obj in native} >= {"Deployment", "Service", "PodDisruptionBudget", "ControllerRevision"}
    for obj in native:
        published.validate(obj, version)


@pytest.mark.parametrize(("replicas", "budgets"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_a_budget_keeps_one_of_several_operators(replicas: int, budgets: int) -> None:
    found = of_kind(rendered({"replicas": replicas}), "PodDisruptionBudget")
    assert [obj["spec"]["maxUnavailable"] for obj in found] == [1] * budgets
    spec = deployment({"replicas": replicas})["spec"]
    assert {"--lease-name=slipway", "--lease-namespace=slipway-system"} <= set(
        spec["template"]["spec"]["containers"][0]["args"]
    )
    assert all(obj["spec"]["selector"] == spec["selector"] for obj in found)


def test_what_is_not_restricted_is_found() -> None:
    spec = raw_spec(runtime={"podTemplate": {"spec": {"hostNetwork": True, "securityContext": {"runAsUser": 0}}}})
    pods = [obj["spec"]["template"]["spec"] for obj in render(spec, canary(spec)) if obj["kind"] == "Deployment"]
    assert all({"hostNetwork", "server: runAsUser=0"} <= set(violations(pod)) for pod in pods)


def test_the_schema_knows_every_value_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(value: Any, node: dict[str, Any], path: str) -> None:
        if "properties" in node and value != {}:
            assert node["additionalProperties"] is False, path
            # What only the schema has: Helm's own `global`, and the third part of a container's resources.
            assert set(node["properties"]) - {"global", "claims"} == set(value), path
            for name, inner in value.items():
                compare(inner, node["properties"][name], f"{path}.{name}")

    compare(values, schema, "values")


def test_optional_parts_are_off_by_default() -> None:
    kinds = {obj["kind"] for obj in rendered({})}
    assert kinds == {
        *("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Deployment"),
        *("Role", "RoleBinding", "ServiceAccount"),
    }
    everything = {obj["kind"] for obj in rendered(EVERYTHING)}
    assert everything - kinds == {
        *("ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "PodMonitor", "PrometheusRule"),
        *("Service", "ServiceMonitor"),
    }


def test_the_definition_is_kept_on_uninstall_unless_told_otherwise() -> None:
    [kept] = of_kind(rendered({}), "CustomResourceDefinition")
    assert kept["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    [gone] = of_kind(rendered(MATRIX["crd goes as well"]), "CustomResourceDefinition")
    assert "helm.sh/resource-policy" not in gone["metadata"].get("annotations", {})
    assert not of_kind(rendered(MATRIX["without crd"]), "CustomResourceDefinition")


def test_rendering_twice_gives_the_same() -> None:
    first, second = (helm("template", "slipway", str(CHART), "-f", "-", stdin="replicas: 2") for _ in range(2))
    assert first.stdout == second.stdout


def test_the_operator_is_told_what_the_values_say() -> None:
    arguments = deployment(MATRIX["namespaces"])["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--namespaces=nlp,vision" in arguments
    assert "--apis=istio,hpa" in arguments
    assert "--apis=hpa" in deployment(MATRIX["without istio"])["spec"]["template"]["spec"]["containers"][0]["args"]
    everything = deployment(EVERYTHING)["spec"]["template"]["spec"]["containers"][0]
    assert "--apis=istio,istio-policies,gateway-api,hpa,keda" in everything["args"]
    assert everything["image"] == "your-registry/slipway-operator@sha256:" + "a" * 64
    assert everything["args"][-1] == "--no-lease"


def test_the_arguments_are_flags_of_slipway_run() -> None:
    from slipway.cli import _parser

    for values in MATRIX.values():
        arguments = deployment(values)["spec"]["template"]["spec"]["containers"][0]["args"]
        assert _parser(["run"]).parse_args(arguments).command == "run"


def test_the_notes_say_what_is_missing_and_what_to_do_next() -> None:
    answer = helm("install", "slipway", str(CHART), "--dry-run=client", "-n", "slipway-system")
    assert answer.returncode == 0, answer.stderr
    notes = answer.stdout.partition("NOTES:")[2]
    assert "MISSING: prometheusUrl" in notes
    assert "MISSING: Istio's kinds" in notes
    assert "kind: ModelDeployment" in notes
    assert "MISSING: the Gateway API" not in notes
