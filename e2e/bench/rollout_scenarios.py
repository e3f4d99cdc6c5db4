"""What may happen during a rollout, each played against a ModelDeployment of its own while it is under load."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.bench.long_requests import PIECES, slow_request, stream
from e2e.bench.valve import Valve
from e2e.sandbox.cluster import Sandbox
from e2e.sandbox.controllers.client import PODS
from tests.integration.bench import Bench, Status
from tests.integration.operators import Operator

__all__ = ["SCENARIOS", "Arena", "Scenario"]

MESH_DELAY = 5.0
"""Seconds by which Envoy lags in the scenario with a slow mesh."""
OUTAGE = 8.0
"""Seconds for which Prometheus stays away after the rollout has said so."""
LONG = 8.0
"""Seconds that the requests take which are in flight when their version is retired."""
ERRORS = {"name": "errors", "metric": "errorRate", "maxRatio": 1.5, "maxValue": "0.3"}
"""Wide bounds, so that some dozens of requests are enough for a verdict."""


def _steps(*weights: int, hold: str = "1s") -> list[dict[str, Any]]:
    return [{"weight": weight, "hold": hold} for weight in weights]


@dataclass(frozen=True)
class Arena:
    """Where a scenario is played."""

    bench: Bench
    operator: Operator
    sandbox: Sandbox
    prometheus: Valve
    name: str
    """Of the ModelDeployment."""
    spec: Mapping[str, Any]

    async def apply(self, serve: str, *live: str, **more: Any) -> None:
        """Declare these versions, one of them to be served; `more` is merged into the scenario's spec."""
        versions = [self.bench.version(name, f"good-{1 + int(name[1:]) % 2}") for name in live]
        spec = dict(self.spec)
        for part, fields in more.items():
            spec[part] = {**spec.get(part, {}), **fields}
        await self.bench.apply(self.bench.declare(self.name, *versions, serve=serve, **spec))

    async def until(self, what: str, holds: Callable[[Status], Any], seconds: float = 90.0) -> Status:
        """Wait for a status."""
        return await self.bench.until(self.name, what, holds, seconds)

    async def at(self, version: str, weight: int) -> Status:
        """Wait until a version's rollout stands at a confirmed weight."""

        def there(status: Status) -> bool:
            rollout = status.get("rollout") or {}
            stands = (rollout.get("to"), rollout.get("stage")) == (version, "Observing")
            return stands and _weight(status, version) == weight

        return await self.until(f"{version} at {weight} %", there)

    async def finished(self, version: str, outcome: str) -> str:
        """Wait for the end of a version's rollout; AssertionError if it ends otherwise."""
        await self.bench.finished(self.name, version, outcome)
        return f"{version} {outcome}"

    async def alone(self, version: str) -> None:
        """Wait until the pods of all other versions are gone."""
        await self.until(f"only {version} lives", lambda s: [entry["name"] for entry in s["versions"]] == [version])


def _weight(status: Status, version: str) -> int:
    return next((int(entry["weight"]["applied"]) for entry in status["versions"] if entry["name"] == version), 0)


async def promote(arena: Arena) -> str:
    """To the end, until the old version is gone."""
    await arena.apply("v2", "v1", "v2")
    end = await arena.finished("v2", "Promoted")
    await arena.alone("v2")
    return end


def abort_at(weight: int) -> Callable[[Arena], Awaitable[str]]:
    """Aborted by a person at that step."""

    async def play(arena: Arena) -> str:
        await arena.apply("v2", "v1", "v2")
        await arena.at("v2", weight)
        await arena.bench.act(arena.name, "Abort")
        end = await arena.finished("v2", "Aborted")
        await arena.alone("v1")
        return f"{end}, v1 serves"

    return play


async def supersede(arena: Arena) -> str:
    """A third version is wanted while the second has a quarter."""
    await arena.apply("v2", "v1", "v2", "v3")
    await arena.at("v2", 25)
    await arena.apply("v3", "v1", "v2", "v3")
    end = await arena.finished("v3", "Promoted")
    await arena.alone("v3")
    history = [f"{entry['to']} {entry['outcome']}" for entry in (await arena.bench.status(arena.name))["history"]]
    assert history[-2:] == ["v2 Superseded", "v3 Promoted"], history
    return f"v2 Superseded, {end}"


async def drop_previous(arena: Arena) -> str:
    """The old version leaves the spec while it is kept warm."""
    await arena.apply("v2", "v1", "v2")
    end = await arena.finished("v2", "Promoted")
    await arena.apply("v2", "v2")
    await arena.alone("v2")
    return f"{end}, v1 removed"


async def drop_stable(arena: Arena) -> str:
    """The served version leaves the spec in the middle of the rollout of its successor."""
    await arena.apply("v2", "v1", "v2")
    await arena.at("v2", 25)
    await arena.apply("v2", "v2")
    end = await arena.finished("v2", "Promoted")
    await arena.alone("v2")
    return f"v1 served on, {end}"


async def drop_experiment(arena: Arena) -> str:
    """An experiment with a fifth of all traffic leaves the spec."""
    await arena.apply("v1", "v1", "v3", traffic={"experiments": [{"version": "v3", "weight": 20}]})
    await arena.until("20 % for v3", lambda s: _weight(s, "v3") == 20)
    await asyncio.sleep(2.0)
    await arena.apply("v1", "v1")
    await arena.alone("v1")
    return "v3 had 20 %, is gone"


async def kill_operator(arena: Arena) -> str:
    """kill -9 of the operator at every new stage, step and role, until the old version is gone, and a new one."""
    await arena.apply("v2", "v1", "v2")
    seen = await _kill_until(arena, "v2 alone")
    return f"{await arena.finished('v2', 'Promoted')}; killed at {', '.join(seen)}"


async def kill_operator_on_the_way_back(arena: Arena) -> str:
    """The same from an abort on."""
    await arena.apply("v2", "v1", "v2")
    await arena.at("v2", 25)
    await arena.bench.act(arena.name, "Abort")
    seen = await _kill_until(arena, "v1 alone")
    return f"{await arena.finished('v2', 'Aborted')}; killed at {', '.join(seen)}"


async def _kill_until(arena: Arena, last: str) -> list[str]:
    seen: list[str] = []
    while last not in seen:
        status = await arena.until("the next state", lambda s: s["rollout"]["to"] == "v2" and _state(s) not in seen)
        seen.append(_state(status))
        await arena.operator.kill()
        await arena.operator.start()
    return seen


def _state(status: Status) -> str:
    """A rollout's state in a word or two, and then how far the version that goes has gone."""
    rollout, entries = status["rollout"], status["versions"]
    if rollout["stage"] != "Finished":
        return f"{rollout['stage']} {rollout.get('step', 0)}"
    if len(entries) == 1:
        return f"{entries[0]['name']} alone"
    going = next(entry for entry in entries if entry["role"] != "Stable")
    return f"{going['role']} {'with' if going.get('subset') else 'without'} subset"


async def restart_api_server(arena: Arena) -> str:
    """The API server is away for some seconds while the candidate has a quarter."""
    await arena.apply("v2", "v1", "v2")
    await arena.at("v2", 25)
    begun = time.monotonic()
    await arena.sandbox.restart("apiserver")
    away = time.monotonic() - begun
    end = await arena.finished("v2", "Promoted")
    await arena.alone("v2")
    return f"away for {away:.1f} s, {end}"


async def slow_mesh(arena: Arena) -> str:
    """Envoy learns everything late, and `traffic.settle` says so."""
    await arena.sandbox.set_propagation_delay(MESH_DELAY)
    try:
        return await promote(arena)
    finally:
        await arena.sandbox.set_propagation_delay(0.1)


async def retire_in_flight(arena: Arena) -> str:
    """The old version is retired while it answers a slow request and a stream."""
    await arena.apply("v2", "v1", "v2")
    end = await arena.finished("v2", "Promoted")
    begun = time.monotonic()
    requests = asyncio.gather(
        slow_request(arena.bench, arena.name, "v1", LONG), stream(arena.bench, arena.name, "v1", LONG)
    )
    await arena.bench.eventually("v1 is told to stop", lambda: _stopping(arena, "v1"))
    told = time.monotonic() - begun
    assert told < LONG, f"told to stop after {told:.1f} s"
    http, grpc = await requests
    assert (http, grpc) == ("200 by v1", f"{PIECES} of {PIECES} by v1, OK"), (http, grpc)
    await arena.alone("v2")
    return f"{end}; v1 told to stop {told:.1f} s into a request and a stream of {LONG:g} s: both answered by v1"


async def _stopping(arena: Arena, version: str) -> bool:
    pods = [
        pod["metadata"]
        for pod in await arena.bench.items(PODS)
        if pod["metadata"]["labels"].get("slipway.dev/model-deployment") == arena.name
        and pod["metadata"]["labels"].get("slipway.dev/version") == version
    ]
    return all("deletionTimestamp" in meta for meta in pods)


async def lose_prometheus(arena: Arena) -> str:
    """Prometheus is away in the middle third of a rollout that needs evidence."""
    await arena.apply("v2", "v1", "v2")
    await arena.at("v2", 25)
    await arena.prometheus.shut()
    try:
        status = await arena.until("a reason", lambda s: s["rollout"]["reason"] not in ("Holding", "Observing"))
        said = status["rollout"]["reason"]
        await asyncio.sleep(OUTAGE)
        status = await arena.bench.status(arena.name)
        rollout = status["rollout"]
        assert (rollout["stage"], _weight(status, "v2")) == ("Observing", 25), rollout
        said = f'{rollout["reason"]} "{rollout["message"]}"'
    finally:
        await arena.prometheus.open()
    end = await arena.finished("v2", "Promoted")
    return f"held at 25 %: {said}; then {end}"


@dataclass(frozen=True)
class Scenario:
    """Something that happens, and the settings under which it does."""

    title: str
    play: Callable[[Arena], Awaitable[str]]
    """Gives the outcome in words; AssertionError where it is not the right one."""
    spec: Mapping[str, Any] = field(default_factory=dict)


_CANARY = {"rollout": {"steps": _steps(5, 25, 50), "keepPrevious": "1s"}}
_HELD = {"rollout": {"steps": _steps(5, 25, 50, hold="3s"), "keepPrevious": "1s"}}
_KEPT = {"rollout": {"steps": _steps(50), "keepPrevious": "10s"}}
_JUDGED = {
    "rollout": {
        "steps": _steps(5, 25, 50, hold="4s"),
        "analysis": {"interval": "1s", "checks": [ERRORS]},
        "keepPrevious": "1s",
    }
}
_LATE = {"traffic": {"settle": "10s"}, "rollout": {"steps": _steps(50), "keepPrevious": "1s"}}
_BRIEF = {"rollout": {"steps": _steps(50), "keepPrevious": "2s"}}

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("promote", promote, _CANARY),
    Scenario("abort at 5 %", abort_at(5), _HELD),
    Scenario("abort at 25 %", abort_at(25), _HELD),
    Scenario("abort at 50 %", abort_at(50), _HELD),
    Scenario("supersede: v3 while v2 has 25 %", supersede, _HELD),
    Scenario("old version leaves the spec while Previous", drop_previous, _KEPT),
    Scenario("old version leaves the spec while stable", drop_stable, _HELD),
    Scenario("experiment leaves the spec with traffic", drop_experiment, _BRIEF),
    Scenario("operator killed at every transition", kill_operator, _CANARY),
    Scenario("operator killed on the way back from 25 %", kill_operator_on_the_way_back, _HELD),
    Scenario("API server restarts mid-rollout", restart_api_server, _HELD),
    Scenario(f"mesh {MESH_DELAY:g} s late, settle 10 s", slow_mesh, _LATE),
    Scenario("requests in flight at retirement", retire_in_flight, _BRIEF),
    Scenario("Prometheus away in the middle third", lose_prometheus, _JUDGED),
)
