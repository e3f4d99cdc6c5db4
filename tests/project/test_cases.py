"""The map from research cases to tests names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_test_that_a_case_names_exists() -> None:
    text = (TESTS / "cases.md").read_text()
    named = re.findall(r"([a-z_]+/[a-z_0-9]+\.py)::([A-Za-z_0-9]+)", text)
    assert named
    missing = [f"{file}::{name}" for file, name in named if name not in (TESTS / file).read_text()]
    assert not missing
