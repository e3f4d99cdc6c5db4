"""The objects of the files that a command is given, and what is wrong with them before their spec is looked at."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from slipway.api.errors import SlipwayError
from slipway.api.problems import Problem
from slipway.api.spec import KIND
from slipway.api.validation import Validated, validate
from slipway.kube.kinds import MODEL_DEPLOYMENT

__all__ = ["documents_of", "examined", "model_deployments", "shown"]


def documents_of(filename: str) -> list[Any]:
    """All documents of a file that say something, ``-`` for standard input; raises SlipwayError naming the file."""
    try:
        text = sys.stdin.read() if filename == "-" else Path(filename).read_text("utf-8")
        documents = [item for item in yaml.safe_load_all(text) if item is not None]
    except OSError as error:
        raise SlipwayError(f"cannot read {filename}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # ValueError: no UTF-8, or a date such as 2024-99-99; RecursionError: nested very deeply.
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise SlipwayError(f"{shown(filename)} is no YAML: {reason}") from error
    if not documents:
        raise SlipwayError(f"there is nothing in {shown(filename)}")
    return documents


def model_deployments(filename: str) -> list[Mapping[str, Any]]:
    """The ModelDeployments of a file, those in Lists too; raises SlipwayError where there is none."""
    found = [item for item in _flat(documents_of(filename)) if item.get("kind") == KIND]
    if not found:
        raise SlipwayError(f"there is no {KIND} in {shown(filename)}")
    return found


def examined(obj: Mapping[str, Any]) -> Validated:
    """What is wrong with the whole object as a file has it: its head, which an API server would check, and its spec."""
    outcome = validate(obj)
    head = tuple(_head(obj))
    return Validated(None, (*head, *outcome.problems), outcome.warnings) if head else outcome


def shown(filename: str) -> str:
    """A file's name in a message."""
    return "standard input" if filename == "-" else filename


def _flat(documents: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        if not isinstance(document, Mapping):
            continue
        if isinstance(document.get("items"), list):
            yield from _flat(document["items"])
        else:
            yield document


def _head(obj: Mapping[str, Any]) -> Iterator[Problem]:
    version = obj.get("apiVersion")
    if version != MODEL_DEPLOYMENT.api_version:
        wrong = f"must be {MODEL_DEPLOYMENT.api_version}"
        yield Problem("apiVersion", "InvalidSpec", f"{wrong}, not {version}" if version else wrong)
    metadata = obj.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        yield Problem("metadata", "InvalidSpec", "must be an object")
        return
    for field, required in (("name", True), ("namespace", False)):
        value = (metadata or {}).get(field)
        if value is None or value == "":
            if required:
                yield Problem(f"metadata.{field}", "InvalidSpec", "is required")
        elif not isinstance(value, str):
            yield Problem(f"metadata.{field}", "InvalidSpec", "must be a string (in quotes, if it looks like a number)")
