"""The rollout: a pure state machine that moves traffic from the stable revision to a candidate and back.

Its memory is the status alone. Each call looks at one snapshot and takes at most the one step that the snapshot
allows, so that an operator which dies after any write goes on from the same place.

The order of effects when a revision comes: pods ready, warm and verified; subset known to the router; settled; weight;
weight confirmed; evidence counts. When a revision goes the order is the reverse.
"""

from slipway.rollout.capacity import Capacity
from slipway.rollout.experiments import ExperimentTarget
from slipway.rollout.machine import RolloutDecision, RolloutRequest, Target, advance

__all__ = ["Capacity", "ExperimentTarget", "RolloutDecision", "RolloutRequest", "Target", "advance"]
