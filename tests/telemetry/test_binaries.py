"""The programs of other projects: found, fetched once, and named when missing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.sandbox import binaries
from e2e.sandbox.binaries import BinaryMissingError


def output(*command: str | Path) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def test_each_program_is_the_one_expected() -> None:
    assert "/1.40." in output(binaries.envoy_path(), "--version")
    assert output(binaries.prometheus_path(), "--version").startswith("prometheus, version")
    client = json.loads(output(binaries.kubectl_path(), "version", "--client", "-o", "json"))["clientVersion"]
    assert (client["major"], client["minor"]) == ("1", "36")
    assert output(binaries.helm_path(), "version", "--short").startswith("v4.")


def test_a_program_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    unpacked = []

    def unpack(folder: Path) -> None:
        unpacked.append(folder)
        (folder / "bin").mkdir()
        (folder / "bin" / "tool").write_text("tool")

    for _ in range(2):
        assert binaries.cached("tool", "bin/tool", unpack) == tmp_path / "cache" / "tool" / "bin" / "tool"
    assert len(unpacked) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["tool"]


def test_a_failed_fetch_leaves_nothing_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(BinaryMissingError, match=r"prometheus\.io"):
        binaries.prometheus_path()
    with pytest.raises(BinaryMissingError, match="tool is not in the package"):
        binaries.cached("tool", "tool", lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_what_stands_for_tritons_image_has_tritons_program_only() -> None:
    command = [sys.executable, "-m", "e2e.sandbox.triton", "sh", "-c", "true"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=binaries.REPOSITORY)
    assert answer.returncode == 1
    assert "whose only program is tritonserver, not sh -c true" in answer.stderr
