"""SECURITY.md names the proof of each thing that it says."""

import re

from e2e.supply.locks import ROOT

PAGE = ROOT / "SECURITY.md"


def rows() -> list[str]:
    text = PAGE.read_text().split("## What is refused by default")[1]
    return [line for line in text.splitlines() if line.startswith("| ") and "Proof" not in line]


def test_every_row_names_tests_that_exist() -> None:
    assert len(rows()) > 15
    for row in rows():
        named = re.findall(r"`(tests/[a-z_/0-9]+\.py)(?:::([A-Za-z_0-9]+))?`", row)
        assert named, row
        for file, name in named:
            assert (ROOT / file).is_file(), file
            assert f"def {name}(" in (ROOT / file).read_text() if name else True, f"{file}::{name}"


def test_it_says_how_to_report_and_what_is_supported() -> None:
    headings = re.findall(r"(?m)^## (.*)$", PAGE.read_text())
    assert headings[:3] == ["Reporting", "Supported versions", "Threat model: who trusts whom"]
