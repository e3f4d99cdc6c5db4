"""Issue "it stays up", crash at every write: every call is struck with some fault, every write with kill -9.

In virtual time, against the sandbox's API server in this process. ``python -m e2e.faults calls`` strikes every call
with every fault.
"""

import pytest

from e2e.faults import virtual_time
from e2e.faults.api import Api
from e2e.faults.calls import Trial, play, strikes, trials
from e2e.faults.injection import Fault, Strike
from e2e.faults.scenarios import SCENARIOS, Scenario
from e2e.faults.world import Wall

OTHERS = tuple(fault for fault in Fault if fault is not Fault.KILL)

EVERY = {"rollout": (2, 4), "scale-up": (1, 1), "deletion at 50 %": (5, 4)}
"""Kills at every so many writes, other faults at every so many calls; the rest of them is left to the command."""


async def tried(scenario: Scenario, kills: int, calls: int) -> tuple[int, list[Trial]]:
    """Every `kills`-th write with a kill, every `calls`-th call with the next of the others; how many there were."""
    wall = Wall()
    api = Api(wall)
    await api.start()
    plain = await play(api, wall, scenario)
    assert plain.problems == ()
    chosen = strikes(plain, [Fault.KILL])[::kills]
    struck = enumerate(range(1, plain.calls + 1, calls))
    chosen += [Strike(OTHERS[turn % len(OTHERS)], number) for turn, number in struck]
    found = [trial async for trial in trials(api, wall, scenario, plain, chosen)]
    return len(chosen), found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.title)
def test_whatever_call_is_struck_it_ends_in_the_same_place(scenario):
    kills, calls = EVERY.get(scenario.title, (4, 4))
    chosen, found = virtual_time.run(tried(scenario, kills, calls))
    assert len(found) > 0.7 * chosen, "most of the calls are there to be struck"
    assert {trial.strike.fault for trial in found} >= {Fault.KILL, Fault.LOST, Fault.THROTTLED}
    assert [(trial.strike, trial.problems) for trial in found if trial.problems] == []
