"""The arithmetic of rolling updates."""

from hypothesis import given
from hypothesis import strategies as st

from e2e.sandbox.controllers.rolling import (
    Fences,
    Replicas,
    fences,
    new_size,
    proportional_sizes,
    share_of,
    shrink_old,
)


def test_percentages_round_up_for_the_surge_and_down_for_the_unavailable():
    assert fences("25%", "25%", 10) == Fences(surge=3, unavailable=2)
    assert fences(1, 0, 3) == Fences(surge=1, unavailable=0)


def test_an_update_that_could_go_nowhere_takes_one_pod_away():
    assert fences(0, 0, 3) == Fences(surge=0, unavailable=1)
    assert fences("0%", "10%", 3) == Fences(surge=0, unavailable=1)


def test_share_of():
    assert share_of("34%", 3, round_up=True) == 2
    assert share_of("34%", 3, round_up=False) == 1
    assert share_of(None, 3, round_up=True) == 0


def test_the_new_set_grows_as_far_as_the_surge_leaves_room():
    assert new_size(4, Fences(1, 0), 0, 4) == 1
    assert new_size(4, Fences(1, 0), 1, 5) == 1
    assert new_size(4, Fences(4, 0), 0, 4) == 4
    assert new_size(2, Fences(1, 0), 5, 5) == 2


def test_unhealthy_old_pods_go_first_and_the_minimum_stays():
    old = [Replicas("a", 3, 3, "1"), Replicas("b", 2, 0, "2")]
    assert shrink_old(4, Fences(1, 1), Replicas("new", 1, 0, "3"), old) == {"b": 0}
    assert shrink_old(4, Fences(1, 0), Replicas("new", 1, 0, "3"), [Replicas("a", 4, 4, "1")]) == {}
    assert shrink_old(4, Fences(1, 0), Replicas("new", 1, 1, "3"), [Replicas("a", 4, 4, "1")]) == {"a": 3}


def test_a_scale_in_the_middle_of_an_update_is_spread_in_proportion():
    sets = [Replicas("old", 8, 8, "1"), Replicas("new", 5, 2, "2")]
    sizes = proportional_sizes(18, sets, {"old": 11, "new": 7})
    assert sum(sizes.values()) == 18
    assert sizes["old"] > sizes["new"]


@st.composite
def updates(draw):
    wanted = draw(st.integers(1, 20))
    limits = fences(draw(st.integers(0, 5)), draw(st.integers(0, 5)), wanted)
    olds = []
    for number in range(draw(st.integers(0, 3))):
        size = draw(st.integers(1, 10))
        olds.append(Replicas(f"old-{number}", size, draw(st.integers(0, size)), str(number)))
    new = draw(st.integers(0, wanted))
    return wanted, limits, Replicas("new", new, draw(st.integers(0, new)), "9"), olds


@given(updates())
def test_shrinking_never_takes_available_pods_below_the_minimum(update):
    wanted, limits, new, old = update
    shrunk = shrink_old(wanted, limits, new, old)
    by_uid = {item.uid: item for item in old}
    lost = sum(max(0, by_uid[uid].available - size) for uid, size in shrunk.items())
    available = new.available + sum(item.available for item in old)
    assert all(0 <= size < by_uid[uid].wanted for uid, size in shrunk.items())
    assert available - lost >= min(wanted - limits.unavailable, available)


@given(updates())
def test_growing_never_exceeds_the_surge(update):
    wanted, limits, new, old = update
    total = new.wanted + sum(item.wanted for item in old)
    grown = new_size(wanted, limits, new.wanted, total)
    assert grown - new.wanted + total <= max(total, wanted + limits.surge)
