"""The commands as processes would run them, against an API server, with an operator that only answers actions."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from slipway.cli import main

from e2e.sandbox.binaries import kubectl_path
from tests.api.cases import with_two
from tests.api.server import OBJECTS, Api, serving_api
from tests.cli.test_views import Terminal

pytestmark = pytest.mark.integration

OBJECT = f"{OBJECTS}/sentiment"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    async with serving_api() as made:
        made.write_kubeconfig(tmp_path / "config")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        await made.create(with_two())
        yield made


async def run(*arguments: str) -> int:
    return await asyncio.to_thread(main, arguments)


async def answering(api: Api, result: str) -> None:
    """Answer the next action."""
    while True:
        _, obj = await api.call("GET", OBJECT)
        action = obj.get("status", {}).get("action")
        if action:
            answer = {"id": action["id"], "verb": action["verb"], "result": result, "message": f"by {action['by']}"}
            await api.call("PATCH", f"{OBJECT}/status", {"status": {"lastAction": answer}}, headers=MERGE)
            return
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("arguments", "verb", "result", "code"),
    [
        (("promote", "sentiment", "--full"), "PromoteFull", "Accepted", 0),
        (("promote", "sentiment"), "Promote", "Refused", 1),
        (("abort", "sentiment", "-n", "default"), "Abort", "Accepted", 0),
        (("-n", "default", "pause", "sentiment"), "Pause", "Ignored", 1),
        (("resume", "sentiment"), "Resume", "Accepted", 0),
        (("retry", "sentiment"), "Retry", "Accepted", 0),
    ],
)
async def test_an_action_is_asked_for_and_its_answer_told(
    arguments: tuple[str, ...],
    verb: str,
    result: str,
    code: int,
    api: Api,
    capsys: pytest.CaptureFixture[str],
) -> None:
    operator = asyncio.create_task(answering(api, result))
    assert await run(*arguments, "--wait", "--by", "ann") == code
    await operator
    assert capsys.readouterr().out == f"{verb} of sentiment: {result}: by ann\n"


async def test_without_wait_the_request_is_only_written(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("promote", "sentiment", "--reason", "looks good") == 0
    _, obj = await api.call("GET", OBJECT)
    assert obj["status"]["action"]["reason"] == "looks good"
    assert obj["status"]["action"]["id"] in capsys.readouterr().out


async def test_silence_ends_with_3(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("promote", "sentiment", "--wait", "--timeout", "0.1") == 3
    assert "is the operator running?" in capsys.readouterr().err


async def test_status_and_explain_read_the_object(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("status", "explain"):
        assert await run(command, "sentiment") == 0
        assert "sentiment in default: Pending" in capsys.readouterr().out


async def test_an_object_that_is_not_there_is_told(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("status", "other") == 1
    assert "not found" in capsys.readouterr().err


def changed(serve: str, path: Path) -> str:
    path.write_text(yaml.safe_dump(with_two(serve=serve)))
    return str(path)


async def test_diff_lets_the_server_say_what_it_would_store(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, before = await api.call("GET", OBJECT)
    same, other = changed("v1", tmp_path / "same.yaml"), changed("v2", tmp_path / "other.yaml")
    assert await run("diff", "-f", same) == 0
    assert capsys.readouterr().out == ""
    assert await run("diff", "-f", other, "-n", "default") == 1
    out = capsys.readouterr().out
    assert "-serve: v1\n+serve: v2\n" in out
    assert "a rollout from v1 to v2 begins" in out
    _, after = await api.call("GET", OBJECT)
    assert after == before


async def test_diff_of_an_object_that_is_not_there_shows_all_of_it(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = with_two(serve="v1")
    new["metadata"] = {"name": "another", "namespace": "default"}
    (tmp_path / "new.yaml").write_text(yaml.safe_dump(new))
    assert await run("diff", "-f", str(tmp_path / "new.yaml"), "-o", "json") == 1
    [change] = json.loads(capsys.readouterr().out)
    assert change["follows"] == ["version v1 starts and, once it is ready, gets all traffic"]
    assert "+serve: v1" in change["spec"]
    assert (await api.call("GET", f"{OBJECTS}/another"))[0] == 404


async def test_diff_of_a_broken_file_fails_with_2(api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("diff", "-f", changed("v9", tmp_path / "broken.yaml")) == 2
    assert "spec.serve" in capsys.readouterr().err


async def test_all_objects_and_the_notations(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("status") == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["sentiment", "Pending"]
    assert await run("status", "sentiment", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["name"] == "sentiment"
    assert await run("history", "sentiment", "-o", "yaml") == 0
    assert yaml.safe_load(capsys.readouterr().out) == []


@pytest.mark.parametrize(("notation", "coloured"), [("text", True), ("json", False), ("yaml", False)])
async def test_documents_for_programs_have_no_colours_on_terminals_either(
    api: Api, notation: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert await run("status", "sentiment", "-o", notation) == 0
    assert ("\x1b[" in terminal.getvalue()) is coloured


async def test_kubectl_finds_the_plugin(api: Api, tmp_path: Path) -> None:
    """The real kubectl runs a program of that name on the PATH."""
    plugin = tmp_path / "kubectl-slipway"
    plugin.write_text(f"#!{sys.executable}\nimport sys\nfrom slipway.cli import main\nsys.exit(main())\n")
    plugin.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        *(str(kubectl_path()), "slipway", "status", "sentiment"),
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert output.decode().startswith("sentiment in default: Pending")
