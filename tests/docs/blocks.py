"""The fenced blocks of the documentation, and what kind of thing each of them is."""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
SPEC_BLOCKS = {"versions", "serve", "runtime", "traffic", "rollout", "autoscaling", "replicas", "suspend"}


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@functools.cache
def blocks() -> tuple[Block, ...]:
    return tuple(block for page in PAGES for block in _blocks(page))


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found["language"], found["text"])


def documents(block: Block) -> list[Any]:
    return [document for document in yaml.safe_load_all(block.text) if document is not None]


def manifests() -> dict[Path, list[tuple[Block, Mapping[str, Any]]]]:
    """Every whole Kubernetes object in the pages, by page."""
    found: dict[Path, list[tuple[Block, Mapping[str, Any]]]] = {}
    for block in blocks():
        if block.language != "yaml":
            continue
        for document in documents(block):
            if is_manifest(document):
                found.setdefault(block.page, []).append((block, document))
    return found


def is_manifest(document: Any) -> bool:
    return isinstance(document, Mapping) and {"apiVersion", "kind"} <= document.keys()


def fragment(document: Any) -> dict[str, Any] | None:
    """The whole ModelDeployment around a piece of one; None for something else."""
    if not isinstance(document, Mapping):
        return None
    spec = document["spec"] if set(document) == {"spec"} else document
    if not isinstance(spec, Mapping) or not spec.keys() <= SPEC_BLOCKS:
        return None
    versions = [{"name": name, "uri": f"s3://models/{name}"} for name in ("v1", "v2", "v3")]
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "piece"},
        "spec": {"versions": versions, "serve": "v2", **spec},
    }
