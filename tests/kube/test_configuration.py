"""Where the connection to a cluster comes from."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio.config import ConfigException
from slipway.cli import main
from slipway.kube import transport


def test_a_pod_without_a_token_is_told_what_may_be_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_token(**_: Any) -> None:
        raise ConfigException("Service token file does not exist.")

    monkeypatch.setattr(transport, "load_incluster_config", without_token)
    with pytest.raises(ConfigException, match=r"automountServiceAccountToken false\?\): Service token file"):
        asyncio.run(transport.load_configuration({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}))


def _kubeconfig(cluster: str = "{server: 'http://127.0.0.1:1'}", users: str = "[{name: u, user: {token: a}}]") -> bytes:
    text = "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
    return f"{text}clusters: [{{name: c, cluster: {cluster}}}]\nusers: {users}\n".encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a: [",
        b"text",
        b"\xff\xfe\x00",
        b"[1]",
        b"contexts: text",
        b"current-context: x\ncontexts: [{name: x}]\nclusters: []",
        _kubeconfig(cluster="text"),
        _kubeconfig(cluster="{server: 'https://127.0.0.1:1', certificate-authority: /none}"),
        _kubeconfig(cluster="{server: 'https://127.0.0.1:1', certificate-authority-data: '!!!'}"),
    ],
)
def test_a_kubeconfig_that_is_none_is_told(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert main(["status"]) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_a_folder_or_nothing_in_its_place_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (tmp_path, tmp_path / "none"):
        monkeypatch.setenv("KUBECONFIG", str(path))
        assert main(["status"]) == 1
    assert not caplog.records
