"""The plain manifests are the chart's, and kustomize builds what the docs promise."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.deploy.render import CHECKED_IN, main, manifests
from e2e.sandbox.binaries import kubectl_path
from tests import published
from tests.chart.pod_security import violations
from tests.chart.rendering import FAST

DEPLOY = Path(__file__).parents[2] / "charts" / "deploy"


def kustomized(folder: str) -> list[dict[str, Any]]:
    command = [str(kubectl_path()), "kustomize", str(DEPLOY / folder)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return [document for document in yaml.load_all(answer.stdout, Loader=FAST) if document]


def operator_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    [found] = [obj for obj in objects if obj["kind"] == "Deployment"]
    return found


def test_the_manifests_are_the_charts() -> None:
    assert CHECKED_IN.read_text() == manifests(), "out of date: run `make manifests`"


@pytest.mark.parametrize("folder", ["manifests", "kustomize/production"])
def test_a_kustomization_builds_valid_objects(folder: str) -> None:
    objects = kustomized(folder)
    for version in ("1.30", "1.36"):
        for obj in objects:
            published.validate(obj, version)
    kinds = [obj["kind"] for obj in objects]
    assert kinds.count("CustomResourceDefinition") == 1
    assert "Helm" not in {obj["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by") for obj in objects}
    assert list(violations(operator_of(objects)["spec"]["template"]["spec"])) == []


def test_the_example_adds_its_components() -> None:
    objects = kustomized("kustomize/production")
    spec = operator_of(objects)["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert spec["replicas"] == 2
    assert container["image"] == "your-registry/slipway-operator:0.1.0"
    assert {"name": "SLIPWAY_PROMETHEUS_URL", "value": "http://prometheus-operated.monitoring.svc:9090"} in container[
        "env"
    ]
    assert not any(word.startswith("--prometheus-url") for word in container["args"]), "a flag would win"
    [budget] = [obj for obj in objects if obj["kind"] == "PodDisruptionBudget"]
    labels = spec["template"]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_values_that_the_chart_refuses_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("replica: 2\n")
    assert main([str(values)]) == 1
    assert "replica" in capsys.readouterr().err
