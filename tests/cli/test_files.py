"""`slipway lint` and `slipway diff`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from slipway.cli import main
from slipway.cli.difference import consequences

from tests.api.cases import model_deployment, with_two


def written_to(path: Path, *objects: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def test_lint_is_content_with_good_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = written_to(tmp_path / "a.yaml", model_deployment())
    two = written_to(tmp_path / "b.yaml", with_two(serve="v2"))
    assert main(["lint", "-f", one, two]) == 0
    captured = capsys.readouterr()
    assert captured.err == "2 checked, 0 errors, 0 warnings\n"


def test_lint_names_file_object_field_and_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written_to(tmp_path / "a.yaml", with_two(serve="v9"), model_deployment(rolout={}))
    assert main(["lint", "-f", file, "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(item["severity"], item["field"]) for item in found] == [
        ("error", "spec.serve"),
        ("warning", "spec.rolout"),
    ]
    assert main(["lint", "-f", file]) == 1
    assert f"{file}: sentiment: error: spec.serve: must be" in capsys.readouterr().out


def test_strict_takes_warnings_for_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written_to(tmp_path / "a.yaml", model_deployment(rolout={}))
    assert main(["lint", "-f", file]) == 0
    assert main(["lint", "-f", file, "--strict", "-o", "yaml"]) == 1
    assert "UnknownField" in capsys.readouterr().out


def spec(**changes: Any) -> dict[str, Any]:
    return dict(with_two(serve="v1")["spec"] | changes)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, spec(), "version v1 starts and, once it is ready, gets all traffic"),
        (spec(), spec(serve="v2"), "a rollout from v1 to v2 begins: 5 % for at least"),
        (spec(), spec(autoscaling={"maxReplicas": 9}), "no rollout, and no pod restarts"),
        (spec(), spec(runtime={"env": [{"name": "A", "value": "1"}]}), "version v1 has changed and gets new pods"),
        (spec(), spec(versions=spec()["versions"][:1]), "version v2 is no longer declared"),
        (spec(), spec(suspend=True), "nothing is changed any more"),
        (spec(), spec(suspend=True, serve="v2"), "only once spec.suspend is removed"),
    ],
)
def test_consequences_are_told(before: dict[str, Any], after: dict[str, Any], words: str) -> None:
    lines = list(consequences("sentiment", before, after))
    assert any(words in line for line in lines), lines


def test_completion_knows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh"):
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert all(word in script for word in ("promote", "history", "--watch", "lint"))


def test_the_plugin_is_the_same_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/kubectl-slipway"])
    with pytest.raises(SystemExit):
        main(["--help"])
    assert capsys.readouterr().out.startswith("usage: kubectl slipway ")
