"""Each rule as the CEL that an API server runs, and as the operator's own validation."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import celpy
import pytest
from slipway.api.rules import RULES, Rule
from slipway.api.schema import open_api_schema
from slipway.api.validation import validate

from .cases import RULE_CASES, RuleCase

SCHEMA = open_api_schema()
BY_NAME = {rule.name: rule for rule in RULES}
KEPT_OR_LATER = {"NotYetSupported"}


def defaulted(schema: Mapping[str, Any], value: Any) -> Any:
    """The value with the schema's defaults filled in, as the API server does before it checks rules."""
    if isinstance(value, dict):
        result = dict(value)
        for name, below in schema.get("properties", {}).items():
            if name not in result and "default" in below:
                result[name] = deepcopy(below["default"])
            if name in result:
                result[name] = defaulted(below, result[name])
        return result
    if isinstance(value, list):
        return [defaulted(schema.get("items", {}), item) for item in value]
    return float(value) if schema.get("type") == "number" else value


def places(value: Any, path: str) -> Iterator[Any]:
    """Every value at a path of the schema."""
    part, _, rest = path.partition(".")
    if not part:
        yield value
    elif part.endswith("[]"):
        for item in value.get(part.removesuffix("[]"), ()):
            yield from places(item, rest)
    elif part in value:
        yield from places(value[part], rest)


def holds(rule: Rule, obj: dict[str, Any]) -> bool:
    environment = celpy.Environment()
    program = environment.program(environment.compile(rule.expression))
    values = [celpy.json_to_cel(value) for value in places(defaulted(SCHEMA, obj), rule.at)]
    return all(program.evaluate({"self": value}) for value in values)


def test_every_rule_has_examples() -> None:
    assert {case.rule for case in RULE_CASES} == set(BY_NAME)


@pytest.mark.parametrize("case", RULE_CASES, ids=lambda case: case.rule)
def test_cel_tells_kept_from_broken(case: RuleCase) -> None:
    assert holds(BY_NAME[case.rule], case.kept)
    assert not holds(BY_NAME[case.rule], case.broken)


@pytest.mark.parametrize("case", RULE_CASES, ids=lambda case: case.rule)
def test_validation_tells_kept_from_broken(case: RuleCase) -> None:
    kept = validate(case.kept)
    assert {problem.reason for problem in kept.problems} <= KEPT_OR_LATER
    broken = [problem for problem in validate(case.broken).problems if problem.reason == "InvalidSpec"]
    assert [problem.field for problem in broken] == [case.field]
    assert broken[0].message == BY_NAME[case.rule].message


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_holds_for_all_kept_objects(rule: Rule) -> None:
    for case in RULE_CASES:
        assert holds(rule, case.kept), case.rule
