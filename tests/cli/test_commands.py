import socket
from pathlib import Path

import pytest
import yaml
from slipway.api.errors import SlipwayError
from slipway.api.schema import crd
from slipway.cli import _parser, main
from slipway.cli.cluster import current_namespace, in_users_terms
from slipway.kube.failures import failure_of

from tests.api.cases import model_deployment, with_two

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a, namespace: models}}]
clusters: [{name: a, cluster: {server: "http://127.0.0.1:PORT"}}]
users: [{name: a, user: {token: t}}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mdep.yaml"


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster that nobody answers for."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = tmp_path / "config"
    path.write_text(KUBECONFIG.replace("PORT", str(port)))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def test_crd_prints_the_definition(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == crd()


def test_render_prints_the_objects(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(yaml.safe_dump(with_two()))
    assert main(["render", "-f", str(file), "--candidate", "v2", "--weight", "20", "-n", "nlp"]) == 0
    objects = list(yaml.safe_load_all(capsys.readouterr().out))
    assert {item["metadata"]["namespace"] for item in objects} == {"nlp"}
    kinds = [item["kind"] for item in objects]
    assert kinds.count("Deployment") == 2
    [route] = [item for item in objects if item["kind"] == "VirtualService"]
    default = next(entry for entry in route["spec"]["http"] if entry["name"] == "default")
    assert [share["weight"] for share in default["route"]] == [80, 20]


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        (yaml.safe_dump(with_two(serve="v9")), [], "spec.serve: must be the name"),
        (yaml.safe_dump(with_two(runtime={"pool": "Shared"})), [], "spec.runtime.pool: is not supported yet"),
        (yaml.safe_dump(with_two()), ["--candidate", "v1"], "--candidate"),
        (yaml.safe_dump(with_two()), ["--weight", "5"], "--weight"),
        (yaml.safe_dump(with_two()), ["--candidate", "v2", "--weight", "101"], "--weight"),
        ("kind: ConfigMap", [], "no ModelDeployment"),
        ("a: [", [], "no YAML"),
    ],
)
def test_render_tells_what_is_wrong(
    text: str, arguments: list[str], words: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    assert main(["render", "-f", str(file), *arguments]) == 1
    assert words in capsys.readouterr().err


def test_render_warns_of_fields_that_would_be_dropped(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(yaml.safe_dump(model_deployment(rolout={})))
    assert main(["render", "-f", str(file)]) == 0
    assert "warning: spec.rolout" in capsys.readouterr().err


def test_a_file_that_is_missing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "-f", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["status", "m"], ["promote", "m", "--full"], ["-n", "x", "abort", "m", "--wait"]])
def test_a_cluster_that_does_not_answer_is_told(
    command: list[str], kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 1
    assert "KUBECONFIG" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"404 page not found\n", "the cluster does not know ModelDeployments"),
        (b'{"kind": "Status", "reason": "NotFound", "message": "m is not there"}', "m is not there"),
    ],
)
def test_a_kind_that_is_missing_is_told_from_an_object(body: bytes, words: str) -> None:
    with pytest.raises(SlipwayError) as told, in_users_terms():
        raise failure_of(404, body)
    assert str(told.value) == words
    assert "slipway crd" in told.value.remedy


def test_what_the_api_server_refuses_is_no_matter_of_rights() -> None:
    body = b'{"kind": "Status", "reason": "Invalid", "message": "too long"}'
    with pytest.raises(SlipwayError) as told, in_users_terms():
        raise failure_of(422, body)
    assert (str(told.value), told.value.remedy) == ("too long", "")


def test_a_missing_kubeconfig_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert main(["explain", "m"]) == 1
    assert "KUBECONFIG" in capsys.readouterr().err


def test_the_namespace_is_that_of_the_context(kubeconfig: Path) -> None:
    assert current_namespace({"KUBECONFIG": str(kubeconfig)}) == "models"
    assert current_namespace({"KUBECONFIG": str(kubeconfig) + "-none"}) == "default"


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["fly"], ["promote"], ["render"], ["promote", ""], ["explain", ""]),
        *(["abort", "m", "--wait", "--timeout", timeout] for timeout in ("soon", "nan", "inf", "-1", "5 minutes", "")),
        *(["status", name] for name in ("", "a/b", "..", "UPPER", "deploy/a", "mdep/", "a?watch=1", "a" * 254)),
        *([*before, "status", "m", *after] for before, after in (([], ["-n", "a/b"]), (["-n", "../x"], []))),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_the_operators_flags_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--help"])
    assert ended.value.code == 0
    assert "--prometheus-url" in capsys.readouterr().out


@pytest.mark.parametrize("prefix", ["", "mdep/", "modeldeployment/", "modeldeployments.slipway.dev/"])
def test_names_may_stand_in_kubectls_form(prefix: str) -> None:
    assert _parser([]).parse_args(["status", f"{prefix}sentiment"]).name == "sentiment"


@pytest.mark.parametrize(("text", "seconds"), [("60", 60), ("0.5", 0.5), ("90s", 90), ("1m30s", 90), ("500ms", 0.5)])
def test_times_to_wait_are_seconds_or_durations(text: str, seconds: float) -> None:
    assert _parser([]).parse_args(["retry", "m", "--timeout", text]).timeout == seconds


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_shells_are_given_completions(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "promote" in capsys.readouterr().out


def test_an_interrupted_command_says_so(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("slipway.cli.act.uuid.uuid4", interrupted)
    assert main(["promote", "m"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_nothing_to_convert_is_a_failure(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(yaml.safe_dump(model_deployment()))
    assert main(["convert", "-f", str(file)]) == 1
    assert "0 converted" in capsys.readouterr().err
