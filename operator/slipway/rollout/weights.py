"""Which revision gets how much of the traffic, given where the rollout wants it to go.

``room`` is what experiments leave of the traffic: 100 without any.

Invariants (property-tested): weights are integers >= 0 that sum to the room; none goes to a revision without ready pods
while another one has some; a rising weight never exceeds what the ready replicas carry; the weight of a candidate on
its way back never rises.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipway.rollout.capacity import Capacity

__all__ = ["Share", "going_back", "moving_up", "standing", "within"]


PARTIAL = 0.9
"""Share of what ready replicas carry that is given to them while there are too few for the goal."""
LEAST_MOVE = 5
"""Per cent of traffic that a move short of the goal must bring."""


@dataclass(frozen=True, slots=True)
class Share:
    """A revision as the split of traffic sees it."""

    revision: str
    ready: int
    """Pods that are ready and warm."""
    exposed: bool
    """Whether the router knows its subset, and has had time to settle."""
    weight: int
    """Its present intended weight."""

    @property
    def serves(self) -> bool:
        """Whether requests sent to it are answered."""
        return self.exposed and self.ready > 0


def standing(stable: Share, others: Sequence[Share], room: int = 100) -> Mapping[str, int]:
    """The split while no rollout moves: all to stable, or to another revision that serves while stable does not."""
    if stable.ready <= 0:
        for other in others:
            if other.serves:
                return _all_to(other.revision, (stable, *others), room)
    return _all_to(stable.revision, (stable, *others), room)


def moving_up(
    stable: Share, candidate: Share, goal: int, capacity: Capacity, room: int = 100, *, at_once: bool = False
) -> Mapping[str, int]:
    """The split on the way up: at most ``goal`` per cent and at most what the candidate's ready replicas carry.

    ``at_once``: nothing moves until the candidate carries the whole goal. A stable revision without a ready pod loses
    its share to a candidate that serves, since requests sent to it fail.
    """
    if not candidate.serves:
        return _split(stable, candidate, 0, room)
    if stable.ready <= 0:
        return _split(stable, candidate, room, room)
    carried = capacity.carried(candidate.ready)
    if at_once and candidate.weight == 0 and carried < goal:
        return _split(stable, candidate, 0, room)
    return _split(stable, candidate, min(room, within(carried, goal, candidate.weight)), room)


def going_back(stable: Share, candidate: Share, capacity: Capacity, room: int = 100) -> Mapping[str, int]:
    """The split on the way back: stable takes at once what its ready replicas carry, the candidate never gets more."""
    if candidate.ready <= 0:
        return _split(stable, candidate, 0, room)
    rest = room - capacity.carried(stable.ready)
    return _split(stable, candidate, min(candidate.weight, room, max(0, rest)), room)


def within(carried: int, goal: int, present: int) -> int:
    """The weight on the way to ``goal`` that ready replicas carry.

    Short of the goal it keeps a distance from what is carried and moves in steps that matter: demand is never still,
    and a weight that followed each of its small changes would never settle.
    """
    if goal <= carried:
        return goal
    if present <= carried and PARTIAL * carried < present + LEAST_MOVE:
        return present
    return min(goal, math.floor(PARTIAL * carried))


def _split(stable: Share, candidate: Share, weight: int, room: int) -> Mapping[str, int]:
    return {stable.revision: room - weight, candidate.revision: weight}


def _all_to(revision: str, shares: Sequence[Share], room: int) -> Mapping[str, int]:
    return {share.revision: room if share.revision == revision else 0 for share in shares}
