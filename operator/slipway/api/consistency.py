"""The rules of :mod:`slipway.api.rules` on typed specs, and those that the schema's list types and CEL cannot say.

The API server checks the rules of that table as CEL; here they hold for objects that are older than a rule and for
servers without CEL.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from slipway.api.autoscaling import ScalingMode
from slipway.api.problems import Problem, fields_of
from slipway.api.rollout import MetricKind, Strategy
from slipway.api.rules import HASH_SUFFIX_LENGTH, LABEL_LENGTH, RULES
from slipway.api.scalars import DecimalString, Duration
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.traffic import Provider
from slipway.api.versions import Engine

__all__ = ["inconsistencies"]

MOST_EXPERIMENTS = 99
"""Per cent of the traffic that experiments may take together."""
LONGEST_DURATION = Duration("8784h")
"""A leap year: beyond it a time plus a duration can leave the calendar."""
SHORTEST = 0.001
"""Seconds of the shortest duration that is told to others: less would be written as none. CEL sees zeros only."""

CRON_FIELDS = 5
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_OBJECT_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_PVC = re.compile(r"pvc://[a-z0-9][-.a-z0-9]*/.+", re.DOTALL)
_HOST = re.compile(r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_GATEWAY = re.compile(r"([a-z0-9][-a-z0-9]*/)?[a-z0-9][-.a-z0-9]*")

Check = Callable[[str, ModelDeploymentSpec], Iterator[str]]
"""Gives the paths of the fields that break a rule, from the object's name and its spec."""


def inconsistencies(name: str, spec: ModelDeploymentSpec) -> Iterator[Problem]:
    """Every break of a rule; ``name`` is the object's, empty where it is not known yet."""
    for rule in RULES:
        for field in _CHECKS[rule.name](name, spec):
            yield Problem(field, "InvalidSpec", rule.message)
    yield from _duplicates(spec)
    yield from _schedule(spec)
    yield from _targets_of_hpa(spec)
    yield from _experiments(spec)
    yield from _numbers_out_of_reach(spec)


def _object_name(name: str, _: ModelDeploymentSpec) -> Iterator[str]:
    if name and not _OBJECT_NAME.fullmatch(name):
        yield "metadata.name"


def _revision_name_length(name: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, version in enumerate(spec.versions):
        if len(name) + len(version.name) + HASH_SUFFIX_LENGTH > LABEL_LENGTH:
            yield f"spec.versions[{index}].name"


def _serve_required(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    if len(spec.versions) > 1 and not spec.serve:
        yield "spec.serve"


def _serve_exists(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    if spec.serve and spec.version(spec.serve) is None:
        yield "spec.serve"


def _approved_version_exists(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    approved = spec.rollout.approved_version
    if approved and spec.version(approved) is None:
        yield "spec.rollout.approvedVersion"


def _experiment_versions_exist(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, experiment in enumerate(spec.traffic.experiments):
        if spec.version(experiment.version) is None:
            yield f"spec.traffic.experiments[{index}].version"


def _experiment_not_served(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, experiment in enumerate(spec.traffic.experiments):
        if experiment.version == spec.served:
            yield f"spec.traffic.experiments[{index}].version"


def _shadow_percent(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    if spec.rollout.strategy is Strategy.SHADOW and spec.rollout.shadow.percent == 0:
        yield "spec.rollout.shadow.percent"


def _mirror_version_exists(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    mirrored = spec.traffic.mirror.version
    if mirrored and spec.version(mirrored) is None:
        yield "spec.traffic.mirror.version"


def _none_cannot_split(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    whole = (Strategy.BLUE_GREEN, Strategy.RECREATE)
    if spec.traffic.provider is Provider.NONE and spec.rollout.strategy not in whole:
        yield "spec.rollout.strategy"


def _signature_source(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, version in enumerate(spec.versions):
        signature = version.signature
        if signature is not None and bool(signature.value) == bool(signature.uri):
            yield f"spec.versions[{index}].signature"


def _uri_required(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    if spec.runtime.engine is not Engine.CUSTOM:
        yield from (f"spec.versions[{index}].uri" for index, version in enumerate(spec.versions) if not version.uri)


def _artefact_to_check(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, version in enumerate(spec.versions):
        if not version.uri and (version.sha256 or version.signature is not None or version.storage_secret):
            yield f"spec.versions[{index}]"


def _uri_shape(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, version in enumerate(spec.versions):
        uri = version.uri
        if (uri.startswith("pvc:") and not _PVC.fullmatch(uri)) or (
            uri.startswith("file:") and not uri.startswith("file:///")
        ):
            yield f"spec.versions[{index}].uri"


def _timeout_positive(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    if spec.runtime.limits.timeout.seconds < SHORTEST:
        yield "spec.runtime.limits.timeout"


def _version_timeout_positive(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, version in enumerate(spec.versions):
        if version.runtime.limits is not None and version.runtime.limits.timeout.seconds < SHORTEST:
            yield f"spec.versions[{index}].runtime.limits.timeout"


def _request_bytes_positive(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    if spec.runtime.limits.max_request_bytes.value < 1:
        yield "spec.runtime.limits.maxRequestBytes"


def _version_request_bytes_positive(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, version in enumerate(spec.versions):
        if version.runtime.limits is not None and version.runtime.limits.max_request_bytes.value < 1:
            yield f"spec.versions[{index}].runtime.limits.maxRequestBytes"


def _host_shape(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, host in enumerate(spec.traffic.hosts):
        if not _HOST.fullmatch(host):
            yield f"spec.traffic.hosts[{index}]"


def _gateway_shape(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, gateway in enumerate(spec.traffic.gateways):
        if not _GATEWAY.fullmatch(gateway):
            yield f"spec.traffic.gateways[{index}]"


def _jwt_issuer(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    jwt = spec.traffic.auth.jwt
    if not jwt.issuer and (jwt.jwks_uri or jwt.audiences):
        yield "spec.traffic.auth.jwt.issuer"


def _progress_deadline_positive(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    if spec.rollout.progress_deadline.seconds < SHORTEST:
        yield "spec.rollout.progressDeadline"


def _weights_ascending(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    steps = spec.rollout.steps
    for index in range(1, len(steps)):
        if steps[index].weight <= steps[index - 1].weight:
            yield f"spec.rollout.steps[{index}].weight"


def _check_metric_or_query(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, check in enumerate(spec.rollout.analysis.checks):
        if (check.metric is None) == (not check.query):
            yield f"spec.rollout.analysis.checks[{index}]"


def _latency_threshold(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, check in enumerate(spec.rollout.analysis.checks):
        if check.metric is MetricKind.LATENCY and check.threshold is None:
            yield f"spec.rollout.analysis.checks[{index}].threshold"


def _quantile_range(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, check in enumerate(spec.rollout.analysis.checks):
        if not 0 < check.quantile.number < 1:
            yield f"spec.rollout.analysis.checks[{index}].quantile"


def _max_value_range(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, check in enumerate(spec.rollout.analysis.checks):
        if check.max_value is not None and not 0 < check.max_value.number < 1:
            yield f"spec.rollout.analysis.checks[{index}].maxValue"


def _min_value_range(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, check in enumerate(spec.rollout.analysis.checks):
        if check.min_value is not None and not 0 < check.min_value.number < 1:
            yield f"spec.rollout.analysis.checks[{index}].minValue"


def _threshold_positive(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, check in enumerate(spec.rollout.analysis.checks):
        if check.threshold is not None and check.threshold.seconds < SHORTEST:
            yield f"spec.rollout.analysis.checks[{index}].threshold"


def _query_bounds(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, check in enumerate(spec.rollout.analysis.checks):
        if check.query and check.min is None and check.max is None:
            yield f"spec.rollout.analysis.checks[{index}]"


def _query_bounds_order(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    for index, check in enumerate(spec.rollout.analysis.checks):
        if check.min is not None and check.max is not None and check.min.number > check.max.number:
            yield f"spec.rollout.analysis.checks[{index}].min"


def _shadow_share(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    compares = any(check.metric is MetricKind.SHADOW_AGREEMENT for check in spec.rollout.analysis.checks)
    if compares and not spec.rollout.shadow.percent:
        yield "spec.rollout.shadow.percent"


def _interval_positive(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    if spec.rollout.analysis.interval.seconds <= 0:
        yield "spec.rollout.analysis.interval"


def _replica_bounds(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    if spec.autoscaling.min_replicas > spec.autoscaling.max_replicas:
        yield "spec.autoscaling.minReplicas"


def _fallback_bound(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    if spec.autoscaling.fallback_replicas > spec.autoscaling.max_replicas:
        yield "spec.autoscaling.fallbackReplicas"


def _qps_band(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    if spec.autoscaling.qps.lower >= spec.autoscaling.qps.upper:
        yield "spec.autoscaling.qps.lower"


def _gpu_band(_: str, spec: ModelDeploymentSpec) -> Iterator[str]:
    if spec.autoscaling.gpu_utilization.lower >= spec.autoscaling.gpu_utilization.upper:
        yield "spec.autoscaling.gpuUtilization.lower"


_CHECKS: Mapping[str, Check] = {
    "object-name": _object_name,
    "revision-name-length": _revision_name_length,
    "serve-required": _serve_required,
    "serve-exists": _serve_exists,
    "approved-version-exists": _approved_version_exists,
    "experiment-versions-exist": _experiment_versions_exist,
    "experiment-not-served": _experiment_not_served,
    "shadow-percent": _shadow_percent,
    "mirror-version-exists": _mirror_version_exists,
    "none-cannot-split": _none_cannot_split,
    "signature-source": _signature_source,
    "uri-required": _uri_required,
    "artefact-to-check": _artefact_to_check,
    "uri-shape": _uri_shape,
    "timeout-positive": _timeout_positive,
    "version-timeout-positive": _version_timeout_positive,
    "request-bytes-positive": _request_bytes_positive,
    "version-request-bytes-positive": _version_request_bytes_positive,
    "host-shape": _host_shape,
    "gateway-shape": _gateway_shape,
    "jwt-issuer": _jwt_issuer,
    "progress-deadline-positive": _progress_deadline_positive,
    "weights-ascending": _weights_ascending,
    "check-metric-or-query": _check_metric_or_query,
    "latency-threshold": _latency_threshold,
    "quantile-range": _quantile_range,
    "max-value-range": _max_value_range,
    "min-value-range": _min_value_range,
    "threshold-positive": _threshold_positive,
    "query-bounds": _query_bounds,
    "query-bounds-order": _query_bounds_order,
    "shadow-share": _shadow_share,
    "interval-positive": _interval_positive,
    "replica-bounds": _replica_bounds,
    "fallback-bound": _fallback_bound,
    "qps-band": _qps_band,
    "gpu-band": _gpu_band,
}


def _duplicates(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    """The list types of the schema: sets, and maps by a key."""
    for field in fields_of(spec, "spec"):
        kind = field.marks.get("x-kubernetes-list-type")
        if kind is None or not field.value:
            continue
        keys = field.marks.get("x-kubernetes-list-map-keys")
        names = [getattr(item, keys[0]) for item in field.value] if keys else list(field.value)
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        if repeated:
            what = f"more than one entry has the {keys[0]}" if keys else "more than one entry is"
            yield Problem(field.path, "InvalidSpec", f"{what} {', '.join(repeated)}; keep one")


def _targets_of_hpa(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    scaling = spec.autoscaling
    targets = (scaling.qps.target, scaling.concurrency.target, scaling.gpu_utilization.target)
    if scaling.mode is ScalingMode.HPA and not any(targets):
        text = "HPA needs a target: set qps.target, concurrency.target or gpuUtilization.target"
        yield Problem("spec.autoscaling.mode", "InvalidSpec", text)


def _schedule(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    """Cron fields, time zones and minima, which CEL cannot check."""
    for index, entry in enumerate(spec.autoscaling.schedule):
        path = f"spec.autoscaling.schedule[{index}]"
        if entry.min_replicas > spec.autoscaling.max_replicas:
            yield Problem(f"{path}.minReplicas", "InvalidSpec", "must not exceed maxReplicas")
        if len(entry.cron.split()) != CRON_FIELDS:
            yield Problem(f"{path}.cron", "InvalidSpec", "must be five fields: minute hour day month weekday")
            continue
        try:
            CronSim(entry.cron, EPOCH)
        except CronSimError as error:
            yield Problem(f"{path}.cron", "InvalidSpec", f"{str(error).lower()} in {entry.cron!r}")
        try:
            ZoneInfo(entry.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            text = f"{entry.timezone!r} is no IANA time zone such as Europe/Berlin"
            yield Problem(f"{path}.timezone", "InvalidSpec", text)


def _experiments(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    """What experiments take together, and from whom: sums are beyond the CEL of older API servers."""
    experiments = spec.traffic.experiments
    total = sum(experiment.weight for experiment in experiments)
    if total > MOST_EXPERIMENTS:
        text = f"weights add up to {total} per cent; at most {MOST_EXPERIMENTS}, so that the served version gets some"
        yield Problem("spec.traffic.experiments", "InvalidSpec", text)
    if experiments and spec.traffic.provider is Provider.NONE:
        text = "a plain Service cannot split traffic: experiments need provider istio or gateway-api"
        yield Problem("spec.traffic.experiments", "InvalidSpec", text)


def _numbers_out_of_reach(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    for field in fields_of(spec, "spec"):
        if isinstance(field.value, Duration) and field.value.seconds > LONGEST_DURATION.seconds:
            yield Problem(field.path, "InvalidSpec", f"must not exceed {LONGEST_DURATION}, a year")
        if isinstance(field.value, DecimalString) and not math.isfinite(field.value.number):
            yield Problem(field.path, "InvalidSpec", "must be a finite number")
