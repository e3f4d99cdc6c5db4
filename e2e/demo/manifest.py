"""The objects that the demo applies, as a user would write them."""

import json
from collections.abc import Mapping
from typing import Any

from e2e.demo.models import Artefact

__all__ = ["CLAIM", "MODEL", "NAMESPACE", "claim", "goldens", "model_deployment"]

MODEL = "digits"
NAMESPACE = "demo"
CLAIM = "models"
"""The PersistentVolumeClaim that holds the artefacts."""


def goldens(artefact: Artefact) -> dict[str, Any]:
    """A ConfigMap with requests of known answers."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"digits-{artefact.version}-goldens", "namespace": NAMESPACE},
        "data": {"goldens.json": json.dumps(json.loads(artefact.goldens.read_text()))},
    }


def claim() -> dict[str, Any]:
    """A claim for the artefacts; in the sandbox it is a folder."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": NAMESPACE},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def model_deployment(artefacts: Mapping[str, Artefact], live: tuple[str, ...], serve: str) -> dict[str, Any]:
    """The ModelDeployment with the versions named, serving one of them.

    Holds and windows are seconds instead of minutes, so that a rollout fits into a demo; the tests behind the verdict
    and their error rate are those of production.
    """
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": MODEL, "namespace": NAMESPACE},
        "spec": {
            "versions": [_version(artefacts[name]) for name in live],
            "serve": serve,
            "runtime": {
                "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "2Gi"}, "requests": {"cpu": "100m"}},
                "terminationGracePeriod": "20s",
            },
            "traffic": {"settle": "1s"},
            "rollout": {
                "steps": [
                    {"weight": 5, "hold": "10s"},
                    {"weight": 25, "hold": "10s"},
                    {"weight": 50, "hold": "10s"},
                ],
                "analysis": {
                    "interval": "2s",
                    "checks": [
                        {"name": "errors", "metric": "errorRate", "maxRatio": 1.5, "maxValue": "0.02"},
                        {
                            "name": "latency",
                            "metric": "latency",
                            "threshold": "500ms",
                            "quantile": "0.98",
                            "maxRatio": 1.5,
                        },
                    ],
                },
                "keepPrevious": "15s",
                "progressDeadline": "2m",
            },
            "autoscaling": {
                "minReplicas": 1,
                "maxReplicas": 4,
                "qps": {"target": 40},
                "cooldown": "20s",
                "stabilizationWindow": "20s",
            },
        },
    }


def _version(artefact: Artefact) -> dict[str, Any]:
    return {
        "name": artefact.version,
        "uri": f"pvc://{CLAIM}/{artefact.path.name}",
        "sha256": artefact.sha256,
        "inputs": [{"name": "pixels", "datatype": "FP32", "shape": [-1, 64]}],
        "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, 10]}],
        "goldens": {"configMap": f"digits-{artefact.version}-goldens"},
    }
