"""Make the cluster hold the objects wanted: apply what differs, delete what we own and no longer want.

An object that has our name but not our owner reference is never touched: server-side apply would adopt it silently.
What may be adopted, :mod:`slipway.engine.adoption` has adopted before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from slipway.kube.cache import Cache
from slipway.kube.client import FIELD_MANAGER, Client
from slipway.kube.comparison import difference, projected
from slipway.kube.drift import Drift, DriftLedger, Place
from slipway.kube.failures import ApiError, ConflictError, ForbiddenError, InvalidError, NotFoundError
from slipway.kube.kinds import (
    CHILDREN,
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    MODEL_DEPLOYMENT,
    POD_DISRUPTION_BUDGET,
    Kind,
    kind_of,
)
from slipway.kube.metadata import (
    APPLIED_HASH,
    Key,
    described_owner,
    foreign_manager,
    is_ours,
    is_predecessors,
    key_of,
    uid_of,
)
from slipway.kube.switches import switched_off

__all__ = ["Applied", "Applier", "Before", "Operation", "Owner", "Step", "plan"]

Object = Mapping[str, Any]

_INDEPENDENT = frozenset({DEPLOYMENT, POD_DISRUPTION_BUDGET, CONFIG_MAP})
"""Kinds whose refusal or conflict does not stop what comes after: no weight depends on them but through what is
observed."""

REFUSAL_HOLDS = 15.0
"""Seconds before an object that was refused is offered again unchanged."""


class Operation(StrEnum):
    """What is done to one object."""

    CREATE = "create"
    UPDATE = "update"
    REPAIR = "repair"
    KEEP = "keep"
    DELETE = "delete"
    WAIT = "wait"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Owner:
    """The ModelDeployment that objects are made for."""

    key: Key
    uid: str


@dataclass(frozen=True, slots=True)
class Step:
    """One object and what is to be done to it."""

    operation: Operation
    kind: Kind
    key: Key
    wanted: Object | None = None
    live: Object | None = None
    field: str = ""
    """Where the live object differs, or why it is left alone."""

    def __str__(self) -> str:
        where = f" ({self.field})" if self.field else ""
        return f"{self.operation} {self.kind.name} {self.key.name}{where}"


Before = Callable[[Step], Awaitable[None]]
"""Done right before an object is written."""


async def _nothing(step: Step) -> None:
    """What is done before a write where nothing is asked for."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """An object as the cache holds it and the hash of what it was found to agree with."""

    live: Object
    digest: str

    def holds(self, live: Object, wanted: Object) -> bool:
        """Whether neither has changed since; a copy in the cache is never changed, only replaced."""
        return live is self.live and self.digest != "" and self.digest == _hash(wanted)


@dataclass(frozen=True, slots=True)
class Taken:
    """An object that the API server took, but says otherwise: its own spelling, or what admission made of it."""

    digest: str
    """Hash of what was wanted."""
    content: Object
    """What the API server holds instead, reduced to what was wanted of it."""


@dataclass(slots=True)
class Applied:
    """What became of a plan."""

    done: list[Step] = field(default_factory=list)
    """Effective changes, in their order."""
    drifts: list[Drift] = field(default_factory=list)
    refused: dict[Place, ApiError] = field(default_factory=dict)
    """Objects that the API server would not take: invalid, forbidden, or of a kind that it does not know."""
    conflict: Step | None = None
    """An object of our name that is not ours. One of a kind that others do not wait for was passed over; any other
    means that nothing was done."""
    waiting: bool = False
    """Whether an object has to disappear first."""


def plan(
    owner: Owner,
    wanted: Sequence[Object],
    live: Mapping[Place, Object],
    owned: Iterable[Object],
    spared: Collection[str] = (),
    agreed: Mapping[Place, Agreement] | None = None,
    taken: Mapping[Place, Taken] | None = None,
) -> list[Step]:
    """Steps that lead from ``live`` to ``wanted``, in their order; ``owned`` are our present children.

    Children by a name in ``spared`` are never deleted: nobody knows any more how to make them again. What has
    ``agreed`` is not compared again; what was ``taken`` in other words is compared with these.

    Nothing is deleted when nothing is wanted at all: that is no state a ModelDeployment can be in.
    """
    agreed, taken = agreed or {}, taken or {}
    places = [(kind_of(obj), key_of(obj)) for obj in wanted]
    steps = [
        _step(owner, obj, live.get(place), agreed.get(place), taken.get(place))
        for obj, place in zip(wanted, places, strict=True)
    ]
    if not wanted:
        return steps
    kept = {(step.kind, step.key) for step in steps}
    order = {kind.plural: number for number, kind in enumerate(CHILDREN)}
    for obj in sorted(owned, key=lambda obj: order[kind_of(obj).plural]):
        place = (kind_of(obj), key_of(obj))
        if key_of(obj).name in spared:
            continue
        if place not in kept and is_ours(obj, owner.uid) and not obj["metadata"].get("deletionTimestamp"):
            steps.append(Step(Operation.DELETE, *place, live=obj))
    return steps


def _step(owner: Owner, wanted: Object, live: Object | None, agreement: Agreement | None, taken: Taken | None) -> Step:
    place = (kind_of(wanted), key_of(wanted))
    if live is None:
        return Step(Operation.CREATE, *place, wanted)
    if is_predecessors(live, owner.key.name, owner.uid):
        return Step(Operation.WAIT, *place, wanted, live, "belongs to a deleted ModelDeployment of this name")
    if not is_ours(live, owner.uid):
        return Step(Operation.CONFLICT, *place, wanted, live, described_owner(live))
    if live["metadata"].get("deletionTimestamp"):
        return Step(Operation.WAIT, *place, wanted, live, "is being deleted")
    if agreement is not None and agreement.holds(live, wanted):
        return Step(Operation.KEEP, *place, wanted, live)
    wanted = switched_off(wanted, live)
    expected = switched_off(taken.content, live) if taken is not None and taken.digest == _hash(wanted) else wanted
    lacking = difference(live, expected)
    if not lacking:
        return Step(Operation.KEEP, *place, wanted, live)
    lacking = difference(_content(live), _content(expected)) or lacking
    # What we wrote carries our hash: with the same one, or with none left, somebody else has been at it.
    operation = Operation.REPAIR if _hash(live) in ("", _hash(wanted)) else Operation.UPDATE
    return Step(operation, *place, wanted, live, lacking)


def _is_another(step: Step) -> bool:
    """Whether somebody has put another ControllerRevision in place of ours: what it holds can never be changed."""
    if step.kind != CONTROLLER_REVISION or step.live is None or step.wanted is None:
        return False
    return bool(difference(step.live.get("data"), step.wanted.get("data")))


def _belongs(key: Key, owner: Key) -> bool:
    """Whether an object is named after a ModelDeployment, or might be: what is forgotten in error is found out anew."""
    return key.namespace == owner.namespace and (key.name == owner.name or key.name.startswith(f"{owner.name}-"))


def _content(obj: Object) -> dict[str, Any]:
    """What an object says, apart from its metadata: the place to name when both differ."""
    return {name: value for name, value in obj.items() if name != "metadata"}


def _hash(obj: Object) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(APPLIED_HASH, ""))


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An object that the API server would not take."""

    digest: str
    until: float
    error: ApiError


class Applier:
    """Carries plans out."""

    def __init__(self, client: Client, cache: Cache, ledger: DriftLedger | None = None) -> None:
        self._client = client
        self._cache = cache
        self.ledger = ledger or DriftLedger()
        self._refusals: dict[Place, _Refusal] = {}
        self._agreed: dict[Place, Agreement] = {}
        self._taken: dict[Place, Taken] = {}

    async def apply(
        self,
        owner: Owner,
        wanted: Sequence[Object],
        now: float,
        spared: Collection[str] = (),
        before: Before = _nothing,
    ) -> Applied:
        """Bring the children of ``owner`` to what is wanted; ``now`` is in seconds since the epoch.

        Children by a name in ``spared`` are not deleted, though they are not wanted. ``before`` is awaited before each
        write, not before a deletion.

        Raises :class:`~slipway.kube.failures.ApiError` for failures that a later run may not see, such as an
        unreachable API server. What was done until then stays done.
        """
        live = await self._live(wanted)
        owned = [obj for kind in CHILDREN for obj in self._cache.owned(kind, owner.key)]
        steps = plan(owner, wanted, live, owned, spared, self._agreed, self._taken)
        self._remember(steps)
        applied = Applied()
        conflicts = [step for step in steps if step.operation is Operation.CONFLICT]
        if conflicts:
            conflicts.sort(key=lambda step: step.kind in _INDEPENDENT)
            applied.conflict = conflicts[0]
            if applied.conflict.kind not in _INDEPENDENT:
                return applied
        for step in steps:
            if self._is_leaving(owner):
                applied.waiting = True
                break
            if not await self._carry_out(step, applied, now, before):
                break
        return applied

    def _is_leaving(self, owner: Owner) -> bool:
        """Whether a watch has told meanwhile that the owner is being deleted.

        With its children orphaned, a write would give them back an owner that is gone in a moment, and the garbage
        collector would take them away with their pods.
        """
        known = self._cache.get(MODEL_DEPLOYMENT, owner.key)
        return known is not None and (uid_of(known) != owner.uid or bool(known["metadata"].get("deletionTimestamp")))

    def _remember(self, steps: Iterable[Step]) -> None:
        """Keep which objects agree with what is wanted, so that they are compared once."""
        for step in steps:
            place = (step.kind, step.key)
            if step.operation is Operation.KEEP and step.live is not None and step.wanted is not None:
                self._agreed[place] = Agreement(step.live, _hash(step.wanted))
            else:
                self._agreed.pop(place, None)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of the objects of a ModelDeployment that is gone."""
        for known in (self._refusals, self._agreed, self._taken):
            for place in [place for place in known if _belongs(place[1], key)]:
                del known[place]
        self.ledger.forget(lambda place: _belongs(place[1], key))

    async def find(self, kind: Kind, key: Key) -> Object | None:
        """An object from the cache, or read: what lacks our labels is not watched."""
        known = self._cache.get(kind, key)
        if known is not None:
            return known
        try:
            return await self._client.get(kind, key.namespace, key.name)
        except NotFoundError:
            return None

    async def _live(self, wanted: Sequence[Object]) -> dict[Place, Object]:
        places = [(kind_of(obj), key_of(obj)) for obj in wanted]
        # A kind that is not served may be one that we have no right to ask for.
        places = [place for place in places if self._cache.served(place[0])]
        found = await asyncio.gather(*(self.find(*place) for place in places))
        return {place: obj for place, obj in zip(places, found, strict=True) if obj is not None}

    async def _carry_out(self, step: Step, applied: Applied, now: float, before: Before) -> bool:
        """Do one step; False when the steps after it must not be done."""
        match step.operation:
            case Operation.KEEP:
                self.ledger.settled(step.kind, step.key)
                return True
            case Operation.CONFLICT:
                return True
            case Operation.WAIT:
                applied.waiting = True
                return step.kind in _INDEPENDENT
            case Operation.DELETE:
                await self._delete(step, applied)
                return True
            case Operation.REPAIR if not self._repair(step, applied, now):
                return True
        if _is_another(step):
            await self._delete(step, applied)
            return True
        error = await self._write(step, now, before)
        if error is not None:
            applied.refused[step.kind, step.key] = error
            return step.kind in _INDEPENDENT
        if step.operation is Operation.REPAIR and self._nothing_to_repair(step):
            # Nobody had been at it: the API server has its own words for what we want.
            self.ledger.withdraw(step.kind, step.key)
            applied.drifts.pop()
            return True
        applied.done.append(step)
        return True

    async def _write(self, step: Step, now: float, before: Before) -> ApiError | None:
        """Apply one object; gives the refusal, where it is one that holds for now."""
        assert step.wanted is not None
        place = (step.kind, step.key)
        known = self._refusals.get(place)
        if known is not None and known.digest == _hash(step.wanted) and now < known.until:
            return known.error
        await before(step)
        try:
            answer = await self._client.apply(step.kind, step.wanted)
        except (InvalidError, ForbiddenError, NotFoundError) as error:
            self._refusals[place] = _Refusal(_hash(step.wanted), now + REFUSAL_HOLDS, error)
            return error
        self._refusals.pop(place, None)
        self._keep(place, step.wanted, answer)
        return None

    def _keep(self, place: Place, wanted: Object, answer: Object) -> None:
        """Remember what the API server made of an object, and whether it is what was wanted."""
        fresh = self._cache.put(place[0], answer)
        self._taken.pop(place, None)
        if difference(answer, wanted):
            self._taken[place] = Taken(_hash(wanted), projected(answer, wanted))
        kept = self._cache.get(*place)
        if fresh and kept is not None:
            self._agreed[place] = Agreement(kept, _hash(wanted))

    def _nothing_to_repair(self, step: Step) -> bool:
        """Whether an object had all along been what the API server makes of what is wanted."""
        assert step.live is not None
        taken = self._taken.get((step.kind, step.key))
        return taken is not None and not difference(step.live, taken.content)

    def _repair(self, step: Step, applied: Applied, now: float) -> bool:
        """Whether a drift is repaired now."""
        assert step.live is not None
        manager = foreign_manager(step.live, FIELD_MANAGER)
        drift = self.ledger.assess(step.kind, step.key, manager, step.field, now)
        applied.drifts.append(drift)
        return not drift.given_up

    async def _delete(self, step: Step, applied: Applied) -> None:
        assert step.live is not None
        try:
            answer = await self._client.delete(step.kind, *step.key, uid=uid_of(step.live))
        except NotFoundError:
            self._cache.remove(step.kind, step.live)
            return
        except ConflictError:
            if await self._still_there(step):
                raise
            return
        if answer.get("kind") == step.kind.name:
            self._cache.put(step.kind, answer)
        else:
            self._cache.remove(step.kind, step.live)
        applied.done.append(step)

    async def _still_there(self, step: Step) -> bool:
        """Whether an object that could not be deleted is there yet; another one of its name is remembered instead."""
        assert step.live is not None
        try:
            found = await self._client.get(step.kind, *step.key)
        except NotFoundError:
            self._cache.remove(step.kind, step.live)
            return False
        self._cache.put(step.kind, found)
        return uid_of(found) == uid_of(step.live)
