"""Output for programs, tables of many objects, watching, and colours."""

import asyncio
import io
import json
from typing import Any

import pytest
import yaml
from slipway.cli.notation import written
from slipway.cli.show import document_of, summary_of, text_of, watch
from slipway.cli.terminal import Screen

from tests.cli.test_show import NOW, obj
from tests.gitops.phases import recorded


class Terminal(io.StringIO):
    """A file that says that a person looks at it."""

    def isatty(self) -> bool:
        return True


def test_programs_get_the_status_and_what_is_next() -> None:
    document = document_of("status", obj(), NOW)
    as_json, as_yaml = (written(document, form) for form in ("json", "yaml"))
    assert json.loads(as_json) == yaml.safe_load(as_yaml) == document
    assert document["status"]["phase"] == "Progressing"
    assert document["next"]


def test_explain_gives_programs_its_words_as_well() -> None:
    document = document_of("explain", obj(), NOW)
    assert document["next"] == document_of("status", obj(), NOW)["next"]
    shown = text_of("explain", obj(), NOW).splitlines()
    assert document["why"] == shown[-len(document["why"]) :] != []


def test_history_is_newest_first_and_a_list_for_programs() -> None:
    held = recorded()["Stalled"]
    lines = text_of("history", held, NOW).splitlines()
    assert lines[0].split() == ["ROLLOUT", "COURSE", "OUTCOME", "STARTED", "ENDED", "BY", "EVIDENCE"]
    assert "RolledBack" in lines[1]
    assert "v1 to v2" in lines[1]
    assert document_of("history", held, NOW) == held["status"]["history"]
    assert text_of("history", recorded()["Pending"], NOW) == "no rollout has ended yet"


def test_all_objects_of_a_namespace_are_a_table() -> None:
    second = obj(phase="Ready", candidate="")
    second["metadata"] = second["metadata"] | {"name": "alpha"}
    lines = summary_of([obj(), second], "default").splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "alpha", "sentiment"]
    assert lines[2].split()[1:6] == ["Progressing", "v1", "v2", "25", "%"]
    assert summary_of([], "nlp") == "no ModelDeployments in nlp"


async def watched(texts: list[str], screen: Screen) -> None:
    looks = iter(texts)

    async def read() -> str:
        return next(looks)

    left = len(texts)

    async def sleep(_: float) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await watch(read, screen, sleep)


async def test_without_a_terminal_only_changes_are_printed() -> None:
    file = io.StringIO()
    await watched(["a", "a", "b", "b", "a"], Screen(file, {}))
    assert file.getvalue() == "a\nb\na\n"


async def test_on_a_terminal_the_screen_is_drawn_anew() -> None:
    file = Terminal()
    await watched(["a", "b"], Screen(file, {"NO_COLOR": "1"}))
    assert file.getvalue() == "\x1b[H\x1b[Ja\n\x1b[H\x1b[Jb\n"


@pytest.mark.parametrize(
    ("file", "environment", "coloured"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colours_are_for_terminals(file: io.StringIO, environment: dict[str, Any], coloured: bool) -> None:
    Screen(file, environment).show("m in n: Stalled (RolledBack)")
    assert ("\x1b[31mStalled\x1b[0m" in file.getvalue()) is coloured
