"""Deleting objects: finalizers, grace, preconditions, propagation, collections, eviction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from .failures import ApiError, Cause, bad_request, conflict, invalid
from .kinds import Resource, dig
from .schema import JsonDict
from .selectors import from_object, matches
from .store import Stored
from .writes import Target, Write, Writer

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_FINALIZERS = {"Foreground": FOREGROUND, "Orphan": ORPHAN}
DEFINITION_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """What a client asks for when it deletes. `grace` in seconds."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False

    @classmethod
    def read(cls, body: JsonDict, query: dict[str, str]) -> DeleteOptions:
        """From the body and, where that is silent, the query. Raises ApiError 400 or 422."""
        preconditions = body.get("preconditions") or {}
        if body.get("orphanDependents") is not None and body.get("propagationPolicy"):
            words = "Invalid value: orphanDependents and deletionPropagation cannot be both set"
            raise invalid("meta.k8s.io", "DeleteOptions", "", [Cause("FieldValueInvalid", "propagationPolicy", words)])
        grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        orphan = body.get("orphanDependents", query.get("orphanDependents"))
        propagation = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
        if not propagation and orphan is not None:
            propagation = "Orphan" if orphan in (True, "true", "1") else "Background"
        if propagation not in ("", "Background", "Foreground", "Orphan"):
            words = f'Unsupported value: "{propagation}": supported values: "Background", "Foreground", "Orphan", "nil"'
            cause = Cause("FieldValueNotSupported", "propagationPolicy", words)
            raise invalid("meta.k8s.io", "DeleteOptions", "", [cause])
        dry_run = body.get("dryRun") == ["All"] or query.get("dryRun") == "All"
        try:
            seconds = None if grace is None else int(grace)
        except ValueError as problem:
            raise bad_request(f"invalid gracePeriodSeconds: {grace}") from problem
        return cls(
            seconds, propagation, preconditions.get("uid") or "", preconditions.get("resourceVersion") or "", dry_run
        )


class Deleter:
    """Deletes objects, at once or by marking them."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.store = writer.store

    def delete(self, target: Target, options: DeleteOptions) -> JsonDict:
        """Delete one object; the answer is the object where it stays or the kind gives it, else a Status."""
        stored = self.writer.stored(target)
        _check_preconditions(target, stored, options)
        marked = self._marked(target.resource, stored, options)
        if marked is None:
            return target.resource.outward(stored.obj)
        metadata = marked["metadata"]
        held = (
            metadata.get("finalizers")
            or metadata.get("deletionGracePeriodSeconds")
            or dig(marked, "spec", "finalizers")
        )
        if held and options.dry_run:
            return target.resource.outward(marked)
        if held:
            return target.resource.outward(self.store.put(target.resource.storage, target.key, marked).obj)
        if options.dry_run:
            returns = target.resource.rules.returns_deleted
            return target.resource.outward(marked) if returns else _deleted_status(target, stored)
        gone = self.store.delete(target.resource.storage, target.key, marked if target.resource.kind == "Pod" else None)
        if target.resource.rules.returns_deleted:
            return target.resource.outward(gone.obj)
        return _deleted_status(target, stored)

    def _marked(self, resource: Resource, stored: Stored, options: DeleteOptions) -> JsonDict | None:
        """The object as it is on its way out; None if a deletion that changes nothing is already under way."""
        obj, metadata = stored.obj, dict(stored.metadata)
        grace = _grace(resource, obj, options)
        finalizers = _finalizers(resource, obj, options)
        if metadata.get("deletionTimestamp"):
            current = metadata.get("deletionGracePeriodSeconds", 0)
            shorter = options.grace is not None and options.grace < current
            if not shorter and finalizers == (metadata.get("finalizers") or []):
                return None if metadata.get("finalizers") or current or dig(obj, "spec", "finalizers") else obj
            grace = options.grace if shorter and options.grace is not None else current
        elif metadata.get("generation"):
            metadata["generation"] += 1
        leave = self.writer.clock() + timedelta(seconds=grace)
        metadata["deletionTimestamp"] = leave.strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata["deletionGracePeriodSeconds"] = grace
        if finalizers:
            metadata["finalizers"] = finalizers
        marked = {**obj, "metadata": metadata}
        if resource.kind == "Namespace" and not resource.custom:
            del metadata["deletionGracePeriodSeconds"]
            marked["status"] = {**obj.get("status", {}), "phase": "Terminating"}
        return marked

    def delete_collection(self, resource: Resource, found: Iterable[Stored], options: DeleteOptions) -> None:
        """Delete each of the objects; those that are gone meanwhile are no error."""
        for stored in list(found):
            target = Target(resource, stored.metadata.get("namespace", ""), stored.metadata["name"])
            try:
                self.delete(target, options)
            except ApiError as problem:
                if problem.code != 404:
                    raise

    def evict(self, target: Target, body: JsonDict, write: Write) -> JsonDict:
        """Delete a pod unless a disruption budget forbids it. Raises ApiError 429 then."""
        pod = self.writer.stored(target)
        options = DeleteOptions.read(body.get("deleteOptions") or {}, {"dryRun": "All"} if write.dry_run else {})
        if dig(pod.obj, "status", "phase") not in ("Succeeded", "Failed", "Pending"):
            self._spend_budget(target, pod, options.dry_run)
        self.delete(target, options)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _spend_budget(self, target: Target, pod: Stored, dry_run: bool) -> None:
        labels = pod.metadata.get("labels")
        storage = "policy/poddisruptionbudgets"
        for budget in self.store.select(storage, target.namespace):
            selector = from_object(budget.obj["spec"].get("selector"))
            if selector is None or not matches(selector, labels):
                continue
            status = budget.obj["status"]
            if status["disruptionsAllowed"] <= 0:
                name = budget.metadata["name"]
                needs, has = status["desiredHealthy"], status["currentHealthy"]
                words = f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
                details = {"causes": [{"reason": "DisruptionBudget", "message": words}]}
                message = "Cannot evict pod as it would violate the pod's disruption budget."
                raise ApiError(429, "TooManyRequests", message, details)
            if not dry_run:
                disrupted = {**(status.get("disruptedPods") or {}), target.name: self.writer.now()}
                spent = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
                self.store.put(storage, (target.namespace, budget.metadata["name"]), {**budget.obj, "status": spent})


def _check_preconditions(target: Target, stored: Stored, options: DeleteOptions) -> None:
    resource = target.resource
    if options.uid and options.uid != stored.metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({stored.metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource.group, resource.kind, target.name, why)
    if options.resource_version and options.resource_version != str(stored.version):
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({stored.version}). The object might have been modified"
        )
        raise conflict(resource.group, resource.kind, target.name, why)


def _grace(resource: Resource, obj: JsonDict, options: DeleteOptions) -> int:
    """Only a pod that runs somewhere gets time."""
    if resource.kind != "Pod" or resource.custom:
        return 0
    if not dig(obj, "spec", "nodeName") or dig(obj, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace is not None:
        return max(0, options.grace)
    return int(obj["spec"].get("terminationGracePeriodSeconds", 30))


def _finalizers(resource: Resource, obj: JsonDict, options: DeleteOptions) -> list[str]:
    found = list(obj["metadata"].get("finalizers") or [])
    if resource.kind == "CustomResourceDefinition" and DEFINITION_FINALIZER not in found:
        found.append(DEFINITION_FINALIZER)
    if options.propagation:
        wanted = _FINALIZERS.get(options.propagation)
        found = [name for name in found if name not in (FOREGROUND, ORPHAN) or name == wanted]
        if wanted and wanted not in found:
            found.append(wanted)
    return found


def _deleted_status(target: Target, stored: Stored) -> JsonDict:
    details = {"name": target.name, "kind": target.resource.plural, "uid": stored.metadata["uid"]}
    if target.resource.group:
        details["group"] = target.resource.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
