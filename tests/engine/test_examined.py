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

    def __call__(self, raw) -> Validated:
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


def test_the_longest_unused_is_forgotten_first():
    counting = Counting()
    examined = Examined(counting, most=2)
    for serve in ("a", "b", "a", "c", "a", "b"):
        examined(edited(serve=serve))
    assert [spec["serve"] for spec in counting.seen] == ["a", "b", "c", "b"]
