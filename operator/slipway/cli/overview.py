"""What is served, where the rollout stands and how many replicas there are, as text."""

from collections.abc import Mapping
from typing import Any

from slipway.api.conditions import find_condition
from slipway.api.scalars import DecimalString
from slipway.api.status import ConditionType, ModelDeploymentStatus, RolloutStatus, Stage, VersionStatus
from slipway.cli.columns import ago, indented, table, until

__all__ = ["overview_lines"]


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
    lines += ["", f"serves     {status.stable or 'nothing'} at {status.url or '-'}"]
    if status.rollout is not None:
        lines += _rollout(status.rollout, now)
    if status.versions:
        head = ("VERSION", "ROLE", "WEIGHT", "READY", "QPS", "P99", "ERRORS", "GPU", "REVISION")
        lines += ["", *table(head, (_version(entry) for entry in status.versions))]
        lines += [f"{entry.name}: {entry.reason}: {entry.message}" for entry in status.versions if entry.reason]
    return lines


def _rollout(rollout: RolloutStatus, now: float) -> list[str]:
    course = f"{rollout.from_ or 'nothing'} to {rollout.to}"
    if rollout.stage is Stage.FINISHED:
        lines = [f"rollout    {rollout.id}: {course}: {rollout.outcome or 'ended'}"]
    else:
        step = f"step {rollout.step} of {rollout.steps}" if rollout.steps else "first version"
        since = ago(rollout.stage_at or rollout.started_at, now)
        lines = [f"rollout    {rollout.id}: {course}, {step}, {rollout.stage} for {since}"]
        if rollout.paused:
            lines += ["           paused"]
        if rollout.deadline:
            lines += [f"           is given up or stalls {until(rollout.deadline, now)}"]
    if rollout.reason:
        lines += [f"           {rollout.reason}: {rollout.message}"]
    return lines


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
