"""The table of docs/security.md that says what each right is for. ``python -m tests.rights.page`` writes it."""

import itertools
from pathlib import Path

from tests.rights.roles import Right, granted
from tests.rights.test_watches import unnoticed
from tests.rights.trials import TRIALS

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- rights: begin -->\n", "<!-- rights: end -->\n"


def _consequence(right: Right) -> str:
    return TRIALS[right].consequence if right in TRIALS else unnoticed(right)


def table() -> str:
    """Markdown, a row for each kind's verbs that are needed for the same."""
    lines = ["| Right | Without it |", "| --- | --- |"]
    for (group, resource), rights in itertools.groupby(sorted(granted()), lambda right: right[:2]):
        by_consequence: dict[str, list[str]] = {}
        for right in rights:
            by_consequence.setdefault(_consequence(right), []).append(f"`{right.verb}`")
        plural, slash, part = resource.partition("/")
        name = f"`{plural}{'.' if group else ''}{group}{slash}{part}`"
        lines += [f"| {', '.join(verbs)} {name} | {text} |" for text, verbs in by_consequence.items()]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with the table as it should be."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{head}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page())
