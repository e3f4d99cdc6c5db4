"""Every reason that the operator gives is explained."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import slipway
from slipway.analysis import Reason
from slipway.api import errors
from slipway.api.reasons import REASONS
from slipway.api.status import Outcome

SOURCE = Path(__file__).parents[2] / "operator" / "slipway"
GIVERS = {
    "wait",
    "enter",
    "_wait_or_fail",
    "_fail",
    "State",
    "Blocked",
    "Judgement",
    "_failed",
    "_pending",
    "ProbeView",
}
WORD = re.compile(r"[A-Z][a-z]+[A-Za-z]*")


def given_reasons() -> Iterator[tuple[str, str]]:
    """File and word of each constant that is handed to something that gives a reason."""
    for package in ("rollout", "engine"):
        for file in sorted((SOURCE / package).glob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if not isinstance(node, ast.Call):
                    continue
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name not in GIVERS:
                    continue
                for value in (*node.args, *(keyword.value for keyword in node.keywords)):
                    if isinstance(value, ast.Constant) and isinstance(value.value, str) and WORD.fullmatch(value.value):
                        yield file.name, value.value


def test_every_reason_that_is_given_is_explained() -> None:
    found = set(given_reasons())
    assert len(found) > 20
    assert sorted((file, reason) for file, reason in found if reason not in REASONS) == []


def test_outcomes_and_verdicts_are_explained() -> None:
    assert [outcome.value for outcome in Outcome if outcome.value not in REASONS] == []
    assert [reason.value for reason in Reason if reason.value not in REASONS] == []


def every_error(root: type[errors.SlipwayError]) -> Iterator[type[errors.SlipwayError]]:
    for error in root.__subclasses__():
        yield error
        yield from every_error(error)


def test_errors_have_a_reason_and_a_remedy() -> None:
    for module in pkgutil.walk_packages(slipway.__path__, "slipway."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = list(every_error(errors.SlipwayError))
    assert len(found) > 5
    for error in found:
        assert error.reason not in ("", errors.SlipwayError.reason), error
        assert error.remedy.endswith("."), error
