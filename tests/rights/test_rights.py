"""Each right of the chart is needed: a cluster in which it alone is missing shows what it is for, another does not.

In virtual time, so that minutes take a second; rights to watch, which are kopf's to use, are in test_watches.
"""

import contextlib
from collections.abc import Iterator

import pytest

from e2e.faults.virtual_time import VirtualLoop
from e2e.faults.world import Wall
from tests.integration.role import RIGHTS
from tests.rights.page import PAGE, page
from tests.rights.plays import Play
from tests.rights.roles import Right, granted
from tests.rights.stage import api_server, events, staged
from tests.rights.trials import TRIALS


class Theatre:
    """One API server for all plays, and what was seen in each play with all rights."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._wall = Wall()
        self._api, self.recorder = loop.run_until_complete(api_server(self._wall))
        self._whole: dict[Play, set[Right]] = {}

    def close(self) -> None:
        """Give the server's files back."""
        self._api.handlers.audit.close()

    def broken(self, right: Right) -> tuple[bool, str]:
        """Whether the right's consequence is there when it is missing, and what Events say."""
        return self._loop.run_until_complete(self._broken(right))

    async def _broken(self, right: Right) -> tuple[bool, str]:
        trial = TRIALS[right]
        async with staged(self._api, self._wall, right) as world:
            await trial.play(world)
            said = [f"{one['count']} {one['reason']}: {one['message']}" for one in events(world)]
            return trial.broken(world), "\n".join(map(str, [world.status, *said]))

    def broken_with_all(self, play: Play) -> set[Right]:
        """Rights whose consequence is seen in a play though none is missing."""
        if play not in self._whole:
            self._whole[play] = self._loop.run_until_complete(self._broken_with_all(play))
        return self._whole[play]

    async def _broken_with_all(self, play: Play) -> set[Right]:
        async with staged(self._api, self._wall, None) as world:
            await play(world)
            return {trial.right for trial in TRIALS.values() if trial.play is play and trial.broken(world)}


@pytest.fixture(scope="module")
def theatre() -> Iterator[Theatre]:
    loop = VirtualLoop()
    with contextlib.closing(loop):
        made = Theatre(loop)
        yield made
        made.close()


def test_every_right_has_its_test() -> None:
    watches = {right for right in granted() if right.verb == "watch" or right.group == "apiextensions.k8s.io"}
    assert set(TRIALS) == granted() - watches


def test_the_integration_tests_run_with_the_same_rights() -> None:
    rights = {Right(group, name, verb) for group, names, verbs in RIGHTS for name in names for verb in verbs}
    assert rights == granted()


def test_the_documentation_says_so() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m tests.rights.page"


@pytest.mark.parametrize("right", sorted(TRIALS), ids=str)
def test_without_this_right(right: Right, theatre: Theatre) -> None:
    assert right not in theatre.broken_with_all(TRIALS[right].play), "seen though the right is there"
    broken, said = theatre.broken(right)
    assert broken, said


def test_the_plays_use_exactly_these_rights(theatre: Theatre) -> None:
    for play in {trial.play for trial in TRIALS.values()}:
        theatre.broken_with_all(play)
    assert theatre.recorder.allowed == set(TRIALS)
