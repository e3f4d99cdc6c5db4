"""``slipway diff``: what a changed file would change in the cluster, and what would follow from it."""

import asyncio
import difflib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import yaml

from slipway.api.errors import SlipwayError, spec_error
from slipway.api.revisions import revision_of
from slipway.api.rollout import Strategy
from slipway.api.schema import PlainDumper
from slipway.api.spec import ModelDeploymentSpec
from slipway.cli.cluster import connected, current_namespace
from slipway.cli.documents import examined, model_deployments
from slipway.kube.client import Client
from slipway.kube.failures import NotFoundError
from slipway.kube.kinds import MODEL_DEPLOYMENT

__all__ = ["Change", "consequences", "diff"]

FAILED = 2


@dataclass(frozen=True, slots=True)
class Change:
    """The difference that one file makes."""

    name: str
    namespace: str
    spec: tuple[str, ...]
    """Lines of a unified diff of the stored spec, defaults included; empty when nothing changes."""
    follows: tuple[str, ...]
    """What the operator would do."""


def diff(filename: str, namespace: str, output: str) -> int:
    """Print the changes; returns 0 without any, 1 with some, as kubectl diff does, and 2 on failure."""
    try:
        changes = asyncio.run(_changes(filename, namespace))
    except SlipwayError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    real = [change for change in changes if change.spec]
    if output == "json":
        print(json.dumps([asdict(change) for change in real], indent=2))
    elif output == "yaml":
        plain = [{**asdict(change), "spec": list(change.spec), "follows": list(change.follows)} for change in real]
        print(yaml.dump(plain, Dumper=PlainDumper, sort_keys=False, width=120), end="")
    else:
        for change in real:
            print("\n".join((*change.spec, "", "what follows:", *(f"  {line}" for line in change.follows))))
    return 1 if real else 0


async def _changes(filename: str, namespace: str) -> list[Change]:
    changes = []
    async with connected() as client:
        for obj in model_deployments(filename):
            outcome = examined(obj)
            if outcome.spec is None:
                raise spec_error(outcome.problems)
            place = namespace or str(obj["metadata"].get("namespace") or "") or current_namespace()
            changes.append(await _change(client, obj, place))
    return changes


async def _change(client: Client, obj: Mapping[str, Any], namespace: str) -> Change:
    """Let the API server say, in a dry run, what it would store; that has its defaults in it."""
    name = str(obj["metadata"]["name"])
    wanted = {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
    try:
        live = await client.get(MODEL_DEPLOYMENT, namespace, name)
    except NotFoundError:
        live = {}
        stored = await client.create(MODEL_DEPLOYMENT, wanted, dry_run=True)
    else:
        metadata = {**live["metadata"], "managedFields": None}
        stored = await client.replace(
            MODEL_DEPLOYMENT, {**live, "metadata": metadata, "spec": obj["spec"]}, dry_run=True
        )
    before, after = live.get("spec") or {}, stored["spec"]
    lines = difflib.unified_diff(_lines(before), _lines(after), f"live/{name}", f"file/{name}", lineterm="")
    return Change(name, namespace, tuple(lines), tuple(consequences(name, before, after)))


def _lines(spec: Mapping[str, Any]) -> list[str]:
    return yaml.dump(dict(spec), Dumper=PlainDumper, sort_keys=True, width=120).splitlines() if spec else []


def consequences(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What the operator would do about a change from one stored spec to another; ``before`` may be empty."""
    new = ModelDeploymentSpec.from_wire(after)
    if not before:
        yield f"version {new.served} starts and, once it is ready, gets all traffic"
        return
    old = ModelDeploymentSpec.from_wire(before)
    known = {entry.name: revision_of(name, before, entry.name).name for entry in old.versions}
    for entry in new.versions:
        revision = revision_of(name, after, entry.name).name
        if entry.name not in known:
            yield f"version {entry.name} is new ({revision})"
        elif known[entry.name] != revision:
            yield f"version {entry.name} has changed and gets new pods: {known[entry.name]} to {revision}"
    kept = {entry.name for entry in new.versions}
    for gone in [entry for entry in known if entry not in kept]:
        yield f"version {gone} is no longer declared; it goes on serving while it is needed"
    served = revision_of(name, after, new.served).name
    if known.get(old.served) != served:
        yield _rollout(old, new)
    elif old.suspend != new.suspend:
        yield "nothing is changed any more" if new.suspend else "changes are carried out again"
    else:
        yield "no rollout, and no pod restarts"


def _rollout(old: ModelDeploymentSpec, new: ModelDeploymentSpec) -> str:
    course = f"a rollout from {old.served} to {new.served} begins"
    if new.suspend:
        return f"{course}, but only once spec.suspend is removed"
    if new.rollout.strategy is not Strategy.CANARY:
        return f"{course}, by {new.rollout.strategy}"
    steps = ", ".join(
        f"{step.weight} % until somebody promotes" if step.pause else f"{step.weight} % for at least {step.hold}"
        for step in new.rollout.steps
    )
    return f"{course}: {steps}"
