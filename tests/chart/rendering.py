"""The chart, rendered by the real helm."""

import functools
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.sandbox.binaries import helm_path

CHART = Path(__file__).parents[2] / "charts" / "slipway"

EVERYTHING: Mapping[str, Any] = {
    "replicas": 3,
    "prometheusUrl": "http://prometheus.monitoring.svc:9090",
    "istio": {"policies": True, "principal": "cluster.local/ns/slipway-system/sa/slipway"},
    "gatewayApi": {"enabled": True},
    "keda": {"enabled": True},
    "monitoring": {
        "operator": "ServiceMonitor",
        "models": True,
        "rules": True,
        "dashboard": True,
        "labels": {"release": "kube-prometheus-stack"},
    },
    "networkPolicy": {"enabled": True, "scrapers": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]},
    "image": {"repository": "your-registry/slipway-operator", "digest": "sha256:" + "a" * 64},
    "imagePullSecrets": [{"name": "pull"}],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraArgs": ["--no-lease"],
    "podLabels": {"team": "ml"},
    "podAnnotations": {"sidecar.istio.io/inject": "false"},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "slipway"}},
        }
    ],
    "serviceAccount": {"annotations": {"example.com/role": "slipway"}},
}

MATRIX: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "namespaces": {"watchNamespaces": ["nlp", "vision"], "monitoring": {"models": True, "operator": "PodMonitor"}},
    "without istio": {"istio": {"enabled": False}},
    "gateway api only": {
        "istio": {"enabled": False},
        "gatewayApi": {"enabled": True},
        "hpa": {"enabled": False},
    },
    "without crd": {"crds": {"install": False}},
    "crd goes as well": {"crds": {"keep": False}},
    "rights from elsewhere": {"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "ours"}},
    "no aggregation": {"rbac": {"aggregate": False}},
    "openshift": {"runAsUser": None},
    "page for port-forwards": {"web": {"enabled": True}},
    "page and notifications": {
        "web": {"enabled": True, "expose": True, "hosts": ["slipway.example"]},
        "clusterName": "berlin",
        "notifications": [
            {"name": "ops", "type": "slack", "urlSecret": {"name": "chat", "key": "url"}, "events": ["RolledBack"]},
            {
                "name": "pipeline",
                "type": "webhook",
                "url": "https://events.ci.svc:8443/slipway",
                "tokenSecret": {"name": "ci", "key": "token"},
                "namespaces": ["nlp"],
            },
        ],
        "networkPolicy": {
            "enabled": True,
            "readers": [{"podSelector": {"matchLabels": {"app": "oauth2-proxy"}}}],
            "receiverPorts": [8443],
        },
    },
    "two in some namespaces": {
        "replicas": 2,
        "watchNamespaces": ["nlp"],
        "gatewayApi": {"enabled": True},
        "keda": {"enabled": True},
        "web": {"enabled": True, "expose": True},
        "networkPolicy": {"enabled": True},
        "monitoring": {"operator": "PodMonitor", "rules": True},
    },
    "policies for nobody in particular": {"istio": {"policies": True}, "replicas": 0},
    "another name": {"fullnameOverride": "models-operator", "affinity": {"nodeAffinity": {}}},
}


def helm(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run helm; the caller looks at its exit status."""
    return subprocess.run([str(helm_path()), *arguments], input=stdin, capture_output=True, text=True, check=False)


FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The chart brings a large definition along, which takes a second in pure Python."""


class OnceEach(FAST):  # type: ignore[misc, valid-type]
    """Refuses a map with a key that is there twice, as the API server does; PyYAML takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        assert not twice, f"{twice} more than once{node.start_mark}"
        return dict(super().construct_mapping(node, deep))


@functools.cache
def _rendered(values: str, kube_version: str) -> tuple[dict[str, Any], ...]:
    answer = helm(
        *("template", "slipway", str(CHART), "-n", "slipway-system", "--kube-version", kube_version, "-f", "-"),
        stdin=values,
    )
    assert answer.returncode == 0, answer.stderr
    return tuple(document for document in yaml.load_all(answer.stdout, Loader=OnceEach) if document)


def rendered(values: Mapping[str, Any], kube_version: str = "1.36.0") -> list[dict[str, Any]]:
    """The objects of the chart with these values."""
    return list(_rendered(yaml.safe_dump(dict(values)), kube_version))


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [obj for obj in objects if obj["kind"] == kind]


def deployment(values: Mapping[str, Any]) -> dict[str, Any]:
    [found] = of_kind(rendered(values), "Deployment")
    return found
