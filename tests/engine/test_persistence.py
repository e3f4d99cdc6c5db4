from hypothesis import given
from hypothesis import strategies as st
from slipway.engine.persistence import merge_patch

from tests.kube.memory_api import merge

LEAVES = st.one_of(st.booleans(), st.integers(), st.text(max_size=3), st.lists(st.integers(), max_size=3))
TREES = st.recursive(LEAVES, lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=4), max_leaves=12)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), TREES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_the_patch_leads_from_one_to_the_other(before, after):
    assert merge(before, merge_patch(before, after)) == after


@given(OBJECTS)
def test_equal_objects_need_no_patch(obj):
    assert merge_patch(obj, obj) == {}


def test_only_what_differs_is_sent():
    before = {"a": {"b": 1, "c": 2}, "list": [1, 2], "gone": 1}
    after = {"a": {"b": 1, "c": 3}, "list": [1]}
    assert merge_patch(before, after) == {"a": {"c": 3}, "list": [1], "gone": None}
