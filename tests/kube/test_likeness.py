"""Equal parts of objects are held once, and nothing but equal ones."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from slipway.kube.likeness import Likeness

LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, 1.0]), st.text(max_size=2))
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal for JSON, with their order."""
    return repr(one) == repr(other)


@given(st.lists(VALUES, max_size=8), st.integers(1, 9))
def test_what_is_given_back_is_equal_whatever_came_before(values: list[Any], most: int) -> None:
    likeness = Likeness(most)
    for value in values:
        assert same(likeness.of(value), value)
    assert len(likeness) <= most


def test_equal_parts_of_different_objects_are_one() -> None:
    likeness = Likeness()
    one, other = (likeness.of({"name": name, "spec": {"ports": [{"port": 80}]}}) for name in ("a", "b"))
    assert one["spec"] is other["spec"]
    assert one != other


def test_true_and_one_are_not_alike() -> None:
    likeness = Likeness()
    assert [likeness.of([value])[0] for value in (1, True, 1.0, "1", None)] == [1, True, 1.0, "1", None]
    assert [type(likeness.of([value])[0]) for value in (1, True, 1.0)] == [int, bool, float]


@given(VALUES, VALUES)
def test_a_next_state_is_equal_and_shares_what_has_not_changed(before: Any, after: Any) -> None:
    likeness = Likeness()
    former = likeness.of(before)
    assert same(likeness.of_next(after, former), after)
    pair = {"changed": after, "kept": before}
    held = likeness.of_next(pair, {"changed": former, "kept": former})
    assert same(held, pair)
    assert held["kept"] is former
