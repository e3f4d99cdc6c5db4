"""For each right of the operator that is no watch: what to do, and what is seen only where the right is missing."""

from collections.abc import Callable
from dataclasses import dataclass

from slipway.kube.kinds import (
    CHILDREN,
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    EVENT,
    HTTP_ROUTE,
    LEASE,
    MODEL_DEPLOYMENT,
    POD,
    POD_DISRUPTION_BUDGET,
    SCALED_OBJECT,
    Kind,
)
from slipway.kube.lease import LeaseLostError

from e2e.faults.world import World
from tests.rights import plays
from tests.rights.plays import Play
from tests.rights.roles import Right
from tests.rights.stage import events, names, told

COST = "controller.kubernetes.io/pod-deletion-cost"
REPEATED = "DriftRepaired"


@dataclass(frozen=True)
class Trial:
    """One right."""

    right: Right
    play: Play
    broken: Callable[[World], bool]
    """Whether the consequence is there."""
    consequence: str
    """In words, for the documentation."""


def _of(kind: Kind, verb: str) -> Right:
    return Right(kind.group, kind.plural, verb)


def _failed(right: Right, reason: str = "ReconcileFailed") -> Callable[[World], bool]:
    """Whether an Event says that the operator lacks the right."""
    return lambda world: told(world, reason, f'cannot {right.verb} resource "{right.resource}"')


def _absent(kind: Kind, right: Right, reason: str) -> Callable[[World], bool]:
    return lambda world: not names(world, kind) and _failed(right, reason)(world)


def _never_began(world: World) -> bool:
    return not world.status and not world.operators[0].engine.resync.primed.is_set()


def _never_led(world: World) -> bool:
    operator = world.operators[0]
    return not world.status and operator.engine.resync.primed.is_set() and not operator.engine.health.leading


def _lease_lost(world: World) -> bool:
    return any(
        isinstance(one, BaseExceptionGroup) and one.subgroup(LeaseLostError) for one in world.operators[0].failures
    )


def _left(kind: Kind, right: Right, prefix: str = "") -> Callable[[World], bool]:
    """Whether something of the kind is still there that the right is needed to remove."""
    return lambda world: any(name.startswith(prefix) for name in names(world, kind)) and _failed(right)(world)


def _made_by(kind: Kind) -> Play:
    return {HTTP_ROUTE: plays.route, CONFIG_MAP: plays.compare}.get(kind, plays.begin)


def _of_child(kind: Kind) -> list[Trial]:
    listing, reading, creating, patching = (_of(kind, verb) for verb in ("list", "get", "create", "patch"))
    play = _made_by(kind)
    return [
        Trial(listing, plays.route, _never_began, "the operator never gets ready: nothing is reconciled"),
        Trial(
            reading,
            play,
            _absent(kind, reading, "ReconcileFailed"),
            "no more writes once one is wanted: whether its name is free cannot be told (`ReconcileFailed`)",
        ),
        Trial(
            creating,
            play,
            _absent(kind, creating, "ApplyRefused"),
            f"no {kind.name} is made (`ApplyRefused`)",
        ),
        Trial(
            patching,
            play,
            _absent(kind, patching, "ApplyRefused"),
            f"no {kind.name} is made or kept up to date: it is written by server-side apply (`ApplyRefused`)",
        ),
        _removal(kind),
    ]


def _removal(kind: Kind) -> Trial:
    right = _of(kind, "delete")
    if kind in (DEPLOYMENT, POD_DISRUPTION_BUDGET, CONTROLLER_REVISION):
        what = "beyond the history limit" if kind == CONTROLLER_REVISION else "of the version before"
        return Trial(right, plays.succeed, _left(kind, right, "m-v1-"), f"the {kind.name} {what} stays")
    if kind in (CONFIG_MAP,):
        return Trial(right, plays.forget, _left(kind, right), "a comparison's settings stay after its end")
    if kind.plural == "services":
        return Trial(right, plays.forget, _left(kind, right, "m-v2-"), "a candidate's Service stays after its end")
    if kind == HTTP_ROUTE:
        return Trial(right, plays.move, _left(kind, right), "the HTTPRoute stays when the provider is changed")
    return Trial(right, plays.shed, _left(kind, right), f"the {kind.name} stays when it is wanted no more")


def _others() -> list[Trial]:
    own, status = _of(MODEL_DEPLOYMENT, "get"), Right(MODEL_DEPLOYMENT.group, "modeldeployments/status", "patch")
    finalizers = Right(MODEL_DEPLOYMENT.group, "modeldeployments/finalizers", "update")
    unready = "the operator never gets ready: nothing is reconciled"
    return [
        *(Trial(_of(kind, "list"), plays.route, _never_began, unready) for kind in (MODEL_DEPLOYMENT, POD)),
        Trial(_of(SCALED_OBJECT, "list"), plays.route, _never_began, unready),
        Trial(
            own,
            plays.meddle_later,
            _failed(own),
            "nothing is reconciled after a restart of the operator (`ReconcileFailed`)",
        ),
        Trial(
            status,
            plays.route,
            lambda world: not world.status and not world.children() and _failed(status)(world),
            "nothing is made: status is written before anything else (`ReconcileFailed`)",
        ),
        Trial(
            finalizers,
            plays.route,
            lambda world: not names(world, DEPLOYMENT) and told(world, "ApplyRefused", "cannot set blockOwnerDeletion"),
            "nothing is made where OwnerReferencesPermissionEnforcement is on, as on OpenShift (`ApplyRefused`)",
        ),
        Trial(
            _of(POD, "patch"),
            plays.shrink,
            lambda world: not any(COST in (pod["metadata"].get("annotations") or {}) for pod in _pods(world)),
            "replicas go without regard to the requests that they have",
        ),
        *_of_events(),
        *_of_the_lease(),
    ]


def _pods(world: World) -> list[dict]:
    """Those that were there after the last change; replicas that are gone cannot be asked any more."""
    return world.api.objects(POD, world.namespace)


def _of_events() -> list[Trial]:
    def counted(world: World) -> int:
        return max((event["count"] for event in events(world) if event["reason"] == REPEATED), default=0)

    return [
        Trial(_of(EVENT, "create"), plays.route, lambda world: bool(world.status and not events(world)), "no Events"),
        Trial(
            _of(EVENT, "patch"),
            plays.meddle,
            lambda world: counted(world) == 1,
            "an Event that is repeated counts 1 for ever",
        ),
        Trial(
            _of(EVENT, "get"),
            plays.meddle_later,
            lambda world: counted(world) == 1,
            "what happens again after a restart of the operator is not counted",
        ),
    ]


def _of_the_lease() -> list[Trial]:
    return [
        Trial(_of(LEASE, "get"), plays.route, _never_led, "no operator ever leads: nothing is reconciled"),
        Trial(_of(LEASE, "create"), plays.route, _never_led, "the first operator never leads: nothing is reconciled"),
        Trial(_of(LEASE, "update"), plays.route, _lease_lost, "the leader ends every ten seconds: it cannot renew"),
    ]


TRIALS = {trial.right: trial for trial in (*(one for kind in CHILDREN for one in _of_child(kind)), *_others())}
