"""Generated files are what the code generates."""

from pathlib import Path

import pytest
from slipway.cli.pages import pages

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted(pages()), ids=str)
def test_the_checked_in_file_is_current(path: Path) -> None:
    assert (ROOT / path).read_text() == pages()[path], f"{path} is out of date: run `make generate`"
