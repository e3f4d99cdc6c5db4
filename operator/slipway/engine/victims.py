"""Tells Kubernetes which pods to remove, right before a Deployment's replicas are lowered."""

import logging
from collections.abc import Mapping
from typing import Any

from slipway.api.samples import MetricsView
from slipway.engine.pods import has_ended
from slipway.kube.apply import Step
from slipway.kube.cache import Cache
from slipway.kube.client import Client
from slipway.kube.failures import ApiError, NotFoundError
from slipway.kube.kinds import DEPLOYMENT, POD
from slipway.kube.metadata import Key, key_of, label, owner_key
from slipway.resources.identity import REVISION_LABEL
from slipway.scaling import deletion_costs

__all__ = ["DELETION_COST", "mark_victims"]

log = logging.getLogger(__name__)

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation by which a ReplicaSet chooses among pods that are equally ready; absent is 0."""


async def mark_victims(client: Client, cache: Cache, step: Step, metrics: MetricsView) -> None:
    """Write deletion costs on a revision's pods where ``step`` lowers its replicas, only those that change.

    It is a wish: whatever the API server answers, replicas are lowered all the same.
    """
    if not _lowers(step) or step.live is None:
        return
    owner, revision = owner_key(step.live), step.key.name
    if owner is None:
        return
    pods = {
        key_of(pod).name: pod
        for pod in cache.owned(POD, owner)
        if label(pod, REVISION_LABEL) == revision
        and not pod["metadata"].get("deletionTimestamp")
        and not has_ended(pod)
    }
    for name, cost in deletion_costs(pods, metrics.of(revision).pod_loads).items():
        if _cost(pods[name]) == str(cost):
            continue
        try:
            await _mark(client, cache, key_of(pods[name]), cost)
        except NotFoundError:
            continue
        except ApiError as error:
            log.warning("pods of %s are removed without regard to their load: %s", revision, error)
            return


def _lowers(step: Step) -> bool:
    """Whether some of a Deployment's pods go and some stay."""
    if step.kind != DEPLOYMENT or step.wanted is None or step.live is None:
        return False
    return 0 < int(step.wanted["spec"]["replicas"]) < int(step.live["spec"].get("replicas", 1))


def _cost(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0"))


async def _mark(client: Client, cache: Cache, pod: Key, cost: int) -> None:
    annotations = {DELETION_COST: str(cost) if cost else None}
    cache.put(POD, await client.patch(POD, *pod, {"metadata": {"annotations": annotations}}))
