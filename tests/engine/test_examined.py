import copy
from typing import Any

from slipway.api.validation import Validated, validate
from slipway.engine.examined import Examined

RAW: dict[str, Any] = {
    "metadata": {"name": "m", "generation": 1},
    "spec": {"versions": [{"name": "v1", "uri": "file:///m"}], "serve": "v1"},
}


class Counting:
    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.names: list[str] = []

    def __call__(self, raw) -> Validated:
        self.names.append(raw["metadata"]["name"])
        self.seen.append(raw["spec"])
        return validate(raw)


def edited(**spec):
    return {**RAW, "spec": {**RAW["spec"], **spec}}


def test_a_spec_is_examined_once_and_the_outcome_is_the_same():
    counting = Counting()
    examined = Examined(counting)
    outcomes = [examined(copy.deepcopy(RAW)) for _ in range(3)]
    assert len(counting.seen) == 1
    assert outcomes == [validate(RAW)] * 3


def test_another_spec_of_the_same_generation_is_examined_anew():
    """As after a restore from a backup, which brings back generations as well."""
    examined = Examined()
    assert examined(RAW).spec is not None
    assert examined(edited(serve="v9")).spec is None
    assert examined(RAW).spec is not None


def test_the_name_counts():
    examined = Examined()
    assert examined(RAW).spec is not None
    assert examined({**RAW, "metadata": {"name": "m" * 70}}).spec is None


def test_true_is_not_one():
    examined = Examined()
    assert examined(edited(autoscaling={"minReplicas": 1})) == validate(edited(autoscaling={"minReplicas": 1}))
    suspended = examined(edited(suspend=True)).spec
    assert suspended is not None
    assert suspended.suspend is True
    wrong = edited(autoscaling={"minReplicas": True})
    assert examined(wrong) == validate(wrong)
    assert examined(edited(suspend=1)) == validate(edited(suspend=1))


def named(name):
    return {**RAW, "metadata": {"name": name}}


def test_the_longest_unused_is_forgotten_first():
    counting = Counting()
    examined = Examined(counting, most=2)
    for name in ("a", "b", "a", "c", "a", "b"):
        examined(named(name))
    assert counting.names == ["a", "b", "c", "b"]


def test_what_an_object_asked_for_before_is_forgotten():
    counting = Counting()
    examined = Examined(counting)
    for serve in ("a", "b", "b", "a"):
        examined(edited(serve=serve))
    assert [spec["serve"] for spec in counting.seen] == ["a", "b", "a"]


def test_two_objects_of_one_name_share_an_outcome_until_one_is_edited():
    counting = Counting()
    examined = Examined(counting)
    here, there = ({**RAW, "metadata": {"name": "m", "namespace": space}} for space in ("here", "there"))
    changed = {**there, "spec": {**RAW["spec"], "serve": "v2"}}
    outcomes = [examined(obj) for obj in (here, there, changed, here, changed, here)]
    assert [spec["serve"] for spec in counting.seen] == ["v1", "v2", "v1"]
    assert outcomes == [validate(obj) for obj in (here, there, changed, here, changed, here)]
