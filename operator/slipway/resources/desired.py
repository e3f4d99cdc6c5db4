"""Everything that a ModelDeployment wants to exist, composed from its spec, its status and its revisions."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from slipway.api.autoscaling import ScalingMode
from slipway.api.revisions import Revision
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Role
from slipway.resources.engines import http_port
from slipway.resources.hpa import horizontal_pod_autoscaler
from slipway.resources.identity import Identity, RenderOptions
from slipway.resources.providers import provider_of
from slipway.resources.services import pods_service
from slipway.resources.shadow import shadow_objects
from slipway.resources.workloads import controller_revision, deployment, disruption_budget

__all__ = ["APPLIED_HASH", "desired"]

APPLIED_HASH = "slipway.dev/applied-hash"
"""Annotation with a hash of the object as rendered: equal hashes mean that there is nothing to apply."""
HASH_LENGTH = 16
LARGEST_NUMBER = 2**63 - 1
"""Of a ControllerRevision, whose number somebody may have set."""


def desired(
    identity: Identity,
    spec: ModelDeploymentSpec,
    status: ModelDeploymentStatus,
    revisions: Mapping[str, Revision],
    options: RenderOptions,
    numbers: Mapping[str, int] | None = None,
) -> tuple[dict[str, Any], ...]:
    """The objects wanted, in the order they may be applied; whatever else we own is to be pruned afterwards.

    ``revisions`` (by name) are those in ``status.versions`` and others kept as history. A live one that is not among
    them cannot be rendered: its pods' objects are left out, and have to be spared when others are pruned. ``numbers``
    are the revision numbers already given; a new revision gets the next one. Pods come before the routes that lead to
    them, subsets before routes. A revision that leaves has lost weight and pin (role Retiring) in a reconcile before
    the one that takes its subset.
    """
    objects = _controller_revisions(identity, revisions, numbers or {})
    provider = provider_of(spec)
    objects += provider.services(identity, status.versions)
    if options.mesh_principal:
        objects += _own_way_to_pods(identity, status, revisions)
    for entry in status.versions:
        if entry.revision not in revisions:
            continue
        objects.append(deployment(identity, spec, entry, revisions[entry.revision], options))
        objects.append(disruption_budget(identity, entry))
        if spec.autoscaling.mode is ScalingMode.HPA and entry.role not in (Role.PREVIOUS, Role.RETIRING):
            objects.append(horizontal_pod_autoscaler(identity, spec, status, entry))
    objects += provider.routes(identity, spec, status.versions, options)
    objects += shadow_objects(identity, spec, status, options, objects)
    return tuple(_with_hash(item) for item in objects)


def _own_way_to_pods(
    identity: Identity, status: ModelDeploymentStatus, revisions: Mapping[str, Revision]
) -> list[dict[str, Any]]:
    ports = [http_port(revisions[entry.revision]) for entry in status.versions if entry.revision in revisions]
    return [pods_service(identity, ports)] if ports else []


def _controller_revisions(
    identity: Identity, revisions: Mapping[str, Revision], numbers: Mapping[str, int]
) -> list[dict[str, Any]]:
    objects = []
    newest = max(numbers.values(), default=0)
    for name, revision in revisions.items():
        number = numbers.get(name)
        if number is None:
            newest = min(newest + 1, LARGEST_NUMBER)
            number = newest
        objects.append(controller_revision(identity, revision, number))
    return objects


def _with_hash(item: dict[str, Any]) -> dict[str, Any]:
    canonical = json.dumps(item, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:HASH_LENGTH]
    annotations = item["metadata"].get("annotations", {}) | {APPLIED_HASH: digest}
    return {**item, "metadata": {**item["metadata"], "annotations": annotations}}
