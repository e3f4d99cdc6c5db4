"""Faults that last, each during a rollout, in virtual time: what must hold is asserted."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from slipway.kube.kinds import (
    CONTROLLER_REVISION,
    DEPLOYMENT,
    DESTINATION_RULE,
    LEASE,
    MODEL_DEPLOYMENT,
    SERVICE,
    VIRTUAL_SERVICE,
    Kind,
)
from slipway.kube.metadata import Key

from e2e.faults.api import Api, Request, definitions
from e2e.faults.operators import Operator
from e2e.faults.table import Row
from e2e.faults.world import NAME, Wall, World
from e2e.sandbox.apiserver.failures import ApiError

__all__ = ["FAULTS", "LongFault", "every_fault", "suffer"]

AWAY = 120.0
"""Seconds for which a server or a network is away."""
HOUR = 3600.0


@dataclass(frozen=True)
class LongFault:
    """A fault and what has to hold."""

    title: str
    injected: str
    holds: str
    play: Callable[[World], Awaitable[str]]
    """Gives figures in words; AssertionError where something did not hold."""
    standbys: int = 0
    leased: bool = False
    requests: bool = True
    """Whether no request may be lost."""


async def _now() -> float:
    return asyncio.get_running_loop().time()


async def _at_ten(world: World) -> Operator:
    await world.declare("v2", "v1", "v2")
    await world.at("v2", 10)
    return world.operators[0]


async def _promoted(world: World, seconds: float = 400.0) -> float:
    """Wait for the promotion; gives how long that took, and checks that every weight was written in its turn."""
    begun = await _now()
    async with asyncio.timeout(seconds):
        await world.finished("v2", "Promoted", "v2", seconds)
    shares = [next((weight for name, weight in one.items() if "-v2-" in name), 0) for one in world.mesh.course]
    assert shares == sorted(shares), shares
    assert {0, 10, 50, 100} >= set(shares) >= {10, 50, 100}, shares
    return await _now() - begun


async def _apart(operator: Operator, switch: str) -> int:
    """Keep the operator from the API server for a while by a switch of its network; gives the calls it tried."""
    network, before = operator.network, operator.network.tried
    setattr(network, switch, True)
    operator.watches.silent = True
    await asyncio.sleep(AWAY)
    tried = network.tried - before
    setattr(network, switch, False)
    operator.watches.again()
    assert tried < 5 * AWAY, f"{tried} calls in {AWAY:g} s"
    return tried


async def api_away(world: World) -> str:
    """The API server refuses connections."""
    tried = await _apart(await _at_ten(world), "refused")
    return f"{tried} calls while away, promoted {await _promoted(world):.0f} s after it was back"


async def network_cut(world: World) -> str:
    """Nothing is answered, nothing refused."""
    tried = await _apart(await _at_ten(world), "cut")
    return f"{tried} calls while cut, promoted {await _promoted(world):.0f} s after"


async def silent_watches(world: World) -> str:
    """The streams stay open and tell nothing."""
    world.operators[0].watches.silent = True
    await world.declare("v2", "v1", "v2")
    seconds = await _promoted(world, 3000.0)
    return f"promoted after {seconds:.0f} s, by lists alone"


async def vanished_objects(world: World) -> str:
    """Objects vanish while the streams tell nothing."""
    operator = world.operators[0]
    world.mesh.armed = False
    operator.watches.silent = True
    gone = [(kind, world.api.objects(kind, world.namespace)[0]) for kind in (DEPLOYMENT, SERVICE, VIRTUAL_SERVICE)]
    for kind, obj in gone:
        world.api.drop(kind, obj)
    begun = await _now()
    for kind, obj in gone:
        await _eventually(world, kind, obj["metadata"]["name"], 340.0)
    return f"all remade within {await _now() - begun:.0f} s (lists every 300 s)"


async def _eventually(world: World, kind: Kind, name: str, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while world.api.find(kind, world.namespace, name) is None:  # noqa: ASYNC110  only asking tells
            await asyncio.sleep(1.0)


async def prometheus_away(world: World) -> str:
    """Prometheus gives no answer."""
    await _at_ten(world)
    world.demand.away = True
    await asyncio.sleep(AWAY)
    entry = next(one for one in world.status["versions"] if one["name"] == "v2")
    assert entry["weight"]["applied"] == 10, entry
    reason = world.status["rollout"]["reason"]
    world.demand.away = False
    return f"held at 10 % ({reason}), promoted {await _promoted(world):.0f} s after"


def clock_jump(seconds: float) -> Callable[[World], Awaitable[str]]:
    """The wall clock jumps; the monotonic one does not."""

    async def play(world: World) -> str:
        await _at_ten(world)
        world.wall.offset += seconds
        try:
            took = await _promoted(world, 1200.0)
        finally:
            world.wall.offset -= seconds
        return f"promoted {took:.0f} s after the jump"

    return play


async def restored_backup(world: World) -> str:
    """etcd is restored from a backup taken at 10 %, after the rollout had ended: resource versions go back."""
    operator = await _at_ten(world)
    backup = world.api.backup()
    await world.finished("v2", "Promoted", alone="v2")
    newest = world.api.cluster.store.version
    world.mesh.armed = False
    world.detach()
    operator.watches.stop()
    world.api.restore(backup)
    world.attach()
    operator.watches.again()
    assert world.api.cluster.store.version < newest
    begun = await _now()
    await world.finished("v2", "Promoted", alone="v2")
    assert len(world.status["history"]) == 2, world.status["history"]
    kept = {obj["metadata"]["name"] for obj in world.api.objects(DEPLOYMENT, world.namespace)}
    assert all("-v2-" in name for name in kept), kept
    return f"went on from 10 % and promoted after {await _now() - begun:.0f} s"


async def status_wiped(world: World) -> str:
    """Somebody clears the status."""
    await _at_ten(world)
    await world.patch_status(None)
    await world.until("a status", lambda status: status.get("rollout"))
    return f"went on from the live weight, promoted after {await _promoted(world):.0f} s"


async def definitions_deleted(world: World) -> str:
    """ControllerRevisions are deleted by hand."""
    await _at_ten(world)
    for obj in world.api.objects(CONTROLLER_REVISION, world.namespace):
        world.api.drop(CONTROLLER_REVISION, obj)
    pods = {obj["metadata"]["uid"] for obj in world.api.objects(DEPLOYMENT, world.namespace)}
    await asyncio.sleep(5.0)
    again = {obj["metadata"]["uid"] for obj in world.api.objects(DEPLOYMENT, world.namespace)}
    assert pods == again
    assert len(world.api.objects(CONTROLLER_REVISION, world.namespace)) == 2
    return f"remade within 5 s, promoted after {await _promoted(world):.0f} s"


async def crd_applied_again(world: World) -> str:
    """The definition of ModelDeployments is applied anew."""
    operator = await _at_ten(world)
    ours = next(one for one in definitions() if one["spec"]["group"] == MODEL_DEPLOYMENT.group)
    ours["metadata"]["annotations"] = {"again": "true"}
    await world.api.install(ours)
    operator.watches.again()
    return f"promoted after {await _promoted(world):.0f} s"


async def mesh_removed(world: World) -> str:
    """Istio's definitions are deleted, its objects with them, and come back after some minutes."""
    operator = world.operators[0]
    world.mesh.armed = False
    mesh = [one for one in definitions() if one["spec"]["names"]["kind"] in ("VirtualService", "DestinationRule")]
    before = operator.network.tried
    for one in mesh:
        await world.api.uninstall(one["metadata"]["name"])
    await asyncio.sleep(400.0)
    assert not world.api.serves(VIRTUAL_SERVICE)
    tried = operator.network.tried - before
    assert tried < 800, f"{tried} calls in 400 s"
    for one in mesh:
        await world.api.install(one)
    operator.watches.again()
    begun = await _now()
    for kind in (VIRTUAL_SERVICE, DESTINATION_RULE):
        await _eventually(world, kind, NAME, 60.0)
    seconds = await _now() - begun
    await world.until("it is ready", lambda status: status["phase"] == "Ready", 60.0)
    return f"{tried} calls in 400 s without, routes back after {seconds:.0f} s"


async def namespace_ends(world: World) -> str:
    """The namespace is deleted at 10 %."""
    operator = await _at_ten(world)
    world.mesh.armed = False
    before = len(world.api.audit)
    await world.api.ask("DELETE", f"/api/v1/namespaces/{world.namespace}")
    await asyncio.sleep(60.0)
    assert not [key for _, key, _ in world.api.cluster.store.everything() if world.namespace in key]
    asked = [one for one in world.api.audit[before:] if one.writes and one.who == operator.settings.identity]
    assert len(asked) <= 20, f"{len(asked)} writes"
    return f"gone; {len(asked)} writes of the operator after the deletion"


async def namespace_lingers(world: World) -> str:
    """Children are deleted and creations forbidden for a minute, while the ModelDeployment is still there."""
    operator = await _at_ten(world)
    world.mesh.armed = False
    before = operator.network.tried

    async def forbid(method: str, path: str) -> ApiError | None:
        inside = f"/namespaces/{world.namespace}/" in path and method in ("POST", "PATCH")
        if not inside or "/modeldeployments/" in path:
            return None
        text = f"unable to create new content in namespace {world.namespace} because it is being terminated"
        return ApiError(403, "Forbidden", text)

    world.api.handlers.fault = forbid
    for kind in (VIRTUAL_SERVICE, DESTINATION_RULE, DEPLOYMENT, SERVICE):
        for obj in world.api.objects(kind, world.namespace):
            world.api.drop(kind, obj)
    await asyncio.sleep(60.0)
    world.api.handlers.fault = None
    tried = operator.network.tried - before
    assert tried < 400, f"{tried} calls in 60 s"
    await _eventually(world, VIRTUAL_SERVICE, NAME, 60.0)
    await world.until("an end", lambda status: status["rollout"]["stage"] == "Finished")
    await world.until("one version", lambda status: len(status["versions"]) == 1)
    return f"{tried} calls in a minute"


async def evicted(world: World) -> str:
    """The leader gets SIGTERM; a standby is there."""
    leader = await _at_ten(world)
    begun, before = await _now(), len(world.api.audit)
    await leader.stop()
    await world.until("a write", lambda _: _writes(world, "op-1", before), 30.0)
    seconds = _writes(world, "op-1", before)[0].at - begun
    assert seconds < 8.0, seconds
    return f"the standby wrote {seconds:.1f} s later, promoted after {await _promoted(world):.0f} s"


def _writes(world: World, who: str, since: int) -> list[Request]:
    """Changes made by an operator; neither Events nor its lease."""
    return [
        one
        for one in world.api.audit[since:]
        if one.who == who and one.writes and "/leases" not in one.call.path and "/events" not in one.call.path
    ]


async def partitioned(world: World) -> str:
    """The leader's network is cut for a minute, longer than its lease; what it had sent arrives afterwards."""
    return await _usurped(world, "")


async def lease_hangs(world: World) -> str:
    """The leader's calls for its lease are never answered for a minute; all others are."""
    return await _usurped(world, "/leases/")


async def _usurped(world: World, paths: str) -> str:
    leader = await _at_ten(world)
    before, begun = len(world.api.audit), await _now()
    leader.network.paths = paths
    leader.network.cut = True
    leader.watches.silent = not paths
    await world.until("a write", lambda _: _writes(world, "op-1", before), 60.0)
    seconds = _writes(world, "op-1", before)[0].at - begun
    await asyncio.sleep(60.0 - seconds)
    leader.network.cut = False
    took = await _promoted(world)
    reigns = [one.who for one in world.api.audit[before:] if _reigns(world, one)]
    turns = [who for number, who in enumerate(reigns) if number == 0 or reigns[number - 1] != who]
    assert turns in (["op-1"], ["op-0", "op-1"]), turns
    assert leader.ended and leader.ended[0] - begun < seconds, "the old leader had not ended by then"
    return f"the standby wrote {seconds:.0f} s after the cut, the old leader never again; promoted after {took:.0f} s"


def _reigns(world: World, one: Request) -> bool:
    return one.writes and one.status < 300 and "/leases" not in one.call.path and "/events" not in one.call.path


FAULTS = (
    LongFault("API server away for 2 min", "connections refused", "promoted, no hot loop", api_away),
    LongFault("API server away for 2 min, with a lease", "the same", "the same", api_away, leased=True),
    LongFault("network dead for 2 min", "no answer at all", "promoted, no hot loop", network_cut),
    LongFault("watches silent", "streams open, no bytes", "promoted by lists", silent_watches),
    LongFault(
        "objects vanish unseen",
        "removed while watches are silent",
        "remade by a list",
        vanished_objects,
        requests=False,
    ),
    LongFault("Prometheus away for 2 min", "no answer", "held at 10 %, then promoted", prometheus_away),
    LongFault("clock 1 h forward", "wall clock jumps at 10 %", "every step, evidence honest", clock_jump(HOUR)),
    LongFault("clock 1 h back", "wall clock jumps at 10 %", "every step, evidence honest", clock_jump(-HOUR)),
    LongFault(
        "etcd restored from an older backup",
        "store replaced by one from 10 %, versions go back",
        "goes on from 10 %, no orphan, no ghost in the cache",
        restored_backup,
        requests=False,
    ),
    LongFault("status wiped", "merge patch with null at 10 %", "goes on from the live weight", status_wiped),
    LongFault("ControllerRevisions deleted", "all of them, at 10 %", "remade, no pod restarted", definitions_deleted),
    LongFault("CRD applied again", "with another annotation, at 10 %", "promoted", crd_applied_again),
    LongFault(
        "Istio's CRDs removed", "deleted for 400 s", "no hot loop, routes come back", mesh_removed, requests=False
    ),
    LongFault("namespace deleted", "at 10 %", "everything gone, no hot loop", namespace_ends, requests=False),
    LongFault(
        "namespace lingers",
        "children gone, creations 403 for a minute",
        "no hot loop",
        namespace_lingers,
        requests=False,
    ),
    LongFault("operator evicted", "SIGTERM at 10 %", "standby leads within 8 s", evicted, standbys=1, leased=True),
    LongFault(
        "leader partitioned", "its network cut for a minute", "never two writers", partitioned, standbys=1, leased=True
    ),
    LongFault(
        "lease calls hang",
        "the leader's calls for its lease unanswered for a minute",
        "never two writers",
        lease_hangs,
        standbys=1,
        leased=True,
    ),
)


@contextlib.asynccontextmanager
async def _stage(fault: LongFault) -> AsyncIterator[World]:
    wall = Wall()
    api = Api(wall)
    await api.start()
    async with World.of(api, wall) as world:
        lease = Key(world.namespace, "leader") if fault.leased else None
        for number in range(1 + fault.standbys):
            world.operator(lease=lease)
            if lease and number == 0:
                await _eventually(world, LEASE, "leader", 30.0)
        await world.declare("v1", "v1")
        await world.finished("v1", "Promoted", alone="v1")
        world.mesh.armed = True
        world.operators[0].injector.arm()
        yield world


async def suffer(fault: LongFault) -> str:
    """Play one fault in a cluster of its own; gives figures in words, AssertionError where something did not hold."""
    async with _stage(fault) as world:
        said = await fault.play(world)
        lost = world.faults() if fault.requests else []
        assert not lost, lost[:5]
        return said


async def every_fault(words: list[str]) -> list[Row]:
    """All faults that have one of the words in their title."""
    rows = []
    for fault in FAULTS:
        if words and not any(word in fault.title for word in words):
            continue
        said, failed = "", list[str]()
        try:
            said = await suffer(fault)
        except (AssertionError, TimeoutError) as error:
            failed.append(repr(error)[:1500])
        rows.append(Row(fault.title, fault.injected, fault.holds, 1, tuple(failed), said))
        print(rows[-1].fault, *rows[-1].cells[-1:], *failed, sep=": ", file=sys.stderr, flush=True)
    return rows
