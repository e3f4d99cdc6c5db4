"""Conditions: one per type, with a transition time that moves only when the status does."""

from collections.abc import Iterable
from typing import Literal

from slipway.api.status import Condition, ConditionType
from slipway.api.timestamps import whole_second

__all__ = ["condition", "find_condition", "set_condition"]

MESSAGE_LENGTH = 32768


def condition(
    kind: ConditionType,
    status: Literal["True", "False", "Unknown"],
    reason: str,
    message: str = "",
    generation: int = 0,
) -> Condition:
    """A condition that has not been set yet: its transition time comes from :func:`set_condition`."""
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message[:MESSAGE_LENGTH],
        last_transition_time="",
        observed_generation=generation,
    )


def set_condition(conditions: Iterable[Condition], new: Condition, now: float) -> tuple[Condition, ...]:
    """Put a condition in the place of the one of its type, or at the end.

    The transition time is kept while the status stays, and is ``now`` (seconds since the epoch) otherwise, so that
    setting what is already set changes nothing.
    """
    result = list(conditions)
    for index, old in enumerate(result):
        if old.type is new.type:
            same = old.status == new.status and old.last_transition_time
            moved = old.last_transition_time if same else whole_second(now)
            result[index] = new.model_copy(update={"last_transition_time": moved})
            return tuple(result)
    return (*result, new.model_copy(update={"last_transition_time": whole_second(now)}))


def find_condition(conditions: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """The condition of a type."""
    return next((entry for entry in conditions if entry.type is kind), None)
