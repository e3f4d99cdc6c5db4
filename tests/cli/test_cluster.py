"""The commands as processes would run them, against an API server, with an operator that only answers actions."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from slipway.cli import main

from tests.api.cases import with_two
from tests.api.server import OBJECTS, Api, serving_api

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
