"""Commands in the pages exist, with the subcommands and flags that are given there."""

import functools
import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest
import yaml
from slipway.cli import _parser

from e2e.sandbox.binaries import helm_path, kubectl_path
from tests.docs.blocks import ROOT, blocks

SHELLS = ("sh", "bash", "", "console")
KUBECTL_GROUPS = {"rollout", "config", "create", "auth"}
PLACEHOLDERS = {"…": "x", "NAME": "x", "FILE": "x"}


def commands(program: str) -> list[tuple[str, list[str]]]:
    """Place and words of every call of a program, in shell blocks."""
    found = []
    for block in blocks():
        if block.language not in SHELLS:
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            for words in calls(line):
                if words[0] == program:
                    found.append((f"{block.place} {' '.join(words)}", words[1:]))
    return found


def calls(line: str) -> Iterator[list[str]]:
    """The commands of one line, split at pipes and the like, without prompts, variables and redirections."""
    line = re.sub(r"^\s*\$ ", "", line.strip())
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words = list(lexer)
    except ValueError:
        return
    part: list[str] = []
    for word in [*words, ";"]:
        if not set(word) <= set("|&;"):
            part.append(word)
            continue
        part = part[: next((at for at, item in enumerate(part) if set(item) <= set("<>")), len(part))]
        while part and re.fullmatch(r"\w+=.*", part[0]):
            part = part[1:]
        if part:
            yield part
        part = []


@pytest.mark.parametrize(
    ("place", "words"), commands("slipway"), ids=lambda value: value if isinstance(value, str) else ""
)
def test_slipway_takes_the_arguments(place: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if "--help" in words:
        words = [word for word in words if word != "--help"]
    try:
        _parser(["run", "simulate"]).parse_args([PLACEHOLDERS.get(word, word) for word in words])
    except SystemExit:
        pytest.fail(capsys.readouterr().err)


@pytest.mark.parametrize("place_and_words", commands("slipway-runtime"), ids=lambda value: value[0])
def test_slipway_runtime_takes_the_flags(place_and_words: tuple[str, list[str]]) -> None:
    _, words = place_and_words
    assert flags_of(words) <= known_flags("slipway-runtime", (words[0],))


@pytest.mark.parametrize("place_and_words", commands("kubectl"), ids=lambda value: value[0])
def test_kubectl_takes_the_flags(place_and_words: tuple[str, list[str]]) -> None:
    _, words = place_and_words
    verbs = subcommand(words, {"-n", "--namespace", "--context", "--kubeconfig"})
    if verbs[0] == "slipway":
        return  # the plugin: the same program as slipway
    depth = 3 if verbs[:2] == ["create", "secret"] else 2 if verbs[0] in KUBECTL_GROUPS else 1
    path = verbs[:depth]
    unknown = flags_of(words) - known_flags("kubectl", tuple(path)) - known_flags("kubectl", ("options",))
    assert not unknown


@pytest.mark.parametrize("place_and_words", commands("helm"), ids=lambda value: value[0])
def test_helm_takes_the_flags(place_and_words: tuple[str, list[str]]) -> None:
    _, words = place_and_words
    verbs = subcommand(words, {"-n", "--namespace", "--kube-context"})
    assert flags_of(words) <= known_flags("helm", (verbs[0],))
    if verbs[0] == "install":
        for position, word in enumerate(words):
            if word == "--set":
                _value_exists(words[position + 1])


def _value_exists(setting: str) -> None:
    values = yaml.safe_load((ROOT / "charts/slipway/values.yaml").read_text())
    for key in setting.partition("=")[0].split("."):
        assert key in values, setting
        values = values[key]


def test_make_has_the_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    found = commands("make")
    assert found
    for place, words in found:
        for word in words:
            if "=" not in word:
                assert re.search(rf"^{re.escape(word)}:", makefile, re.M), place


def subcommand(words: list[str], global_flags: set[str]) -> list[str]:
    """The words that are no flags, without values of global flags that stand before the subcommand."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in global_flags:
            skip = True
        elif not word.startswith("-"):
            kept.append(word)
    return kept


def flags_of(words: list[str]) -> set[str]:
    ended = words[: words.index("--")] if "--" in words else words
    return {word.partition("=")[0] for word in ended if re.fullmatch(r"-[a-zA-Z]|--[a-z][-a-z0-9]*(=.*)?", word, re.S)}


@functools.cache
def known_flags(program: str, path: tuple[str, ...]) -> frozenset[str]:
    """Flags in a command's own help."""
    binary = {"kubectl": kubectl_path, "helm": helm_path}.get(program)
    start = [str(binary())] if binary else [str(ROOT / ".venv/bin" / program)]
    asked = [*start, *path] if path == ("options",) else [*start, *path, "--help"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=True)
    return frozenset(re.findall(r"(?<![\w-])--?[a-zA-Z][-a-zA-Z0-9]*", answer.stdout)) | {"-n", "--namespace", "-h"}
