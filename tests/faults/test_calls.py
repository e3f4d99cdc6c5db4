"""Issue "it stays up", crash at every write: every scenario is struck by every fault, and by kill -9 several times.

In virtual time, against the sandbox's API server in this process. ``python -m e2e.faults calls`` strikes every call
with every fault.
"""

import pytest

from e2e.faults import virtual_time
from e2e.faults.api import Api
from e2e.faults.calls import Course, Trial, play, strikes, trials
from e2e.faults.injection import Fault, Strike
from e2e.faults.scenarios import SCENARIOS, Scenario
from e2e.faults.world import Wall

OTHERS = tuple(fault for fault in Fault if fault is not Fault.KILL)

KILLS = 3
"""Writes of a scenario after which its operator is killed."""


def sample(plain: Course, turn: int) -> list[Strike]:
    """Kills all along the way, and each other fault once; `turn` shifts which of them comes when."""
    kills = strikes(plain, [Fault.KILL])
    step = max(1, len(kills) // KILLS)
    chosen = kills[turn % step :: step]
    for number, fault in enumerate(OTHERS):
        all_of_them = strikes(plain, [fault])
        place = (number + turn) % len(OTHERS)
        chosen.append(all_of_them[len(all_of_them) * place // len(OTHERS)])
    return chosen


async def tried(scenario: Scenario, turn: int) -> tuple[list[Strike], list[Trial]]:
    """Strikes that were played, and what came of those that met a call."""
    wall = Wall()
    api = Api(wall)
    await api.start()
    plain = await play(api, wall, scenario)
    assert plain.problems == ()
    chosen = sample(plain, turn)
    return chosen, [trial async for trial in trials(api, wall, scenario, plain, chosen)]


@pytest.mark.parametrize(
    ("turn", "scenario"), tuple(enumerate(SCENARIOS)), ids=[scenario.title for scenario in SCENARIOS]
)
def test_whatever_call_is_struck_it_ends_in_the_same_place(turn, scenario):
    chosen, found = virtual_time.run(tried(scenario, turn))
    assert len(found) >= len(chosen) - 1, "the calls are there to be struck"
    assert [(trial.plan, trial.problems) for trial in found if trial.problems] == []
