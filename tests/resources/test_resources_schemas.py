"""Every rendered object is one that Kubernetes and Istio accept as it stands."""

from typing import Any

import pytest
from cloudcoil.models.istio.networking import v1 as networking
from cloudcoil.models.istio.networking import v1alpha3
from cloudcoil.models.istio.security import v1 as security

from tests import published
from tests.resources.rendering import canary, raw_spec, render

ISTIO = {
    "networking.istio.io/v1": networking,
    "networking.istio.io/v1alpha3": v1alpha3,
    "security.istio.io/v1": security,
}

FULL = {
    "runtime": {
        "image": "inference:1.2",
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"nvidia.com/gpu": 1}},
        "env": [
            {"name": "LEVEL", "value": "debug"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
        ],
        "args": ["--verbose", "yes"],
        "serviceAccountName": "models",
        "terminationGracePeriod": "90s",
        "podTemplate": {
            "metadata": {"annotations": {"team": "nlp"}},
            "spec": {
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "containers": [{"name": "log-shipper", "image": "shipper:1"}],
                "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
            },
        },
    },
    "traffic": {
        "hosts": ["sentiment.example.com"],
        "gateways": ["istio-ingress/public"],
        "resilience": {"timeout": "1h30m", "retries": {"attempts": 2, "perTryTimeout": "1.5s"}},
    },
}


def with_goldens() -> dict[str, Any]:
    spec = raw_spec(**FULL)
    spec["versions"][1] |= {
        "goldens": {"configMap": "sentiment-goldens"},
        "inputs": [{"name": "text_ids", "datatype": "INT64", "shape": [-1, 128]}],
        "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, 2]}],
        "format": "torch-export",
    }
    return spec


@pytest.mark.parametrize("spec", [raw_spec(), with_goldens()], ids=["smallest", "every field"])
def test_objects_are_valid(spec: dict[str, Any]) -> None:
    objects = render(spec, canary(spec))
    assert [item["kind"] for item in objects] == [
        "ControllerRevision", "ControllerRevision", "Service",
        "Deployment", "PodDisruptionBudget", "Deployment", "PodDisruptionBudget",
        "DestinationRule", "VirtualService",
    ]  # fmt: skip
    for item in objects:
        if item["apiVersion"] in ISTIO:
            assert_istio_knows_every_field(item)
        else:
            published.validate(item, "1.36")


def assert_istio_knows_every_field(item: dict[str, Any]) -> None:
    model = getattr(ISTIO[item["apiVersion"]], item["kind"]).model_validate(item)
    written = model.model_dump(by_alias=True, exclude_unset=True, mode="json")
    assert written["spec"] == item["spec"]


def test_istio_model_drops_what_it_does_not_know() -> None:
    """The comparison above would notice a misspelt field."""
    spec = raw_spec()
    broken = dict(render(spec, canary(spec))[-1])
    broken["spec"] = broken["spec"] | {"gatewayz": []}
    with pytest.raises(AssertionError):
        assert_istio_knows_every_field(broken)
