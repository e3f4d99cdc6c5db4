"""What commands say of files that are not what they should be: never a traceback, always the file and the place."""

import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from slipway.cli import main

from tests.api.cases import model_deployment

COMMANDS = ("lint", "render", "convert", "simulate")


def said(path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([command, "-f", str(path)]) == 1
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [", "is no YAML"),
        (b"\xff\xfe\x00", "is no YAML"),
        (b"when: 2024-99-99", "is no YAML"),
        (b"[" * 10_000, "nested too deeply"),
        (b"", "there is nothing in"),
        (b"# only a comment\n---\n", "there is nothing in"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_name(
    command: str, content: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.yaml"
    path.write_bytes(content)
    told = said(path, command, capsys)
    assert words in told
    assert str(path) in told


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_and_no_file_are_told(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"cannot read {tmp_path}: Is a directory" in said(tmp_path, command, capsys)
    assert "none.yaml: No such file" in said(tmp_path / "none.yaml", command, capsys)


@pytest.mark.parametrize("command", ["lint", "render", "simulate"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metadata": "sentiment"}, "metadata: must be an object"),
        ({"metadata": ["sentiment"]}, "metadata: must be an object"),
        ({"metadata": None}, "metadata.name: is required"),
        ({"metadata": {"name": 7}}, "metadata.name: must be a string"),
        ({"metadata": {"name": "m", "namespace": 7}}, "metadata.namespace: must be a string"),
        ({"apiVersion": "slipway.dev/v9"}, "apiVersion: must be slipway.dev/v1alpha1, not slipway.dev/v9"),
        ({"apiVersion": None}, "apiVersion: must be slipway.dev/v1alpha1"),
        ({"spec": "v1"}, "spec: is required and must be an object"),
    ],
)
def test_the_head_of_an_object_is_checked_too(
    command: str, changes: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(yaml.safe_dump(model_deployment() | changes))
    assert words in said(path, command, capsys)


def test_the_objects_of_a_list_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "all.yaml"
    items = [model_deployment(), model_deployment() | {"spec": {}}]
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    assert main(["lint", "-f", str(path)]) == 1
    assert "2 checked, 1 errors" in capsys.readouterr().err


def test_standard_input_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a: ["))
    assert main(["lint", "-f", "-"]) == 1
    assert "standard input is no YAML" in capsys.readouterr().err


def test_a_kind_of_another_version_is_told_what_it_must_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "isvc.yaml"
    path.write_text("kind: InferenceService\nspec: {}\n---\n{apiVersion: extensions/v1, kind: Deployment}\n")
    assert main(["convert", "-f", str(path), "--strict"]) == 2
    told = capsys.readouterr().err
    assert "apiVersion must be serving.kserve.io/v1beta1\n" in told
    assert "apiVersion must be apps/v1, not extensions/v1\n" in told
