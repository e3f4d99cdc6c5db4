from slipway.api.conditions import find_condition, set_condition
from slipway.api.reasons import REASONS
from slipway.api.status import Condition, ConditionType

NOW = 1_800_000_000.0


def ready(status: str, reason: str = "R", message: str = "") -> Condition:
    return Condition(type=ConditionType.READY, status=status, reason=reason, message=message, last_transition_time="")


def test_the_transition_time_moves_with_the_status_only() -> None:
    first = set_condition((), ready("False"), NOW)
    later = set_condition(first, ready("False", "Other", "text"), NOW + 60)
    assert later[0].last_transition_time == first[0].last_transition_time == "2027-01-15T08:00:00Z"
    assert (later[0].reason, later[0].message) == ("Other", "text")
    assert set_condition(later, ready("True"), NOW + 60)[0].last_transition_time == "2027-01-15T08:01:00Z"


def test_setting_what_is_set_changes_nothing() -> None:
    conditions = set_condition((), ready("True"), NOW)
    assert set_condition(conditions, ready("True"), NOW + 99) == conditions


def test_order_and_other_types_stay() -> None:
    stalled = ready("False").model_copy(update={"type": ConditionType.STALLED})
    conditions = set_condition(set_condition((), ready("True"), NOW), stalled, NOW)
    changed = set_condition(conditions, ready("False"), NOW)
    assert [entry.type for entry in changed] == [ConditionType.READY, ConditionType.STALLED]
    assert find_condition(changed, ConditionType.STALLED) is not None
    assert find_condition(changed, ConditionType.ANALYSIS) is None


def test_reasons_are_words_with_sentences() -> None:
    for reason, text in REASONS.items():
        assert reason.isalpha()
        assert reason[0].isupper()
        assert text.meaning.endswith(".")
        assert not text.remedy or text.remedy.endswith(".")
