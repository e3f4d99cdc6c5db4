"""Which pods a ReplicaSet is to remove first when replicas are lowered: those with the least work."""

from collections.abc import Collection, Mapping

__all__ = ["deletion_costs"]

HIGHEST = 2**31 - 1
"""Kubernetes takes costs of 32 bits."""


def deletion_costs(pods: Collection[str], loads: Mapping[str, float]) -> dict[str, int]:
    """What the removal of each pod costs: the requests that it has more than the idlest one.

    ``loads`` are requests by pod. A pod that is not among them is taken for busier than all that are: nobody knows what
    its end would cut short. The idlest cost 0, as pods that were never marked do, so that little has to be written;
    equal pods have equal costs and leave the choice to Kubernetes.
    """
    known = [loads[pod] for pod in pods if pod in loads]
    if not known:
        return dict.fromkeys(pods, 0)
    idlest, unknown = min(known), max(known) + 1
    return {pod: min(round(loads.get(pod, unknown) - idlest), HIGHEST) for pod in pods}
