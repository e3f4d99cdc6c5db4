"""``slipway lint``: what is wrong with ModelDeployments in files, before any cluster sees them."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import yaml

from slipway.api.schema import PlainDumper
from slipway.cli.documents import examined, model_deployments

__all__ = ["Finding", "findings", "lint"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of one object."""

    file: str
    name: str
    severity: str
    """error or warning."""
    field: str
    reason: str
    message: str


def lint(filenames: Iterable[str], *, output: str = "text", strict: bool = False) -> int:
    """Print all findings; returns 1 where there is an error, or with ``strict`` a warning, else 0."""
    found: list[Finding] = []
    count = 0
    for filename in filenames:
        for obj in model_deployments(filename):
            count += 1
            found += findings(filename, obj)
    bad = [item for item in found if strict or item.severity == "error"]
    if output == "json":
        print(json.dumps([asdict(item) for item in found], indent=2))
    elif output == "yaml":
        print(yaml.dump([asdict(item) for item in found], Dumper=PlainDumper, sort_keys=False), end="")
    else:
        for item in found:
            print(f"{item.file}: {item.name}: {item.severity}: {item.field}: {item.message}")
        errors = sum(item.severity == "error" for item in found)
        print(f"{count} checked, {errors} errors, {len(found) - errors} warnings", file=sys.stderr)
    return 1 if bad else 0


def findings(filename: str, obj: Mapping[str, Any]) -> list[Finding]:
    """What is wrong with one object."""
    outcome = examined(obj)
    metadata = obj.get("metadata")
    name = str((metadata.get("name") if isinstance(metadata, Mapping) else "") or "unnamed")
    return [
        Finding(filename, name, severity, problem.field, problem.reason, problem.message)
        for severity, problems in (("error", outcome.problems), ("warning", outcome.warnings))
        for problem in problems
    ]
