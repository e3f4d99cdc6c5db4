"""The objects that run a model: ControllerRevision, Deployment and PodDisruptionBudget."""

import json
from typing import Any

from slipway.api.revisions import Revision, template_of
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import VersionStatus
from slipway.resources.identity import (
    Identity,
    RenderOptions,
    metadata,
    revision_labels,
    selector_labels,
)
from slipway.resources.pods import pod_template

__all__ = [
    "DEFINITION",
    "controller_revision",
    "deployment",
    "disruption_budget",
]

DEFINITION = "slipway.dev/definition"
"""Annotation of a Deployment with its revision's definition, from which a deleted ControllerRevision is made again."""

LARGEST_COPY = 192 * 1024
"""Bytes of a definition up to which its Deployment has a copy: all annotations of an object may take 256 KiB."""


def controller_revision(identity: Identity, revision: Revision, number: int) -> dict[str, Any]:
    """The definition of a revision, kept so that its pods can be rebuilt after the user has edited the version."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata(identity, revision.name, revision_labels(identity, revision.version.name, revision.name)),
        "revision": number,
        "data": dict(revision.data),
    }


def deployment(
    identity: Identity, spec: ModelDeploymentSpec, entry: VersionStatus, revision: Revision, options: RenderOptions
) -> dict[str, Any]:
    """The Deployment of a live revision."""
    labelled = metadata(identity, entry.revision, revision_labels(identity, entry.name, entry.revision))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": labelled | _copy(revision),
        "spec": {
            "replicas": entry.replicas,
            "selector": {"matchLabels": selector_labels(identity, entry.revision)},
            # Pods of a revision are replaced only when an edit of podTemplate's surroundings asks for it; never below
            # the number wanted while that goes on.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "progressDeadlineSeconds": max(1, int(spec.rollout.progress_deadline.seconds)),
            "revisionHistoryLimit": 1,
            "template": template_of(revision) or pod_template(identity, revision, options),
        },
    }


def _copy(revision: Revision) -> dict[str, Any]:
    """Metadata with a copy of the definition; without one that no annotation could hold."""
    definition = json.dumps(dict(revision.data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {"annotations": {DEFINITION: definition}} if len(definition.encode()) <= LARGEST_COPY else {}


def disruption_budget(identity: Identity, entry: VersionStatus) -> dict[str, Any]:
    """One pod of a revision at a time may be evicted.

    One budget per revision, so that a candidate's failing pods do not keep stable's nodes from being drained; pods
    that are not ready can always be evicted.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(identity, entry.revision, revision_labels(identity, entry.name, entry.revision)),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector_labels(identity, entry.revision)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
