from hypothesis import given
from hypothesis import strategies as st
from slipway.scaling import deletion_costs

PODS = st.lists(st.sampled_from("abcdefgh"), unique=True)
LOADS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 1000).map(float))


def test_the_idlest_pod_costs_least_and_an_idle_fleet_needs_no_marks():
    assert deletion_costs(["a", "b", "c"], {"a": 7.0, "b": 2.0, "c": 2.0}) == {"a": 5, "b": 0, "c": 0}
    assert deletion_costs(["a", "b"], {"a": 4.0, "b": 4.0}) == {"a": 0, "b": 0}


def test_a_pod_that_nobody_knows_of_is_busy():
    assert deletion_costs(["a", "b", "new"], {"a": 3.0, "b": 0.0}) == {"a": 3, "b": 0, "new": 4}
    assert deletion_costs(["a", "b"], {"gone": 3.0}) == {"a": 0, "b": 0}
    assert deletion_costs([], {"gone": 3.0}) == {}


def test_costs_fit_into_what_kubernetes_takes():
    assert deletion_costs(["a", "b"], {"a": 1e12, "b": 0.0}) == {"a": 2**31 - 1, "b": 0}


@given(PODS, LOADS)
def test_costs_are_ordered_as_loads_are(pods, loads):
    costs = deletion_costs(pods, loads)
    assert set(costs) == set(pods)
    known = [pod for pod in pods if pod in loads]
    for one in known:
        assert all((costs[one] < costs[other]) == (loads[one] < loads[other]) for other in known)
        assert all(costs[one] < costs[other] for other in pods if other not in loads)
    assert min(costs.values(), default=0) == 0
