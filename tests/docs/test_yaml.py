"""Every YAML block is a manifest, a piece of a ModelDeployment, or of another form that is known; and it is valid."""

import functools
import json
from typing import Any

import jsonschema
import pytest
from slipway.api.validation import validate

from tests.docs.blocks import ROOT, Block, blocks, documents, fragment, is_manifest, manifests

OTHER_FORMS = {
    "docs/models.md": "the config.yaml of a model's folder",
    "docs/scaling.md": "rules of prometheus-adapter",
    "docs/analysis.md": "one check of a list",
    "docs/engines.md": "rules of a scrape configuration",
}
"""Pages with one block that is neither a manifest nor a piece of one, and what it is."""
YAML = [block for block in blocks() if block.language == "yaml"]


@functools.cache
def values_schema() -> dict[str, Any]:
    return dict(json.loads((ROOT / "charts/slipway/values.schema.json").read_text()))


def is_values(document: Any) -> bool:
    """Whether a block sets values of the chart."""
    return isinstance(document, dict) and document.keys() <= values_schema()["properties"].keys()


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.place)
def test_values_of_the_chart_are_taken_by_it(block: Block) -> None:
    for document in documents(block):
        if is_values(document):
            jsonschema.validate(document, values_schema())


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.place)
def test_a_block_is_of_a_known_form(block: Block) -> None:
    for document in documents(block):
        known = is_manifest(document) or is_values(document) or fragment(document) is not None
        assert known or str(block.page.relative_to(ROOT)) in OTHER_FORMS, f"{block.place}: what is this?"


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.place)
def test_model_deployments_are_valid_whole_or_in_pieces(block: Block) -> None:
    for document in documents(block):
        if is_manifest(document):
            whole: dict[str, Any] | None = dict(document) if document["kind"] == "ModelDeployment" else None
        else:
            whole = fragment(document)
        if whole is not None:
            outcome = validate(with_real_digests(whole))
            assert not outcome.problems, block.place
            assert not outcome.warnings, block.place


def with_real_digests(obj: dict[str, Any]) -> dict[str, Any]:
    """Digests that were shortened for the page, such as ``9f2c…``, in their full length."""
    versions = [
        {**version, "sha256": version["sha256"].rstrip("…").ljust(64, "0")} if "sha256" in version else version
        for version in obj["spec"]["versions"]
    ]
    return {**obj, "spec": {**obj["spec"], "versions": versions}}


def test_there_is_something_to_check() -> None:
    assert len(YAML) > 30
    assert sum(len(found) for found in manifests().values()) > 25
