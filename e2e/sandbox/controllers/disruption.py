"""PodDisruptionBudget status: how many pods may go voluntarily."""

from __future__ import annotations

from . import pods
from .client import DISRUPTION_BUDGETS, ApiClient, Obj
from .control_loop import ControlLoop
from .informer import Informer, Key, controller_of, key_of
from .rolling import share_of
from .selectors import is_empty, matches
from .times import now, to_text


class DisruptionController:
    """Writes the status of every PodDisruptionBudget."""

    def __init__(
        self,
        client: ApiClient,
        budgets: Informer,
        pod_cache: Informer,
        replica_sets: Informer,
        deployments: Informer,
    ) -> None:
        self._client = client
        self._budgets = budgets
        self._pods = pod_cache
        self._replica_sets = replica_sets
        self._deployments = deployments
        self.loop: ControlLoop[Key] = ControlLoop("disruption", self.reconcile, workers=1)
        budgets.add_handler(lambda old, new: self.loop.queue.add(key_of(new or old or {})))
        for cache in (pod_cache, deployments):
            cache.add_handler(self._neighbour_changed)

    def _neighbour_changed(self, old: Obj | None, new: Obj | None) -> None:
        for budget in self._budgets.in_namespace((new or old or {})["metadata"]["namespace"]):
            self.loop.queue.add(key_of(budget))

    async def reconcile(self, key: Key) -> None:
        """Write one budget's status if it changed."""
        budget = self._budgets.get(*key)
        if budget is None or budget["metadata"].get("deletionTimestamp"):
            return
        status = self._status(budget)
        known = budget.get("status") or {}
        if all(known.get(name) == value for name, value in status.items()):
            return
        self._budgets.observe(await self._client.merge(DISRUPTION_BUDGETS, budget, {"status": status}, "status"))

    def _status(self, budget: Obj) -> Obj:
        spec = budget["spec"]
        covered = [
            pod
            for pod in self._pods.in_namespace(budget["metadata"]["namespace"])
            if pods.is_active(pod)
            and (matches(spec.get("selector"), pod["metadata"].get("labels")) or is_empty(spec.get("selector")))
        ]
        expected = self._expected(covered)
        if spec.get("maxUnavailable") is not None:
            desired = max(0, expected - share_of(spec["maxUnavailable"], expected, round_up=True))
        else:
            minimum = spec.get("minAvailable", 1)
            expected = len(covered) if isinstance(minimum, int) else expected
            desired = share_of(minimum, expected, round_up=True)
        healthy = sum(pods.is_ready(pod) for pod in covered)
        allowed = max(0, healthy - desired) if expected else 0
        return {
            "observedGeneration": budget["metadata"].get("generation"),
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": allowed,
            "conditions": [_condition(budget, allowed)],
        }

    def _expected(self, covered: list[Obj]) -> int:
        """The pods that should exist: the scale of their controllers, and each pod without one."""
        scales: dict[str, int] = {}
        for pod in covered:
            controller = controller_of(pod)
            namespace = pod["metadata"]["namespace"]
            owner = self._replica_sets.get(namespace, controller["name"]) if controller else None
            upper = controller_of(owner) if owner else None
            deployment = self._deployments.get(namespace, upper["name"]) if upper else None
            top = deployment or owner or pod
            scales[top["metadata"]["uid"]] = top["spec"].get("replicas", 1) if top is not pod else 1
        return sum(scales.values())


def _condition(budget: Obj, allowed: int) -> Obj:
    status, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    known = pods.condition(budget, "DisruptionAllowed")
    since = known["lastTransitionTime"] if known and known["status"] == status else to_text(now())
    return {
        "type": "DisruptionAllowed",
        "status": status,
        "reason": reason,
        "message": "",
        "observedGeneration": budget["metadata"].get("generation"),
        "lastTransitionTime": since,
    }
