"""README's "A model of your own", word for word, in a namespace of its own."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from e2e.sandbox.binaries import helm_path, kubectl_path
from e2e.sandbox.cluster import Sandbox
from tests.docs.blocks import ROOT, blocks
from tests.integration.bench import Bench

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


def script(namespace: str, folder: Path) -> str:
    """The shell blocks of README, with the test's namespace and folder in the place of README's."""
    text = "\n".join(block.text for block in blocks() if block.page == ROOT / "README.md" and block.language == "sh")
    for theirs, ours in ((".default.svc", f".{namespace}.svc"), ("/tmp/my-model", str(folder))):
        assert theirs in text
        text = text.replace(theirs, ours)
    return f"set -euo pipefail\nkubectl config set-context --current --namespace={namespace}\n{text}"


async def test_a_model_of_your_own_is_served_and_rolled_out(bench: Bench, tmp_path: Path) -> None:
    if not isinstance(bench.cluster, Sandbox):
        pytest.skip("only a sandbox's pods see the files of this machine")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(bench.cluster.kubeconfig.read_text())
    folders = (kubectl_path().parent, helm_path().parent, Path(sys.executable).parent)
    process = await asyncio.create_subprocess_exec(
        *("/bin/bash", "-c", script(bench.namespace, tmp_path / "my-model")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "GATEWAY": bench.cluster.gateway_url,
            "PATH": ":".join([*map(str, folders), os.environ["PATH"]]),
        },
    )
    output = (await process.communicate())[0].decode()
    assert process.returncode == 0, output
    assert '"inputs":[{"name":"input","datatype":"FP32","shape":[-1,4]}]' in output
    assert '"model_version":"v1"' in output
    assert "Abort of mine: Accepted" in output
    assert [line.split()[4] for line in output.splitlines() if line.startswith("r-0000")] == [
        "Promoted",
        "Aborted",
        "Promoted",
    ]
