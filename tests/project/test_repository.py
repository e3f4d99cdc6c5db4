"""What must hold for the repository as a whole."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = 450
EXEMPT = ("tests/kube_wire/record.py",)


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def test_no_module_outgrows_its_room() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in tracked("*.py")
        if (count := len(path.read_text().splitlines())) > LINES and str(path.relative_to(ROOT)) not in EXEMPT
    }
    assert not long


@pytest.mark.parametrize("word", ["utils", "helpers", "manager", "base"])
def test_modules_are_named_after_nouns_of_the_domain(word: str) -> None:
    assert not [path for path in tracked("*.py") if path.stem == word]


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for page in tracked("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken
