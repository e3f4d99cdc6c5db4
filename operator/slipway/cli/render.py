"""``slipway render``: the objects that a ModelDeployment leads to, without a cluster."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from slipway.api.autoscaling import ScalingMode
from slipway.api.errors import InvalidSpecError, spec_error
from slipway.api.revisions import Revision, revision_of
from slipway.api.schema import PlainDumper
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Role, VersionStatus, VersionWeight
from slipway.cli.documents import examined, model_deployments
from slipway.resources import Identity, RenderOptions, desired

__all__ = ["Moment", "render", "rendered"]

UNKNOWN_UID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment of an object's life that is rendered: all traffic on one version, or a share on a candidate."""

    candidate: str = ""
    weight: int = 0
    """The candidate's, in per cent."""


def render(parsed: argparse.Namespace) -> int:
    """Print the objects of every ModelDeployment in a file as YAML; warnings go to standard error."""
    options = RenderOptions(runtime_image=parsed.runtime_image, cluster_domain=parsed.cluster_domain)
    moment = Moment(parsed.candidate, parsed.weight)
    objects: list[dict[str, Any]] = []
    for obj in model_deployments(parsed.filename):
        for warning in examined(obj).warnings:
            print(f"warning: {warning}", file=sys.stderr)
        objects += rendered(obj, parsed.namespace, moment, options)
    print(yaml.dump_all(objects, Dumper=PlainDumper, sort_keys=False, width=120), end="")
    return 0


def rendered(
    obj: Mapping[str, Any], namespace: str, moment: Moment, options: RenderOptions
) -> tuple[dict[str, Any], ...]:
    """The objects of one ModelDeployment; raises SlipwayError for a spec that is not valid."""
    outcome = examined(obj)
    if outcome.spec is None:
        raise spec_error(outcome.problems)
    metadata = obj["metadata"]
    name = metadata["name"]
    place = namespace or metadata.get("namespace") or "default"
    identity = Identity(name, place, str(metadata.get("uid") or UNKNOWN_UID))
    live = _live(name, obj["spec"], outcome.spec, moment)
    status = ModelDeploymentStatus(versions=tuple(entry for entry, _ in live))
    return desired(identity, outcome.spec, status, {revision.name: revision for _, revision in live}, options)


def _live(
    name: str, raw: Mapping[str, Any], spec: ModelDeploymentSpec, moment: Moment
) -> list[tuple[VersionStatus, Revision]]:
    """The versions that have pods: the served one and experiments, and in a rollout another one beside them."""
    operator = spec.autoscaling.mode is ScalingMode.OPERATOR
    replicas = spec.autoscaling.min_replicas if operator else spec.replicas
    experiments = [item for item in spec.traffic.experiments if item.version != moment.candidate]
    rest = max(0, 100 - moment.weight - sum(item.weight for item in experiments))
    shares = [(spec.served, Role.STABLE, rest, replicas)]
    if moment.candidate:
        if spec.version(moment.candidate) is None or moment.candidate == spec.served:
            raise InvalidSpecError(f"--candidate: {moment.candidate} is no version beside the served one")
        shares.append((moment.candidate, Role.CANDIDATE, moment.weight, 1))
    elif moment.weight:
        raise InvalidSpecError("--weight: needs --candidate")
    if not 0 <= moment.weight <= 100:
        raise InvalidSpecError("--weight: must lie between 0 and 100")
    shares += [(item.version, Role.EXPERIMENT, item.weight, 1) for item in experiments]
    live = []
    for version, role, weight, count in shares:
        revision = revision_of(name, raw, version)
        share = VersionWeight(intended=weight)
        entry = VersionStatus(
            name=version,
            revision=revision.name,
            role=role,
            replicas=count,
            subset=True,
            weight=share,
            matched=role is Role.EXPERIMENT,
        )
        live.append((entry, revision))
    return live
