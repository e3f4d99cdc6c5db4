from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from slipway.api.reference import REFERENCE_PATH, reference_markdown
from slipway.api.rules import MAX_STEPS, RULES
from slipway.api.schema import CRD_PATH, crd, crd_yaml, open_api_schema, properties
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus

from tests import published

ROOT = Path(__file__).parents[2]
SCHEMA = open_api_schema()
FIELDS = {path: field for path, field, _ in properties(SCHEMA)}
HINT = "run `python -m slipway.api.schema`"


def nodes(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from nodes(below, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")


def test_the_checked_in_crd_is_current_and_small() -> None:
    text = (ROOT / CRD_PATH).read_text()
    assert text == crd_yaml(), HINT
    assert len(text.encode()) < 200_000
    assert yaml.safe_load(text) == crd()


def test_the_reference_is_current() -> None:
    assert (ROOT / REFERENCE_PATH).read_text() == reference_markdown(), HINT


def test_every_field_has_a_description() -> None:
    bare = [path for path, field in FIELDS.items() if not field.get("description") and path != "metadata"]
    assert bare == []


def test_the_schema_is_structural() -> None:
    allowed_without_type = {"x-kubernetes-int-or-string"}
    for path, node in nodes(SCHEMA):
        assert "type" in node or allowed_without_type & set(node), path
        assert not {"title", "$ref", "$defs", "allOf", "oneOf", "nullable", "additionalProperties"} & set(node), path


def test_strings_and_lists_are_bounded() -> None:
    for path, node in nodes(SCHEMA):
        if node.get("type") == "string" and "enum" not in node and path not in {".apiVersion", ".kind"}:
            assert "maxLength" in node, path
        if node.get("type") == "array":
            assert "maxItems" in node, path
            assert node["x-kubernetes-list-type"] in {"map", "set", "atomic"}, path


def test_keys_of_list_maps_are_required() -> None:
    for path, node in nodes(SCHEMA):
        for key in node.get("x-kubernetes-list-map-keys", ()):
            assert key in node["items"]["required"], path


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("spec.versions", ["name"]),
        ("spec.rollout.analysis.checks", ["name"]),
        ("status.versions", ["revision"]),
        ("status.conditions", ["type"]),
        ("status.analysis", ["name"]),
    ],
)
def test_lists_are_maps(path: str, keys: list[str]) -> None:
    assert FIELDS[path]["x-kubernetes-list-map-keys"] == keys


def test_steps_are_atomic() -> None:
    assert FIELDS["spec.rollout.steps"]["x-kubernetes-list-type"] == "atomic"
    assert FIELDS["spec.rollout.steps"]["maxItems"] == MAX_STEPS


def test_defaults_are_those_of_the_types_and_never_below_versions_and_runtime() -> None:
    defaults = {path: field["default"] for path, field in FIELDS.items() if "default" in field}
    assert defaults["spec.replicas"] == 1
    assert defaults["spec.suspend"] is False
    assert defaults["spec.autoscaling.maxReplicas"] == 8
    assert defaults["spec.rollout.analysis.interval"] == "30s"
    assert defaults["spec.rollout.steps[].hold"] == "5m"
    assert not [path for path in defaults if path.startswith(("spec.versions", "spec.runtime", "status"))]


def test_defaults_told_in_words_where_there_are_none() -> None:
    assert FIELDS["spec.runtime.batching.maxSize"]["description"].endswith("Default: 32.")
    assert FIELDS["spec.runtime.batching.adaptive"]["description"].endswith("Default: true.")
    assert "Default" not in FIELDS["spec.versions[].runtime.batching.maxSize"]["description"]


def test_open_parts_are_kept_as_they_are() -> None:
    for path in (
        "spec.runtime.podTemplate",
        "spec.runtime.resources",
        "spec.runtime.env[].valueFrom",
        "spec.versions[].runtime.podTemplate",
    ):
        assert FIELDS[path]["x-kubernetes-preserve-unknown-fields"] is True
    assert FIELDS["spec.traffic.experiments[].match"]["items"]["x-kubernetes-preserve-unknown-fields"] is True


def test_what_is_not_supported_yet_says_so() -> None:
    assert "Not supported yet" in FIELDS["spec.runtime.pool"]["description"]


def test_names_columns_and_subresources() -> None:
    spec = crd()["spec"]
    [version] = spec["versions"]
    assert spec["names"]["shortNames"] == ["mdep"]
    assert spec["names"]["categories"] == ["slipway"]
    columns = version["additionalPrinterColumns"]
    wide = [column["name"] for column in columns if not column.get("priority")]
    assert wide == ["Ready", "Phase", "Stable", "Candidate", "Weight", "Replicas", "Age"]
    assert [column["name"] for column in columns if column.get("priority") == 1] == ["Reason", "Message", "Step"]
    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }


def test_every_field_of_the_types_is_in_the_schema() -> None:
    for model, root in ((ModelDeploymentSpec, "spec"), (ModelDeploymentStatus, "status")):
        wanted = {info.alias for info in model.model_fields.values()}
        assert set(SCHEMA["properties"][root]["properties"]) == wanted


def test_rules_blame_fields_that_exist() -> None:
    for rule in RULES:
        if rule.field_path:
            assert f"{rule.at}{rule.field_path}" in FIELDS, rule.name


def test_the_definition_is_one_by_kubernetes_own_schema() -> None:
    published.validate(crd(), "1.36")
