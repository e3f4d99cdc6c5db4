"""Requests that schemathesis makes from docs/openapi.yaml, valid and invalid, to a server on a socket."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from slipway_runtime.settings import Limits
from slipway_runtime.tensors.datatypes import Datatype

from tests.runtime.harness import INFER, ROOT, ServerThread, echo_model, fetch
from tests.runtime.test_openapi import DOCUMENT

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection", "unsupported_method", "allow_header_conformance",
)  # fmt: skip
EXAMPLES = 5
"""Requests for each operation and kind, beside those at the edges of each schema."""
PHASES = "examples,coverage,fuzzing"
# 501 is the answer where something is not offered; what is too large is refused whatever else is wrong with it.
CONFIG = """
[parameters]
"path.model" = "my model"
"path.version" = "v1"
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "501"]
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "413", "415", "501"]
"""


def generated(server: ServerThread, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "schemathesis.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "schemathesis.cli", "run", str(ROOT / "docs/openapi.yaml")]
    command += ["--url", f"http://{server.address}", "--checks", ",".join(CHECKS), "--phases", PHASES]
    # The same requests each time: what is new is to be found where somebody looks, not in another's change.
    command += ["--max-examples", str(EXAMPLES), "--seed", "1", "--continue-on-failure"]
    command += ["--warnings", "off", "--no-color"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize(("datatype", "value"), [(Datatype.FP32, 1.5), (Datatype.BYTES, "text")])
def test_whatever_is_made_from_the_schema_is_answered_as_the_schema_says(
    tmp_path: Path, datatype: Datatype, value: object
) -> None:
    with ServerThread(echo_model(datatype, batched=True), Limits(max_request_bytes=200_000)) as server:
        done = generated(server, tmp_path)
        assert done.returncode == 0, f"{done.stdout[-20_000:]}\n{done.stderr[-5_000:]}"
        operations = sum(method in item for item in DOCUMENT["paths"].values() for method in ("get", "post"))
        assert f"Tested: {operations}" in done.stdout
        tensor = {"name": "x", "shape": [1, 1], "datatype": datatype, "data": [value]}
        status, body, _ = fetch(server.address, "POST", INFER, json.dumps({"inputs": [tensor]}).encode())
        assert (status, json.loads(body)["outputs"][0]["data"]) == (200, [value])
        assert server.metrics()["slipway_requests_in_flight"] == 0
