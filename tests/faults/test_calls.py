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


async def tried(scenario: Scenario, step: int) -> tuple[int, list[Trial]]:
    """Every `step`-th write with a kill, every call with the next of the other faults; also the writes there are."""
    wall = Wall()
    api = Api(wall)
    await api.start()
    plain = await play(api, wall, scenario)
    assert plain.problems == ()
    chosen = strikes(plain, [Fault.KILL])[::step]
    chosen += [Strike(OTHERS[number % len(OTHERS)], number) for number in range(1, plain.calls + 1, step)]
    found = [trial async for trial in trials(api, wall, scenario, plain, chosen)]
    return plain.writes, found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.title)
def test_whatever_call_is_struck_it_ends_in_the_same_place(scenario):
    step = 1 if scenario.title in ("rollout", "scale-up") else 3
    writes, found = virtual_time.run(tried(scenario, step))
    assert len(found) > 1.2 * writes / step
    assert {trial.strike.fault for trial in found} >= {Fault.KILL, Fault.LOST, Fault.SILENT}
    assert [(trial.strike, trial.problems) for trial in found if trial.problems] == []
