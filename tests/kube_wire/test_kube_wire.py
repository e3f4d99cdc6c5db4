"""The sandbox's API server answers 195 recorded requests as a real one did."""

import asyncio
import json
import shutil
import sys
from pathlib import Path

from e2e.sandbox.apiserver import ApiServer, User

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
IN_PART = json.loads((HERE / "in_part.json").read_text())
TOKENS = {"admin-token": User("admin", ("system:masters",)), "limited-token": User("limited")}
# The address the recorded server had; discovery tells it.
RECORDED_ADDRESS = "127.0.0.1:6444"


async def run(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return output.decode()


def key_of(entry, key: str) -> str:
    for part in filter(None, key.split(".")):
        entry = entry[part]
    return str(entry)


def cut(node, path: list[str], key: str, names: set[str]):
    """A copy in which each list at `path` keeps only the named entries, in the order of their names."""
    if not path:
        return sorted((entry for entry in node if key_of(entry, key) in names), key=lambda entry: key_of(entry, key))
    if path[0] == "*":
        return [cut(entry, path[1:], key, names) for entry in node]
    return {**node, path[0]: cut(node[path[0]], path[1:], key, names)}


def cut_down(folder: Path) -> None:
    for step in IN_PART["steps"]:
        file = folder / f"{step['scenario']}.json"
        steps = json.loads(file.read_text())
        names = set(IN_PART["entries"][step["entries"]])
        steps[step["step"]]["response"] = cut(steps[step["step"]]["response"], step["list"], step["key"], names)
        file.write_text(json.dumps(steps))


async def test_all_recorded_answers_are_equal(tmp_path: Path) -> None:
    expected, actual = tmp_path / "expected", tmp_path / "actual"
    shutil.copytree(RECORDED, expected)
    actual.mkdir()
    server = ApiServer(tokens=TOKENS, data_dir=tmp_path / "data", advertise=RECORDED_ADDRESS)
    await server.start()
    try:
        said = await run(str(HERE / "record.py"), server.url, "admin-token", "limited-token", str(actual))
    finally:
        await server.stop()
    assert "builtin-kinds 23 steps" in said, said
    cut_down(expected)
    cut_down(actual)
    differences = await run(str(HERE / "compare.py"), str(expected), str(actual))
    assert differences.strip() == "195 of 195 steps equal"


def test_every_entry_that_is_compared_was_recorded() -> None:
    for step in IN_PART["steps"]:
        if "*" in step["list"]:
            continue
        node = json.loads((RECORDED / f"{step['scenario']}.json").read_text())[step["step"]]["response"]
        for part in step["list"]:
            node = node[part]
        recorded = {key_of(entry, step["key"]) for entry in node}
        assert set(IN_PART["entries"][step["entries"]]) <= recorded
