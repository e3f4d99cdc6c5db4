"""One reconcile: observe, decide, persist, apply, emit.

Status is written before any effect and effects are idempotent, so the process may die after any single write and the
next run ends in the same place. A status write that meets a newer object means: start again.
"""

import functools
import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slipway.api.events import EventRecord
from slipway.api.observed import Observed
from slipway.api.revisions import Revision
from slipway.api.samples import MetricsView
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus
from slipway.engine.adoption import Adoption
from slipway.engine.holding import Holding
from slipway.engine.logs import context
from slipway.engine.looks import next_look
from slipway.engine.observe import Observer, Remarks
from slipway.engine.persistence import persist, status_patch
from slipway.engine.reading import Reading
from slipway.engine.telemetry import Telemetry
from slipway.engine.victims import mark_victims
from slipway.engine.witness import Witness
from slipway.kube.apply import Applied, Applier, Owner
from slipway.kube.cache import Cache
from slipway.kube.client import Client
from slipway.kube.drift import Place
from slipway.kube.failures import ApiError, ConflictError, NotFoundError, TerminatingError
from slipway.kube.kinds import MODEL_DEPLOYMENT
from slipway.kube.metadata import Key, is_older, key_of, resource_version, uid_of
from slipway.resources import Identity, RenderOptions, desired

__all__ = ["Decide", "DecisionView", "Outcome", "Reconciler", "Recorder"]

log = logging.getLogger(__name__)

LOOK_AGAIN = 0.2
"""Seconds until what was just written is looked at: our own writes come back as no event."""
WAIT_FOR_DELETION = 2.0
"""Seconds until the next look while an object of our name has to disappear."""
BLOCKED_LOOK = 30.0
"""Seconds until the next look at a conflict or a refused object, whose end may send us no event."""


class DecisionView(Protocol):
    """What a decision says; see :class:`slipway.engine.decide.Decision`."""

    @property
    def status(self) -> ModelDeploymentStatus:
        """Status to write."""
        ...

    @property
    def spec(self) -> ModelDeploymentSpec | None:
        """The spec where it is valid."""
        ...

    @property
    def revisions(self) -> Mapping[str, Revision]:
        """Revisions to keep, by name."""
        ...

    @property
    def requeue_after(self) -> float | None:
        """Seconds until the next look."""
        ...

    @property
    def events(self) -> tuple[EventRecord, ...]:
        """Events to post."""
        ...

    @property
    def queries(self) -> tuple[str, ...]:
        """Expressions that the next metrics snapshots are to answer."""
        ...

    @property
    def apply(self) -> bool:
        """Whether children may be touched."""
        ...

    @property
    def lost(self) -> frozenset[str]:
        """Revisions whose objects are to be left as they are."""
        ...


Decide = Callable[[Mapping[str, Any], Observed, MetricsView, float], DecisionView]
"""``(object, observed, metrics, now) -> decision``, pure."""


class Recorder(Protocol):
    """Takes Kubernetes Events."""

    def record(self, involved: Mapping[str, Any], record: EventRecord) -> None:
        """Take one event on an object."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a reconcile ended."""

    result: str
    """``ok``, ``conflict`` (start again at once), ``gone``, or ``restored``: the API server's state is older than what
    was known, so that everything has to be listed anew before anything is decided."""
    requeue_after: float | None = None
    """Seconds until the next look."""


class Reconciler:
    """Runs reconciles; safe for several keys at once, never for one key twice at once."""

    def __init__(
        self,
        *,
        client: Client,
        cache: Cache,
        observer: Observer,
        applier: Applier,
        remarks: Remarks,
        decide: Decide,
        metrics: Callable[[str, str], MetricsView],
        want: Callable[[str, str, Sequence[str]], None],
        render: RenderOptions,
        recorder: Recorder,
        telemetry: Telemetry,
        wall: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        listed_at: Callable[[], float] = lambda: -math.inf,
        witnesses: Sequence[Witness] = (),
    ) -> None:
        """``metrics`` gives the newest view by namespace and name, ``want`` is told which expressions the next ones are
        to answer; ``wall`` gives seconds since the epoch, ``clock`` runs on, ``listed_at``
        says by it when all ModelDeployments were last listed; ``witnesses`` may grow later.
        """
        self._client = client
        self._cache = cache
        self._observer = observer
        self._applier = applier
        self._remarks = remarks
        self._decide = decide
        self._metrics = metrics
        self._want = want
        self._render = render
        self._recorder = recorder
        self._telemetry = telemetry
        self._wall = wall
        self._adoption = Adoption(client, cache)
        self._reading = Reading(client, cache, clock, listed_at)
        self._holding = Holding(clock)
        self._witnesses = witnesses
        self._serial = itertools.count(1)

    async def reconcile(self, key: Key) -> Outcome:
        """Reconcile one ModelDeployment once.

        Raises :class:`~slipway.kube.failures.ApiError` when the API server fails in a way that a later run may not
        see; what was written until then is consistent.
        """
        known = self._cache.get(MODEL_DEPLOYMENT, key)
        try:
            raw = await self._reading.read(key)
        except NotFoundError:
            return self._gone(key)
        if raw["metadata"].get("deletionTimestamp"):
            # Everything we made has an owner reference and is collected with it.
            return Outcome("gone")
        if known is not None and is_older(resource_version(raw), resource_version(known)):
            # What is read is never older than what was seen before, unless etcd was restored from a backup.
            self._reading.doubt(key)
            return Outcome("restored")
        fields = {
            "key": str(key),
            "uid": uid_of(raw),
            "generation": raw["metadata"].get("generation", 0),
            "reconcile": next(self._serial),
        }
        token = context.set(fields)
        try:
            outcome = await self._reconcile(key, raw)
        except BaseException:
            self._reading.doubt(key)
            raise
        finally:
            context.reset(token)
        if outcome.result == "conflict":
            self._reading.doubt(key)
        return outcome

    def _gone(self, key: Key) -> Outcome:
        """Forget a ModelDeployment that is no more."""
        self._reading.forget(key)
        self._holding.end(key)
        self._remarks.forget(key)
        self._applier.forget(key)
        self._want(*key, ())
        return Outcome("gone")

    async def _is_gone(self, key: Key) -> bool:
        try:
            await self._client.get(MODEL_DEPLOYMENT, *key)
        except NotFoundError:
            return True
        return False

    async def _reconcile(self, key: Key, raw: Mapping[str, Any]) -> Outcome:
        try:
            await self._adopt(raw)
        except ConflictError:
            return Outcome("conflict")
        observed = await self._observer.observe(raw)
        now, metrics = self._wall(), self._metrics(*key)
        decision = self._decide(raw, observed, metrics, now)
        self._want(*key, decision.queries)
        patch = status_patch(raw, decision.status)
        if patch and not decision.events:
            held = self._holding.rest(key, raw.get("status") or {}, patch, decision.status)
            if held:
                return Outcome("ok", min(held, _asked(decision, now) or held))
        try:
            written = await persist(self._client, raw, patch) if patch else None
        except ConflictError:
            return Outcome("conflict")
        except NotFoundError:
            # Deleted since it was read; or its definition has no status, which is to be told.
            if await self._is_gone(key):
                return self._gone(key)
            raise
        if written is not None:
            self._cache.put(MODEL_DEPLOYMENT, written)
            self._reading.confirm(key, written)
        applied, refusals, before = Applied(), list[str](), self._remarks.conflicts.get(key)
        if decision.apply and decision.spec is not None:
            wanted = self._wanted(raw, decision, observed)
            mark = functools.partial(mark_victims, self._client, self._cache, metrics=metrics)
            applied = await self._applier.apply(Owner(key, uid_of(raw)), wanted, now, decision.lost, mark)
            refusals = self._remember(key, applied)
        self._emit(raw, written, decision, applied, refusals, now)
        news = self._remarks.conflicts.get(key) not in (None, before)
        return Outcome("ok", _next_look(_asked(decision, now), observed, applied, news=news))

    async def _adopt(self, raw: Mapping[str, Any]) -> None:
        """Take over what an earlier ModelDeployment of this name has left; only then is it seen as ours."""
        adopted = await self._adoption.adopt(raw)
        if not adopted:
            return
        for place in adopted:
            self._telemetry.changes.labels("adopt", place[0].name).inc()
        named = ", ".join(f"{kind.name} {place.name}" for kind, place in adopted)
        text = f"adopted what an earlier ModelDeployment of this name has left: {named}"
        self._recorder.record(raw, EventRecord("Adopted", text))
        log.info("%s", text)

    def _wanted(
        self, raw: Mapping[str, Any], decision: DecisionView, observed: Observed
    ) -> Sequence[Mapping[str, Any]]:
        assert decision.spec is not None
        key = key_of(raw)
        identity = Identity(name=key.name, namespace=key.namespace, uid=uid_of(raw))
        numbers = {name: definition.number for name, definition in observed.definitions.items() if definition.number}
        return desired(identity, decision.spec, decision.status, decision.revisions, self._render, numbers)

    def _remember(self, key: Key, applied: Applied) -> list[str]:
        """Keep what only another look at the cluster can dispel; gives the refusals that are news, in words."""
        if applied.conflict is not None:
            self._remarks.conflicts[key] = applied.conflict.kind, applied.conflict.key
        known = self._remarks.refused.pop(key, {})
        if not applied.refused:
            return []
        refused = {place: _refusal(place, error) for place, error in applied.refused.items()}
        self._remarks.refused[key] = refused
        news = {place: text for place, text in refused.items() if known.get(place) != text}
        for place in [place for place in news if isinstance(applied.refused[place], TerminatingError)]:
            # Nobody's mistake, and there can be no Event in that namespace.
            log.info("%s", news.pop(place))
        return list(news.values())

    def _emit(
        self,
        raw: Mapping[str, Any],
        written: Mapping[str, Any] | None,
        decision: DecisionView,
        applied: Applied,
        refusals: Sequence[str],
        now: float,
    ) -> None:
        """Events, metrics and log lines: only now that everything is written."""
        if written is not None:
            self._telemetry.changed(raw.get("status"), decision.status, now)
            _log_course(raw.get("status") or {}, decision.status)
        self._tell(raw, decision.status, now)
        for event in decision.events:
            self._recorder.record(raw, event)
        for step in applied.done:
            self._telemetry.changes.labels(step.operation.value, step.kind.name).inc()
            log.info("%s", step)
        for drift in applied.drifts:
            result, reason = ("given_up", "DriftFight") if drift.given_up else ("repaired", "DriftRepaired")
            self._telemetry.drifts.labels(drift.kind.name, result).inc()
            if not drift.known:
                self._recorder.record(raw, EventRecord(reason, str(drift), "Warning"))
                log.warning("%s", drift)
        for text in refusals:
            self._recorder.record(raw, EventRecord("ApplyRefused", text, "Warning"))
            log.error("%s", text)

    def _tell(self, raw: Mapping[str, Any], status: ModelDeploymentStatus, now: float) -> None:
        for witness in self._witnesses:
            try:
                witness.decided(raw, status, now)
            except Exception:
                # Whoever only looks on must not fail a reconcile.
                log.exception("a decision could not be told to %s", type(witness).__name__)


def _refusal(place: Place, error: ApiError) -> str:
    kind, key = place
    if isinstance(error, TerminatingError):
        return f"{kind.name} {key.name} is not made: namespace {key.namespace} is being deleted"
    unknown_kind = error.reason != "NotFound" or "requested resource" in error.message
    if isinstance(error, NotFoundError) and unknown_kind:
        return f"the API server does not know {kind.name} of {kind.api_version}; is it installed?"
    return f"the API server refuses {kind.name} {key.name}: {error}"


def _asked(decision: DecisionView, now: float) -> float | None:
    """Seconds until the next look that a decision asks for."""
    if decision.spec is None:
        return decision.requeue_after
    return next_look(decision.requeue_after, decision.status, decision.spec.traffic.settle.seconds, now)


def _next_look(asked: float | None, observed: Observed, applied: Applied, *, news: bool) -> float | None:
    """Seconds until the next reconcile: what the decision has asked for, sooner when something stands in the way.

    ``news`` says that a conflict was met that status does not speak of yet.
    """
    looks = [asked] if asked is not None else []
    if applied.done or any(drift.given_up and not drift.known for drift in applied.drifts):
        # A fight shows in status from the next look on.
        looks.append(LOOK_AGAIN)
    if applied.waiting:
        looks.append(WAIT_FOR_DELETION)
    if news:
        looks.append(0.0)
    if observed.conflict or applied.refused or any(drift.given_up for drift in applied.drifts):
        looks.append(BLOCKED_LOOK)
    return min(looks, default=None)


def _log_course(before: Mapping[str, Any], after: ModelDeploymentStatus) -> None:
    """One line when the phase, the versions in charge or the weight have changed."""
    old = (before.get("phase", ""), before.get("stable", ""), before.get("candidate", ""), before.get("weight", 0))
    new = (after.phase.value, after.stable, after.candidate, after.weight)
    if old != new:
        reason = after.rollout.reason if after.rollout else ""
        log.info(
            "%s: stable %s, candidate %s at %d %% (%s)",
            new[0],
            new[1] or "none",
            new[2] or "none",
            new[3],
            reason or "steady",
        )
