"""The snapshot of the cluster that one reconcile decides on, built from the cache."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol, assert_never

from slipway.api.observed import Definition, Observed, PodView, ProbeView, RevisionView
from slipway.api.revisions import Revision, revision_from_definition, revision_of
from slipway.api.traffic import Provider
from slipway.api.validation import validate
from slipway.engine.claims import claimed_by_others, claimed_by_routes
from slipway.engine.goldens_reader import GoldensReader
from slipway.engine.pods import ended_text, has_ended, pod_view, readable_definition, replica_failure, stored_definition
from slipway.engine.routes import missing_kinds, provider_named, traffic_view
from slipway.kube.apply import Applier
from slipway.kube.cache import Cache
from slipway.kube.drift import Place
from slipway.kube.kinds import CONTROLLER_REVISION, DEPLOYMENT, POD, POD_DISRUPTION_BUDGET, VIRTUAL_SERVICE
from slipway.kube.metadata import Key, described_owner, is_ours, is_predecessors, key_of, label, uid_of
from slipway.resources.identity import REVISION_LABEL, VERSION_LABEL

__all__ = ["Observer", "Prober", "Remarks"]


class Prober(Protocol):
    """Checks a revision's servers in the background; see :class:`slipway.engine.probe.ProbeService`."""

    def view(
        self,
        revision: Revision,
        pods: Sequence[PodView],
        goldens: Mapping[str, str] | None,
        model_name: str,
        *,
        key: Hashable = None,
    ) -> ProbeView:
        """What is known by now; starts a check where one is due and queues ``key`` at its end. Never blocks."""
        ...

    async def close(self) -> None:
        """End the checks under way."""
        ...


class Remarks:
    """What the last apply met and only a look at the cluster can dispel; kept in memory by ModelDeployment."""

    def __init__(self) -> None:
        self.conflicts: dict[Key, Place] = {}
        """An object of our name that is not ours."""
        self.refused: dict[Key, dict[Place, str]] = {}
        """Objects that the API server would not take, and why."""

    def forget(self, key: Key) -> None:
        """Drop what is known of a ModelDeployment that is gone."""
        self.conflicts.pop(key, None)
        self.refused.pop(key, None)


class Observer:
    """Builds :class:`~slipway.api.observed.Observed`."""

    def __init__(
        self,
        cache: Cache,
        applier: Applier,
        remarks: Remarks,
        goldens: GoldensReader,
        *,
        cluster_domain: str = "cluster.local",
        prober: Prober | None = None,
    ) -> None:
        """Observe through ``cache``; without a ``prober`` no server is asked anything."""
        self._cache = cache
        self._applier = applier
        self._remarks = remarks
        self._goldens = goldens
        self._domain = cluster_domain
        self._prober = prober

    async def observe(self, raw: Mapping[str, Any]) -> Observed:
        """What the cluster holds for a ModelDeployment as read from the API server."""
        key, uid = key_of(raw), uid_of(raw)
        definitions = self._definitions(key, uid)
        provider = provider_named(raw.get("spec") or {})
        missing = missing_kinds(self._cache, raw.get("spec") or {})
        return Observed(
            name=key.name,
            namespace=key.namespace,
            uid=uid,
            generation=int(raw["metadata"].get("generation") or 0),
            revisions=await self._revisions(key, uid, definitions),
            definitions=definitions,
            traffic=traffic_view(
                self._cache, self._applier.ledger, key, uid, provider, self._remarks.refused.get(key, {})
            ),
            conflict=await self._conflict(raw, provider),
            mesh_missing=bool(missing),
            missing_kinds=missing,
        )

    def _definitions(self, key: Key, uid: str) -> dict[str, Definition]:
        """Stored definitions; where a ControllerRevision is missing or not to be read, its Deployment's copy."""
        found = {}
        for obj in self._cache.owned(CONTROLLER_REVISION, key):
            data = readable_definition(obj.get("data")) if is_ours(obj, uid) else None
            if data is not None:
                name = key_of(obj).name
                found[name] = Definition(label(obj, VERSION_LABEL), name, int(obj.get("revision") or 0), data)
        for obj in self._cache.owned(DEPLOYMENT, key):
            name = key_of(obj).name
            data = stored_definition(obj) if name not in found and is_ours(obj, uid) else None
            if data is not None:
                found[name] = Definition(label(obj, VERSION_LABEL), name, 0, data)
        return found

    async def _revisions(self, key: Key, uid: str, definitions: Mapping[str, Definition]) -> dict[str, RevisionView]:
        deployments = {key_of(obj).name: obj for obj in self._cache.owned(DEPLOYMENT, key) if is_ours(obj, uid)}
        pods: dict[str, list[PodView]] = {}
        ended: dict[str, list[Mapping[str, Any]]] = {}
        for pod in self._cache.owned(POD, key):
            if has_ended(pod):
                ended.setdefault(label(pod, REVISION_LABEL), []).append(pod)
            else:
                pods.setdefault(label(pod, REVISION_LABEL), []).append(pod_view(pod))
        refused = self._remarks.refused.get(key, {})
        views = {}
        for name in sorted({*definitions, *deployments, *pods}):
            deployment = deployments.get(name)
            version = definitions[name].version if name in definitions else ""
            own_pods = tuple(pods.get(name, ()))
            views[name] = RevisionView(
                revision=name,
                version=version,
                exists=deployment is not None,
                replicas=int(deployment["spec"].get("replicas", 1)) if deployment else 0,
                pods=own_pods,
                ended=ended_text(ended.get(name, ())),
                probe=await self._probe(key, definitions.get(name), own_pods),
                failure=refused.get((DEPLOYMENT, Key(key.namespace, name)), "")
                or (replica_failure(deployment) if deployment else ""),
                scaler=self._foreign_scaler(Key(key.namespace, name), uid),
            )
        return views

    def _foreign_scaler(self, deployment: Key, uid: str) -> str:
        foreign = (obj for obj in self._cache.scalers(deployment) if not is_ours(obj, uid))
        # KEDA makes an HPA of its own; the ScaledObject above it is what a person knows.
        named = sorted(f"{obj.get('kind')} {key_of(obj).name}" for obj in foreign)
        return named[-1] if named else ""

    async def _probe(self, key: Key, definition: Definition | None, pods: Sequence[PodView]) -> ProbeView:
        if self._prober is None or definition is None or not pods:
            return ProbeView()
        rebuilt = revision_from_definition(key.name, definition.data)
        revision = Revision(definition.revision, rebuilt.version, rebuilt.runtime, definition.data)
        goldens: Mapping[str, str] | str | None = None
        if revision.version.goldens is not None:
            goldens = await self._goldens.read(Key(key.namespace, revision.version.goldens.config_map))
        if isinstance(goldens, str):
            # Pods that mount it cannot start either, and a node says so in events only.
            return ProbeView(None, "GoldensMissing", goldens)
        if not any(pod.ready for pod in pods):
            return ProbeView()
        return self._prober.view(revision, pods, goldens, key.name, key=key)

    async def _conflict(self, raw: Mapping[str, Any], provider: Provider) -> str:
        key, uid = key_of(raw), uid_of(raw)
        place = self._remarks.conflicts.get(key)
        if place is not None:
            text = await self._still_foreign(place, key, uid)
            if text and not _is_past(place, raw):
                return text
            if not text:
                del self._remarks.conflicts[key]
        return self._claim(key, uid, (raw.get("spec") or {}).get("traffic") or {}, provider)

    def _claim(self, key: Key, uid: str, traffic: Mapping[str, Any], provider: Provider) -> str:
        """Why a host belongs to somebody else."""
        hosts, gateways = _strings(traffic.get("hosts")), _strings(traffic.get("gateways"))
        match provider:
            case Provider.GATEWAY_API:
                return claimed_by_routes(self._cache, key, uid, hosts, gateways)
            case Provider.NONE:
                return ""
            case Provider.ISTIO:
                delegated = (traffic.get("virtualService") or {}).get("delegate") is True
                if delegated or not self._cache.served(VIRTUAL_SERVICE):
                    return ""
                hosts = [f"{key.name}.{key.namespace}.svc.{self._domain}", *hosts]
                return claimed_by_others(self._cache, key, uid, hosts, gateways)
            case unreachable:
                assert_never(unreachable)

    async def _still_foreign(self, place: Place, key: Key, uid: str) -> str:
        kind, where = place
        obj = await self._applier.find(kind, where)
        if obj is None or is_ours(obj, uid) or is_predecessors(obj, key.name, uid):
            return ""
        whose = described_owner(obj)
        return f"{kind.name} {where.name} exists and {whose}; it is left untouched: delete it, or rename one of the two"


def _is_past(place: Place, raw: Mapping[str, Any]) -> bool:
    """Whether the object stands in the way of a revision only that is not served any more: nobody waits for it."""
    kind, where = place
    spec = validate(raw).spec
    if kind not in (DEPLOYMENT, POD_DISRUPTION_BUDGET) or spec is None:
        return False
    return where.name != revision_of(key_of(raw).name, raw["spec"], spec.served).name


def _strings(value: Any) -> list[str]:
    """The strings of a list in a spec that may not be valid."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
