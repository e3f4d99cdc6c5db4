"""Values as people give them: odd but valid ones are rendered as they are meant, others are refused by the schema."""

from typing import Any

import pytest
import yaml

from tests import published
from tests.chart.rendering import CHART, MATRIX, OnceEach, deployment, helm, of_kind, rendered

LABEL = "app.kubernetes.io/"
ODD: dict[str, dict[str, Any]] = {
    "words that YAML takes for others": {
        "nameOverride": "no",
        "fullnameOverride": "true",
        "clusterName": "1.0",
        "priorityClassName": "123",
        "serviceAccount": {"name": "314"},
        "watchNamespaces": ["123", "null"],
        "imagePullSecrets": [{"name": "42"}],
        "image": {"tag": "1.10"},
        "web": {"enabled": True, "expose": True, "hosts": ["1.5"]},
        "prometheusAccess": {"tokenSecret": {"name": "7", "key": "1"}, "caConfigMap": {"name": "on", "key": "off"}},
        "notifications": [{"name": "1", "type": "slack", "urlSecret": {"name": "2", "key": "3"}}],
        "podLabels": {"a": "1", "b": "true", "c": ""},
    },
    "labels that the chart has as well": {
        "podLabels": {f"{LABEL}part-of": "ml", f"{LABEL}version": "7"},
        "monitoring": {
            "operator": "ServiceMonitor",
            "models": True,
            "rules": True,
            "dashboard": True,
            "labels": {"grafana_dashboard": "yes", f"{LABEL}part-of": "ml"},
        },
    },
    "large numbers": {"runAsUser": 1000650000, "resyncSeconds": 86400, "terminationGracePeriodSeconds": 86400},
    "lists and maps that are null": dict.fromkeys(
        (
            *("affinity", "tolerations", "podLabels", "podAnnotations", "resources", "notifications", "extraArgs"),
            *("watchNamespaces", "extraEnv", "nodeSelector", "imagePullSecrets", "topologySpreadConstraints"),
        )
    ),
    "a registry with a port": {
        "image": {"repository": "registry.local:5000/team/slipway-operator"},
        "runtimeImage": "registry.local:5000/slipway-runtime:0.1.0@sha256:" + "b" * 64,
        "prometheusUrl": "http://[fd00::1]:9090/prometheus",
        "prometheusAccess": {"headers": {"X-Scope-OrgID": 'a"b: c # d'}},
    },
    "nodes with GPUs": {
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "resources": {"requests": {"cpu": 0.5, "memory": "1.5Gi"}, "limits": {"memory": 2147483648}},
        "extraEnv": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "monitoring": {"operator": "PodMonitor", "interval": "1m30s"},
    },
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values_are_rendered_as_they_are_meant(name: str) -> None:
    for obj in rendered(ODD[name]):
        if not obj["apiVersion"].startswith("monitoring.coreos.com/"):
            published.validate(obj, "1.36")


def test_words_stay_words() -> None:
    odd = ODD["words that YAML takes for others"]
    [account] = of_kind(rendered(odd), "ServiceAccount")
    assert account["metadata"]["name"] == "314"
    roles = {(obj["metadata"]["namespace"], obj["metadata"]["name"]) for obj in of_kind(rendered(odd), "Role")}
    assert roles == {("123", "true"), ("null", "true"), ("slipway-system", "true-leader")}
    assert deployment(odd)["metadata"]["labels"][f"{LABEL}name"] == "no"


@pytest.mark.parametrize(
    ("release", "prefix"),
    [("42", "slipway-42"), ("my.release", "my-release-slipway"), ("slipway.eu", "slipway-eu"), ("a" * 53, "a" * 52)],
)
def test_every_name_of_a_release_will_do(release: str, prefix: str) -> None:
    values = {"web": {"enabled": True, "expose": True}, "monitoring": {"operator": "ServiceMonitor", "dashboard": True}}
    arguments = ("template", release, str(CHART), "-n", "123", "--kube-version", "1.30.0", "-f", "-")
    answer = helm(*arguments, stdin=yaml.safe_dump({**values, "replicas": 2, "networkPolicy": {"enabled": True}}))
    assert answer.returncode == 0, answer.stderr
    objects = [document for document in yaml.load_all(answer.stdout, Loader=OnceEach) if document]
    for obj in objects:
        if not obj["apiVersion"].startswith("monitoring.coreos.com/"):
            published.validate(obj, "1.30")
    assert {obj["metadata"]["name"] for obj in of_kind(objects, "Service")} == {f"{prefix}-web", f"{prefix}-metrics"}
    assert {obj["metadata"].get("namespace", "123") for obj in objects} == {"123"}
    [pods] = [obj["spec"]["template"]["metadata"]["labels"] for obj in of_kind(objects, "Deployment")]
    assert pods[f"{LABEL}instance"] == release


def test_a_users_label_replaces_the_charts() -> None:
    odd = ODD["labels that the chart has as well"]
    spec = deployment(odd)["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert (labels[f"{LABEL}part-of"], labels[f"{LABEL}version"]) == ("ml", "7")
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    [dashboard] = of_kind(rendered(odd), "ConfigMap")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "yes"
    monitors = [obj["metadata"]["labels"] for kind in ("PodMonitor", "ServiceMonitor", "PrometheusRule")
                for obj in of_kind(rendered(odd), kind)]  # fmt: skip
    assert [found[f"{LABEL}part-of"] for found in monitors] == ["ml"] * 3


def test_large_numbers_are_written_out() -> None:
    answer = helm("template", "slipway", str(CHART), "-f", "-", stdin=yaml.safe_dump(ODD["large numbers"]))
    assert answer.stdout.count("runAsUser: 1000650000\n") == 1
    assert "terminationGracePeriodSeconds: 86400\n" in answer.stdout


def test_two_receivers_of_one_name_are_refused() -> None:
    both = [{"name": "a", "type": "slack", "url": url} for url in ("http://one", "http://two")]
    answer = helm("template", "slipway", str(CHART), "-f", "-", stdin=yaml.safe_dump({"notifications": both}))
    assert answer.returncode != 0
    assert "two of the notifications are named a" in answer.stderr


@pytest.mark.parametrize("name", MATRIX)
def test_lint_is_content_with_every_set_of_values(name: str) -> None:
    answer = helm("lint", "--strict", str(CHART), "-f", "-", stdin=yaml.safe_dump(dict(MATRIX[name])))
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"fullnameOverride": "Models"}, "fullnameOverride"),
        ({"nameOverride": "1st"}, "nameOverride"),
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
        ({"podLabels": {f"{LABEL}name": "mine"}}, f"{LABEL}name"),
        ({"podLabels": {"a b": "c"}}, "a b"),
        ({"podLabels": {"a": "c d"}}, "/podLabels/a"),
        ({"podAnnotations": {"a b": "c"}}, "a b"),
        ({"nodeSelector": {"gpu": True}}, "/nodeSelector/gpu"),
        ({"monitoring": {"labels": {"a": "b!"}}}, "/monitoring/labels/a"),
        ({"monitoring": {"interval": "often"}}, "/monitoring/interval"),
        ({"prometheusUrl": "http://prometheus:"}, "/prometheusUrl"),
        ({"prometheusUrl": "http://prometheus:9090?a=b"}, "/prometheusUrl"),
        ({"image": {"repository": "slipway-operator:0.1.0"}}, "/image/repository"),
        ({"image": {"repository": "Slipway Operator"}}, "/image/repository"),
        ({"runtimeImage": "slipway-runtime:"}, "/runtimeImage"),
        ({"clusterDomain": "cluster..local"}, "/clusterDomain"),
        ({"serviceAccount": {"name": "a..b"}}, "/serviceAccount/name"),
        ({"imagePullSecrets": ["pull"]}, "/imagePullSecrets/0"),
        ({"imagePullSecrets": [{"name": "A B"}]}, "/imagePullSecrets/0/name"),
        ({"priorityClassName": "a: b"}, "/priorityClassName"),
        ({"istio": {"principal": "slipway"}}, "/istio/principal"),
        ({"istio": None}, "value istio.enabled must not be null"),
        ({"workers": None}, "value workers must not be null"),
        ({"log": {"level": None}}, "value log.level must not be null"),
        ({"prometheusAccess": None}, "value prometheusAccess.caConfigMap.key must not be null"),
        ({"extraArgs": [""]}, "/extraArgs/0"),
        ({"extraEnv": [{"name": "SLIPWAY_IDENTITY", "value": "x"}]}, "/extraEnv/0/name"),
        ({"extraEnv": [{"name": "A", "value": 1}]}, "/extraEnv/0/value"),
        ({"extraEnv": [{"name": "A", "vale": "1"}]}, "vale"),
        ({"resources": {"limits": {"memory": "lots"}}}, "/resources/limits/memory"),
        ({"tolerations": [{"key": "a", "operator": "Like"}]}, "/tolerations/0/operator"),
        ({"tolerations": [{"keys": "a"}]}, "keys"),
        ({"affinity": {"nodes": {}}}, "nodes"),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "/topologySpreadConstraints/0"),
        ({"networkPolicy": {"scrapers": [{"app": "prometheus"}]}}, "/networkPolicy/scrapers/0"),
        ({"networkPolicy": {"modelPorts": []}}, "/networkPolicy/modelPorts"),
        ({"resyncSeconds": 1000000}, "/resyncSeconds"),
        (
            {"notifications": [{"name": "a", "type": "slack", "urlSecret": {"name": "X", "key": "y"}}]},
            "/urlSecret/name",
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any], where: str) -> None:
    answer = helm("template", "slipway", str(CHART), "-f", "-", stdin=yaml.safe_dump(values))
    assert answer.returncode != 0
    assert where in answer.stderr
