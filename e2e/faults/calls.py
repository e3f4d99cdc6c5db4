"""A fault at the n-th call, for every n, and many at random: what came of it, compared with a run without a fault."""

import asyncio
import itertools
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from slipway.kube.kinds import LEASE
from slipway.kube.lease import LeaseLostError
from slipway.kube.metadata import Key

from e2e.faults.api import Api, Request
from e2e.faults.injection import Fault, Plan, Storm, Strike
from e2e.faults.operators import Operator
from e2e.faults.scenarios import SCENARIOS, Scenario
from e2e.faults.table import Row
from e2e.faults.world import Wall, World

__all__ = ["Course", "Trial", "every_call", "every_storm", "play", "strikes", "trials"]

REST = 60.0
"""Seconds after the end, of which the last third must pass without a write: a call may take 30 s to be given up."""
LAST = 15.0
"""Seconds after the end in which calls come that still belong to it; later there are only renewals of a lease."""
EXCESS = 60
"""Calls beyond those of an undisturbed run that a fault may cost: a look more, retries, the lists of a new process."""
PATIENCE = 600.0
HOLDS = (
    "same objects, status and history at the end as without a fault, same weights in the same order, no request lost, "
    "no step skipped, no evidence counted twice, at most 60 calls more, no write at rest"
)
SEEDS = 20
SHARE = 0.2
STORM_HOLDS = HOLDS.replace(" at most 60 calls more,", "")


@dataclass(frozen=True)
class Course:
    """How a run went."""

    end: dict[str, Any]
    weights: list[dict[str, int]]
    """In the order in which they were written, by revision."""
    calls: int
    """Of the operator that is struck, its lease included, until the end."""
    writes: int
    asked: int
    """Calls of all operators, leases apart, until all had been at rest for a minute."""
    problems: tuple[str, ...]
    hit: bool = False
    """Whether the fault struck."""


@dataclass(frozen=True)
class Trial:
    """One fault in one scenario."""

    scenario: Scenario
    plan: Plan
    problems: tuple[str, ...]


async def play(api: Api, wall: Wall, scenario: Scenario, plan: Plan | None = None) -> Course:
    """One run of a scenario."""
    async with World.of(api, wall) as world:
        operator = await _started(world, scenario, plan)
        await scenario.before(world)
        injector = operator.injector
        injector.arm()
        begun = len(api.audit)
        calls = writes = 0
        problems = []
        try:
            async with asyncio.timeout(PATIENCE):
                await scenario.play(world)
                await asyncio.sleep(LAST)
                calls, writes = injector.calls, injector.writes
                if isinstance(plan, Storm):
                    plan.over = True
                await asyncio.sleep(REST)
        except (AssertionError, TimeoutError) as error:
            problems.append(str(error) or "never at rest")
        asked = [one for one in api.audit[begun:] if "/leases" not in one.call.path]
        late = asyncio.get_running_loop().time() - REST / 3
        problems += [f"written at rest: {one.call.path}" for one in asked if _changes(one) and one.at > late]
        problems += [repr(error) for error in operator.failures if not _lease_lost(error)]
        problems += world.faults()
        hit = plan.hits > 0 if isinstance(plan, Storm) else injector.hit is not None or injector.dead
        return Course(world.end(), world.mesh.course, calls, writes, len(asked), tuple(problems), hit)


async def _started(world: World, scenario: Scenario, plan: Plan | None) -> Operator:
    """The operator that the plan is for; where there is a standby, the one that leads."""
    if not scenario.standby:
        return world.operator(plan)
    lease = Key(world.namespace, "leader")
    leader = world.operator(plan, lease=lease)
    while world.api.find(LEASE, *lease) is None:  # noqa: ASYNC110  only asking tells
        await asyncio.sleep(1.0)
    world.operator(lease=lease)
    return leader


def _lease_lost(error: BaseException) -> bool:
    """Whether a process ended because it could not renew its lease, as it has to: another one may lead by then."""
    if isinstance(error, BaseExceptionGroup):
        return all(_lease_lost(one) for one in error.exceptions)
    return isinstance(error, LeaseLostError)


def _changes(request: Request) -> bool:
    """Whether a request changes anything but Events, which may come late."""
    return request.writes and "/events" not in request.call.path


def strikes(plain: Course, faults: Iterable[Fault] = tuple(Fault)) -> list[Strike]:
    """Every fault at every call that the undisturbed run made."""
    found = []
    for fault in faults:
        first = 0 if fault is Fault.KILL else 1
        last = plain.writes if fault.counts_writes else plain.calls
        found += [Strike(fault, number) for number in range(first, last + 1)]
    return found


async def trials(
    api: Api, wall: Wall, scenario: Scenario, plain: Course, chosen: Iterable[Plan]
) -> AsyncIterator[Trial]:
    """Play the scenario once with each plan; those that met no call are left out."""
    for plan in chosen:
        course = await play(api, wall, scenario, plan)
        if not course.hit:
            continue
        problems = list(course.problems)
        if course.end != plain.end:
            problems.append(f"another end: {_difference(course.end, plain.end)}")
        if _shares(course) != _shares(plain):
            problems.append(f"another course: {course.weights}")
        if isinstance(plan, Strike) and course.asked > plain.asked + EXCESS:
            problems.append(f"{course.asked} calls instead of {plain.asked}")
        yield Trial(scenario, plan, tuple(problems))


def _shares(course: Course) -> list[dict[str, int]]:
    """The course without entries of weight 0: when one goes and another one comes is nobody's traffic."""
    shares = [{name: weight for name, weight in weights.items() if weight} for weights in course.weights]
    return [one for one, _ in itertools.groupby(shares)]


def _difference(one: Any, other: Any, path: str = "") -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}, key=str):
            if one.get(name) != other.get(name):
                return _difference(one.get(name), other.get(name), f"{path}.{name}")
    return f"{path}: {one!r} instead of {other!r}"


def _chosen(words: list[str]) -> list[Scenario]:
    return [one for one in SCENARIOS if any(word in one.title for word in words)] or list(SCENARIOS)


async def every_call(words: list[str]) -> list[Row]:
    """Every fault at every call of every scenario; words choose scenarios by their title and faults by their name."""
    faults = [one for one in Fault if any(word in one for word in words)] or list(Fault)
    wall = Wall()
    api = Api(wall)
    await api.start()
    rows = []
    for scenario in _chosen(words):
        plain, found = await _tried(api, wall, scenario, lambda plain: strikes(plain, faults))
        met = Counter(trial.plan.kind for trial in found if isinstance(trial.plan, Strike))
        injected = ", ".join(f"{fault.short} {count}" for fault, count in met.items())
        note = f"{plain.calls} calls, {plain.writes} of them writes, without a fault"
        rows.append(Row(scenario.title, injected, HOLDS, len(found), _failures(found), note))
    return rows


async def every_storm(words: list[str]) -> list[Row]:
    """Every scenario with faults of all kinds at a fifth of all calls, some times over."""
    wall = Wall()
    api = Api(wall)
    await api.start()
    rows = []
    for scenario in _chosen(words):
        _, found = await _tried(api, wall, scenario, lambda _: [Storm(seed, SHARE) for seed in range(SEEDS)])
        hits = sum(trial.plan.hits for trial in found if isinstance(trial.plan, Storm))
        injected = f"at random, at {SHARE:.0%} of all calls"
        rows.append(Row(scenario.title, injected, STORM_HOLDS, len(found), _failures(found), f"{hits} faults"))
    return rows


async def _tried(
    api: Api, wall: Wall, scenario: Scenario, choose: Callable[[Course], Iterable[Plan]]
) -> tuple[Course, list[Trial]]:
    """The run without a fault, and those with one of the plans; what did not hold is printed at once."""
    begun = time.monotonic()
    plain = await play(api, wall, scenario)
    assert not plain.problems, plain.problems
    found = []
    async for trial in trials(api, wall, scenario, plain, choose(plain)):
        api.audit.clear()
        found.append(trial)
        if trial.problems:
            print(f"{scenario.title}, {trial.plan}: {'; '.join(trial.problems)[:1000]}", file=sys.stderr)
    print(f"{scenario.title}: {len(found)} tries, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return plain, found


def _failures(found: Iterable[Trial]) -> tuple[str, ...]:
    return tuple("; ".join(trial.problems) for trial in found if trial.problems)
