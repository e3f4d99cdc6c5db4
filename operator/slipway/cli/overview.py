"""What is served, where the rollout stands, how sure the evidence is and what happens next, as a tree."""

from collections.abc import Iterable, Mapping
from typing import Any

from slipway.api.conditions import find_condition
from slipway.api.scalars import DecimalString
from slipway.api.status import (
    CheckStatus,
    ConditionType,
    ModelDeploymentStatus,
    RolloutStatus,
    Stage,
    VersionStatus,
)
from slipway.api.validation import validate
from slipway.cli.columns import ago, indented, table, until
from slipway.cli.outlook import next_lines

__all__ = ["outlook_of", "overview_lines", "summary_row"]

SUMMARY_HEAD = ("NAME", "PHASE", "STABLE", "CANDIDATE", "WEIGHT", "REPLICAS", "REASON")


def overview_lines(obj: Mapping[str, Any], status: ModelDeploymentStatus, now: float) -> list[str]:
    """Lines for ``slipway status``."""
    metadata = obj["metadata"]
    ready = find_condition(status.conditions, ConditionType.READY)
    reason = f" ({ready.reason})" if ready else ""
    lines = [f"{metadata['name']} in {metadata.get('namespace', '')}: {status.phase}{reason}"]
    if ready and ready.message:
        lines += indented([ready.message])
    if int(metadata.get("generation") or 0) > status.observed_generation:
        lines += indented(["the operator has not looked at the newest spec yet"])
    branches = [_versions(status)]
    if status.rollout is not None:
        branches.append(_rollout(status, status.rollout, now))
    branches.append(["next", *_twigs([[line] for line in outlook_of(obj, status, now)])])
    return [*lines, *_twigs(branches)]


def outlook_of(obj: Mapping[str, Any], status: ModelDeploymentStatus, now: float) -> list[str]:
    """What happens next, in lines."""
    metadata = obj["metadata"]
    return next_lines(str(metadata["name"]), validate(obj).spec, status, int(metadata.get("generation") or 0), now)


def summary_row(obj: Mapping[str, Any], status: ModelDeploymentStatus) -> tuple[str, ...]:
    """One ModelDeployment among others, under :data:`SUMMARY_HEAD`."""
    ready = find_condition(status.conditions, ConditionType.READY)
    weight = f"{status.weight} %" if status.candidate else "-"
    return (
        str(obj["metadata"]["name"]),
        status.phase.value,
        status.stable or "-",
        status.candidate or "-",
        weight,
        str(status.replicas),
        ready.reason if ready else "-",
    )


def _twigs(branches: Iterable[list[str]]) -> list[str]:
    """Branches drawn below each other: a head line each, with its own lines below it."""
    drawn: list[str] = []
    content = [branch for branch in branches if branch]
    for index, (head, *below) in enumerate(content):
        last = index == len(content) - 1
        drawn.append(f"{'└─' if last else '├─'} {head}")
        drawn += [f"{'   ' if last else '│  '}{line}" for line in below]
    return drawn


def _versions(status: ModelDeploymentStatus) -> list[str]:
    head = f"serves {status.stable or 'nothing'} at {status.url or '-'}"
    columns = ("VERSION", "ROLE", "WEIGHT", "READY", "QPS", "P99", "ERRORS", "GPU", "REVISION")
    if not status.versions:
        return [head]
    title, *rows = table(columns, (_version(entry) for entry in status.versions))
    branches = [
        [row, *([f"   {entry.name}: {entry.reason}: {entry.message}"] if entry.reason else [])]
        for row, entry in zip(rows, status.versions, strict=True)
    ]
    return [head, f"   {title}", *_twigs(branches)]


def _rollout(status: ModelDeploymentStatus, rollout: RolloutStatus, now: float) -> list[str]:
    course = f"{rollout.from_ or 'nothing'} to {rollout.to}"
    if rollout.stage is Stage.FINISHED:
        head = f"rollout {rollout.id}: {course}: {rollout.outcome or 'ended'}"
    else:
        step = f"step {rollout.step} of {rollout.steps}" if rollout.steps else "first version"
        since = ago(rollout.stage_at or rollout.started_at, now)
        head = f"rollout {rollout.id}: {course}, {step}, {rollout.stage} for {since}"
    branches = []
    if rollout.paused and rollout.stage is not Stage.FINISHED:
        branches.append([f"paused by {rollout.by or 'unknown'}"])
    if rollout.reason:
        branches.append([f"{rollout.reason}: {rollout.message}"])
    if rollout.deadline and rollout.stage is not Stage.FINISHED:
        branches.append([f"is given up or stalls {until(rollout.deadline, now)}"])
    branches += [[_evidence(check)] for check in status.analysis if check.rollout == rollout.id]
    return [head, *_twigs(branches)]


def _evidence(check: CheckStatus) -> str:
    """A check in one line; ``slipway explain`` has the rest."""
    counts = f"{check.candidate.bad}/{check.candidate.requests} bad, stable {check.stable.bad}/{check.stable.requests}"
    against = f", evidence of harm {check.evidence}" if check.evidence is not None else ""
    return f"check {check.name}: {check.verdict} ({check.reason}): {counts}{against}"


def _version(entry: VersionStatus) -> tuple[str, ...]:
    weight = f"{entry.weight.intended} %"
    if entry.weight.applied != entry.weight.intended:
        weight += f" (router: {entry.weight.applied} %)"
    gpu = f"{entry.gpu_utilization} % ({entry.gpu_source})" if entry.gpu_utilization is not None else "-"
    return (
        entry.name,
        entry.role,
        weight,
        f"{entry.ready_replicas}/{entry.replicas}",
        _number(entry.qps),
        entry.latency_p99 or "-",
        _number(entry.error_rate),
        gpu,
        entry.revision,
    )


def _number(value: DecimalString | None) -> str:
    return "-" if value is None else str(value)
