"""The Deployment controller: ReplicaSets by template, rolling updates, scale and status."""

from __future__ import annotations

import copy
import hashlib

import orjson

from . import deployment_status as status_of
from . import rolling
from .client import DEPLOYMENTS, REPLICA_SETS, ApiClient, ApiError, Obj
from .control_loop import ControlLoop
from .deployment_status import size
from .events import EventRecorder
from .informer import Informer, Key, controller_of, key_of
from .ownership import claim, reference_to
from .pods import condition, is_finished
from .rolling import Fences, Replicas
from .times import now

REVISION = "deployment.kubernetes.io/revision"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
HASH = "pod-template-hash"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
SAFE_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def template_hash(template: Obj, collisions: int) -> str:
    """The name part of a ReplicaSet: ten letters that spell no word."""
    digest = hashlib.sha256(orjson.dumps([template, collisions], option=orjson.OPT_SORT_KEYS)).digest()
    return "".join(SAFE_LETTERS[byte % len(SAFE_LETTERS)] for byte in digest[:10])


def plain_template(holder: Obj) -> Obj:
    """The pod template without the hash label, for comparing."""
    template = copy.deepcopy(holder["spec"]["template"])
    meta = template.get("metadata") or {}
    (meta.get("labels") or {}).pop(HASH, None)
    meta.pop("creationTimestamp", None)
    return template  # type: ignore[no-any-return]


def fences_of(deployment: Obj) -> Fences:
    """maxSurge and maxUnavailable as numbers of pods; Recreate has room for neither."""
    strategy = deployment["spec"].get("strategy") or {}
    wanted = deployment["spec"].get("replicas", 1)
    if strategy.get("type") == "Recreate" or wanted == 0:
        return Fences(0, 0)
    rolling_update = strategy.get("rollingUpdate") or {}
    return rolling.fences(rolling_update.get("maxSurge", "25%"), rolling_update.get("maxUnavailable", "25%"), wanted)


def replicas_of(replica_set: Obj) -> Replicas:
    """The numbers the rolling arithmetic works on."""
    meta = replica_set["metadata"]
    available = int((replica_set.get("status") or {}).get("availableReplicas") or 0)
    return Replicas(meta["uid"], size(replica_set), available, meta["creationTimestamp"] + meta["name"])


def revision_of(obj: Obj) -> int:
    """The revision number a ReplicaSet carries; 0 without one."""
    text = (obj["metadata"].get("annotations") or {}).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


class DeploymentController:
    """Keeps the ReplicaSets of every Deployment."""

    def __init__(
        self, client: ApiClient, deployments: Informer, replica_sets: Informer, pods: Informer, events: EventRecorder
    ) -> None:
        self._client = client
        self._deployments = deployments
        self._replica_sets = replica_sets
        self._pods = pods
        self._events = events
        self.loop: ControlLoop[Key] = ControlLoop("deployment", self.reconcile)
        deployments.add_handler(lambda old, new: self.loop.queue.add(key_of(new or old or {})))
        replica_sets.add_handler(self._replica_set_changed)
        pods.add_handler(self._pod_changed)

    def _replica_set_changed(self, old: Obj | None, new: Obj | None) -> None:
        for replica_set in (old, new):
            controller = controller_of(replica_set) if replica_set else None
            if replica_set and controller and controller["kind"] == "Deployment":
                self.loop.queue.add((replica_set["metadata"]["namespace"], controller["name"]))
            elif replica_set is new and new is not None:
                for deployment in self._deployments.in_namespace(new["metadata"]["namespace"]):
                    self.loop.queue.add(key_of(deployment))

    def _pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        # Recreate waits for the last old pod to be gone.
        if old is None or (new is not None and not is_finished(new)):
            return
        controller = controller_of(old)
        owner = self._replica_sets.get(old["metadata"]["namespace"], controller["name"]) if controller else None
        if owner is not None:
            self._replica_set_changed(owner, None)

    async def reconcile(self, key: Key) -> None:
        """Do one step for one Deployment."""
        deployment = self._deployments.get(*key)
        if deployment is None:
            return
        sets = await claim(self._client, REPLICA_SETS, deployment, self._replica_sets)
        if deployment["metadata"].get("deletionTimestamp"):
            await self._write_status(deployment, sets, self._find_new(deployment, sets))
            return
        deployment = await self._note_pause(deployment)
        if deployment["spec"].get("paused") or self._scaling_event(deployment, sets):
            await self._scale_only(deployment, sets)
        elif (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
            await self._recreate(deployment, sets)
        else:
            await self._roll(deployment, sets)

    def _find_new(self, deployment: Obj, sets: list[Obj]) -> Obj | None:
        """The ReplicaSet of the current template; the oldest, should there be several."""
        wanted = plain_template(deployment)
        equal = [item for item in sets if plain_template(item) == wanted]
        return min(equal, key=lambda item: replicas_of(item).created, default=None)

    async def _note_pause(self, deployment: Obj) -> Obj:
        progressing = condition(deployment, "Progressing")
        reason = progressing.get("reason") if progressing else None
        paused = bool(deployment["spec"].get("paused"))
        if reason == status_of.TIMED_OUT or paused == (reason == "DeploymentPaused"):
            return deployment
        conditions = copy.deepcopy((deployment.get("status") or {}).get("conditions") or [])
        word = "Paused" if paused else "Resumed"
        message = f"Deployment is {word.lower()}"
        status_of.set_condition(conditions, "Progressing", "Unknown", f"Deployment{word}", message, now())
        return await self._patch_status(deployment, {"conditions": conditions})

    def _scaling_event(self, deployment: Obj, sets: list[Obj]) -> bool:
        wanted = str(deployment["spec"].get("replicas", 1))
        for item in sets:
            noted = (item["metadata"].get("annotations") or {}).get(DESIRED)
            if size(item) > 0 and noted is not None and noted != wanted:
                return True
        return False

    async def _scale_only(self, deployment: Obj, sets: list[Obj]) -> None:
        new = await self._new_replica_set(deployment, sets, create=False)
        old = [item for item in sets if new is None or item["metadata"]["uid"] != new["metadata"]["uid"]]
        sets = await self._scale(deployment, new, old)
        if deployment["spec"].get("paused"):
            await self._forget_old(deployment, old)
        await self._write_status(deployment, sets, self._find_new(deployment, sets))

    async def _scale(self, deployment: Obj, new: Obj | None, old: list[Obj]) -> list[Obj]:
        wanted = deployment["spec"].get("replicas", 1)
        everything = ([new] if new else []) + old
        active = [item for item in everything if size(item) > 0]
        if len(active) <= 1:
            target = active[0] if active else new or max(old, key=revision_of, default=None)
            if target is not None:
                await self._resize(deployment, target, wanted)
        elif new is not None and self._is_saturated(wanted, new):
            for item in old:
                await self._resize(deployment, item, 0)
        elif (deployment["spec"].get("strategy") or {}).get("type") != "Recreate":
            allowed = wanted + fences_of(deployment).surge if wanted > 0 else 0
            sizes = self._proportional(deployment, active, allowed)
            for item in active:
                await self._resize(deployment, item, sizes[item["metadata"]["uid"]])
        return [self._replica_sets.get(*key_of(item)) or item for item in everything]

    @staticmethod
    def _is_saturated(wanted: int, new: Obj) -> bool:
        noted = (new["metadata"].get("annotations") or {}).get(DESIRED)
        available = replicas_of(new).available
        return size(new) == wanted and available == wanted and noted == str(wanted)

    @staticmethod
    def _proportional(deployment: Obj, active: list[Obj], allowed: int) -> dict[str, int]:
        wanted = deployment["spec"].get("replicas", 1)
        surge = fences_of(deployment).surge
        shares = {}
        for item in active:
            noted = (item["metadata"].get("annotations") or {}).get(MAXIMUM)
            maximum = int(noted) if noted and noted.isdigit() and int(noted) else wanted
            shares[item["metadata"]["uid"]] = round(size(item) * (wanted + surge) / maximum) if wanted else 0
        return rolling.proportional_sizes(allowed, [replicas_of(item) for item in active], shares)

    async def _recreate(self, deployment: Obj, sets: list[Obj]) -> None:
        new = await self._new_replica_set(deployment, sets, create=False)
        old = [item for item in sets if new is None or item["metadata"]["uid"] != new["metadata"]["uid"]]
        shrinking = [item for item in old if size(item) > 0]
        for item in shrinking:
            await self._resize(deployment, item, 0)
        leftovers = any(not is_finished(pod) for item in old for pod in self._pods.owned_by(item["metadata"]["uid"]))
        if not shrinking and not leftovers:
            new = await self._new_replica_set(deployment, sets, create=True)
            if new is not None:
                new = await self._resize(deployment, new, deployment["spec"].get("replicas", 1))
        await self._finish(deployment, old, new)

    async def _roll(self, deployment: Obj, sets: list[Obj]) -> None:
        new = await self._new_replica_set(deployment, sets, create=True)
        if new is None:
            return
        old = [item for item in sets if item["metadata"]["uid"] != new["metadata"]["uid"]]
        wanted = deployment["spec"].get("replicas", 1)
        limits = fences_of(deployment)
        next_size = rolling.new_size(wanted, limits, size(new), sum(size(item) for item in [new, *old]))
        if next_size != size(new):
            new = await self._resize(deployment, new, next_size)
        else:
            active = [replicas_of(item) for item in old if size(item) > 0]
            shrunk = rolling.shrink_old(wanted, limits, replicas_of(new), active)
            by_uid = {item["metadata"]["uid"]: item for item in old}
            for uid, smaller in shrunk.items():
                await self._resize(deployment, by_uid[uid], smaller)
        await self._finish(deployment, old, new)

    async def _finish(self, deployment: Obj, old: list[Obj], new: Obj | None) -> None:
        old = [self._replica_sets.get(*key_of(item)) or item for item in old]
        sets = ([new] if new else []) + old
        await self._write_status(deployment, sets, new)
        if status_of.is_complete(deployment, status_of.numbers(deployment, sets, new)):
            await self._forget_old(deployment, old)

    async def _new_replica_set(self, deployment: Obj, sets: list[Obj], *, create: bool) -> Obj | None:
        """The current template's ReplicaSet with its revision up to date, made if allowed and missing."""
        new = self._find_new(deployment, sets)
        others = [item for item in sets if new is None or item["metadata"]["uid"] != new["metadata"]["uid"]]
        revision = str(max((revision_of(item) for item in others), default=0) + 1)
        if new is not None:
            revision = str(max(int(revision), revision_of(new)))
            new = await self._annotate_set(deployment, new, revision)
        elif create:
            new = await self._create_set(deployment, sets, revision)
        if new is not None:
            await self._note_revision(deployment, new, revision)
        return new

    async def _annotate_set(self, deployment: Obj, new: Obj, revision: str) -> Obj:
        wanted = {**self._inherited(deployment), REVISION: revision}
        known = new["metadata"].get("annotations") or {}
        min_ready = deployment["spec"].get("minReadySeconds", 0)
        if all(known.get(name) == value for name, value in wanted.items()) and (
            new["spec"].get("minReadySeconds", 0) == min_ready
        ):
            return new
        return await self._patch_set(new, {"metadata": {"annotations": wanted}, "spec": {"minReadySeconds": min_ready}})

    async def _note_revision(self, deployment: Obj, new: Obj, revision: str) -> None:
        if (deployment["metadata"].get("annotations") or {}).get(REVISION) != revision:
            patch = {"metadata": {"annotations": {REVISION: revision}}}
            self._deployments.observe(await self._client.merge(DEPLOYMENTS, deployment, patch))
        if condition(deployment, "Progressing") is None:
            conditions = copy.deepcopy((deployment.get("status") or {}).get("conditions") or [])
            message = f'Found new replica set "{new["metadata"]["name"]}"'
            status_of.set_condition(conditions, "Progressing", "True", "FoundNewReplicaSet", message, now())
            await self._patch_status(deployment, {"conditions": conditions})

    @staticmethod
    def _inherited(deployment: Obj) -> dict[str, str]:
        annotations = deployment["metadata"].get("annotations") or {}
        skipped = (LAST_APPLIED, REVISION, DESIRED, MAXIMUM)
        return {name: value for name, value in annotations.items() if name not in skipped}

    async def _create_set(self, deployment: Obj, sets: list[Obj], revision: str) -> Obj:
        template = plain_template(deployment)
        collisions = (deployment.get("status") or {}).get("collisionCount") or 0
        name_hash = template_hash(template, collisions)
        template.setdefault("metadata", {}).setdefault("labels", {})[HASH] = name_hash
        wanted = deployment["spec"].get("replicas", 1)
        limits = fences_of(deployment)
        rolls = (deployment["spec"].get("strategy") or {}).get("type") != "Recreate"
        first = rolling.new_size(wanted, limits, 0, sum(size(item) for item in sets)) if rolls else wanted
        selector = copy.deepcopy(deployment["spec"]["selector"])
        selector.setdefault("matchLabels", {})[HASH] = name_hash
        replica_set = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{deployment['metadata']['name']}-{name_hash}",
                "namespace": deployment["metadata"]["namespace"],
                "labels": dict(template["metadata"]["labels"]),
                "annotations": {
                    **self._inherited(deployment),
                    REVISION: revision,
                    DESIRED: str(wanted),
                    MAXIMUM: str(wanted + limits.surge),
                },
                "ownerReferences": [reference_to(deployment)],
            },
            "spec": {
                "replicas": first,
                "minReadySeconds": deployment["spec"].get("minReadySeconds", 0),
                "selector": selector,
                "template": template,
            },
        }
        try:
            created = await self._client.create(REPLICA_SETS, replica_set)
        except ApiError as error:
            return await self._after_failed_create(deployment, replica_set, collisions, error)
        self._replica_sets.observe(created)
        await self._announce_set(deployment, created)
        return created

    async def _announce_set(self, deployment: Obj, created: Obj) -> None:
        name = created["metadata"]["name"]
        self._events.normal(deployment, "ScalingReplicaSet", f"Scaled up replica set {name} from 0 to {size(created)}")
        conditions = copy.deepcopy((deployment.get("status") or {}).get("conditions") or [])
        message = f'Created new replica set "{name}"'
        status_of.set_condition(conditions, "Progressing", "True", "NewReplicaSetCreated", message, now())
        await self._patch_status(deployment, {"conditions": conditions})

    async def _after_failed_create(self, deployment: Obj, wanted: Obj, collisions: int, error: ApiError) -> Obj:
        if error.reason != "AlreadyExists":
            conditions = copy.deepcopy((deployment.get("status") or {}).get("conditions") or [])
            message = f'Failed to create new replica set "{wanted["metadata"]["name"]}": {error.message}'
            status_of.set_condition(conditions, "Progressing", "False", "ReplicaSetCreateError", message, now())
            await self._patch_status(deployment, {"conditions": conditions})
            raise error
        existing = await self._client.get(REPLICA_SETS, wanted["metadata"]["namespace"], wanted["metadata"]["name"])
        controller = controller_of(existing)
        same_owner = controller is not None and controller["uid"] == deployment["metadata"]["uid"]
        if same_owner and plain_template(existing) == plain_template(deployment):
            self._replica_sets.observe(existing)
            return existing
        await self._patch_status(deployment, {"collisionCount": collisions + 1})
        raise error

    async def _resize(self, deployment: Obj, replica_set: Obj, replicas: int) -> Obj:
        wanted = deployment["spec"].get("replicas", 1)
        notes = {DESIRED: str(wanted), MAXIMUM: str(wanted + fences_of(deployment).surge)}
        known = replica_set["metadata"].get("annotations") or {}
        before = size(replica_set)
        if before == replicas and all(known.get(name) == value for name, value in notes.items()):
            return replica_set
        patch = {"metadata": {"annotations": notes}, "spec": {"replicas": replicas}}
        changed = await self._patch_set(replica_set, patch)
        if before != replicas:
            way = "up" if replicas > before else "down"
            text = f"Scaled {way} replica set {replica_set['metadata']['name']} from {before} to {replicas}"
            self._events.normal(deployment, "ScalingReplicaSet", text)
        return changed

    async def _patch_set(self, replica_set: Obj, patch: Obj) -> Obj:
        meta = {**patch.get("metadata", {}), "resourceVersion": replica_set["metadata"]["resourceVersion"]}
        changed = await self._client.merge(REPLICA_SETS, replica_set, {**patch, "metadata": meta})
        self._replica_sets.observe(changed)
        return changed

    async def _forget_old(self, deployment: Obj, old: list[Obj]) -> None:
        limit = deployment["spec"].get("revisionHistoryLimit", 10)
        idle = [
            item
            for item in old
            if size(item) == 0
            and not (item.get("status") or {}).get("replicas")
            and not item["metadata"].get("deletionTimestamp")
        ]
        for item in sorted(idle, key=revision_of)[: max(0, len(idle) - limit)]:
            await self._client.delete(REPLICA_SETS, item)

    async def _patch_status(self, deployment: Obj, status: Obj) -> Obj:
        changed = await self._client.merge(DEPLOYMENTS, deployment, {"status": status}, "status")
        self._deployments.observe(changed)
        return changed

    async def _write_status(self, deployment: Obj, sets: list[Obj], new: Obj | None) -> None:
        latest = self._deployments.get(*key_of(deployment)) or deployment
        # The spec stays the one acted on: observedGeneration must never run ahead of the work done.
        deployment = {**deployment, "status": latest.get("status") or {}}
        moment = now()
        status = status_of.numbers(deployment, sets, new)
        conditions = copy.deepcopy((deployment.get("status") or {}).get("conditions") or [])
        status_of.availability(deployment, status, fences_of(deployment), conditions, moment)
        status_of.progress(deployment, status, new, conditions, moment)
        status_of.replica_failure(sets, new, conditions, moment)
        status["conditions"] = conditions
        known = deployment.get("status") or {}
        if any((known.get(name) or None) != (value or None) for name, value in status.items()):
            deployment = await self._patch_status(deployment, status)
        left = status_of.seconds_to_deadline(deployment, moment)
        if left is not None and left > 0 and not status_of.is_complete(deployment, status):
            self.loop.queue.add_after(key_of(deployment), left + 1.0)
