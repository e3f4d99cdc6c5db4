"""The chart renders what Kubernetes accepts, and refuses values that it does not know."""

import json
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.chart.pod_security import violations
from tests.chart.rendering import CHART, EVERYTHING, MATRIX, deployment, helm, of_kind, rendered
from tests.resources.rendering import canary, raw_spec, render

VERSIONS = ("1.30", "1.33", "1.36")
FOREIGN = "monitoring.coreos.com/"
"""Kinds whose schema Kubernetes does not have."""


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
            kubernetes_validate.validate(obj, version, strict=True)
    names = [(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in objects]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", MATRIX)
def test_the_operators_pod_is_restricted(name: str) -> None:
    spec = deployment(MATRIX[name])["spec"]["template"]["spec"]
    assert list(violations(spec)) == []
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["automountServiceAccountToken"] is False


def test_model_pods_are_restricted() -> None:
    spec = raw_spec()
    objects = render(spec, canary(spec))
    pods = [obj["spec"]["template"]["spec"] for obj in objects if obj["kind"] == "Deployment"]
    assert pods
    assert [list(violations(pod)) for pod in pods] == [[] for _ in pods]


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"prometheus": {"url": "http://p"}}, "prometheus"),
        ({"prometheusUrl": "prometheus:9090"}, "/prometheusUrl"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"watchNamespaces": "nlp"}, "/watchNamespaces"),
        ({"watchNamespaces": ["nlp", "nlp"]}, "/watchNamespaces"),
        ({"replicas": -1}, "/replicas"),
        ({"runAsUser": 0}, "/runAsUser"),
        ({"monitoring": {"operator": "Both"}}, "/monitoring/operator"),
        ({"istio": {"enable": True}}, "enable"),
        ({"log": {"level": "loud"}}, "/log/level"),
        ({"web": {"hosts": ["http://slipway.example"]}}, "/web/hosts/0"),
        ({"notifications": [{"name": "a", "type": "slack"}]}, "/notifications/0"),
        ({"notifications": [{"name": "a", "type": "mail", "url": "http://a/"}]}, "/notifications/0/type"),
        ({"notifications": [{"name": "../a", "type": "slack", "url": "http://a/"}]}, "/notifications/0/name"),
        ({"notifications": [{"name": "a", "type": "slack", "url": "file:///a"}]}, "/notifications/0/url"),
        ({"notifications": [{"name": "a", "type": "slack", "url": "http://a/", "events": ["x"]}]}, "/events/0"),
    ],
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any], where: str) -> None:
    answer = helm("template", "slipway", str(CHART), "-f", "-", stdin=yaml.safe_dump(values))
    assert answer.returncode != 0
    assert where in answer.stderr


def test_the_schema_knows_every_value_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(value: Any, node: dict[str, Any], path: str) -> None:
        if "properties" in node:
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
