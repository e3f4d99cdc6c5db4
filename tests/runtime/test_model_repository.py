"""Several models in one server, and changing them while they serve."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from slipway_runtime.settings import RepositorySettings
from tritonclient.utils import InferenceServerException

from tests.runtime.harness import await_condition, fetch, json_request
from tests.runtime.repository_server import (
    EXPLICIT,
    RepositoryServer,
    model,
    write,
    write_waiting,
)

FIXED = RepositorySettings()


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RepositoryServer]:
    """`double` of one version, `scale` of three, and one in Triton's layout."""
    folder = tmp_path_factory.mktemp("repository")
    write(folder / "double", 2)
    for version, factor in (("1", 1), ("2", 22), ("10", 10)):
        write(folder / "scale" / version, factor)
    for version in ("1", "3"):
        write(folder / "theirs" / version, float(version)).joinpath("config.yaml").unlink()
    (folder / "theirs" / "config.pbtxt").write_text(
        'backend: "pytorch" max_batch_size: 8 version_policy: { all: {} }\n'
        'input [{ name: "x" data_type: TYPE_FP32 dims: [4] }] output [{ name: "y" data_type: TYPE_FP32 dims: [4] }]'
    )
    with RepositoryServer(rules=replace(FIXED, folder=folder)) as server:
        yield server


def test_a_folder_of_models_and_versions(several: RepositoryServer) -> None:
    assert several.infer("double") == 2
    assert [several.infer("scale", version) for version in ("1", "2", "10")] == [1, 22, 10]
    assert several.infer("scale") == 10  # the newest, as people count
    assert (several.infer("theirs"), several.infer("theirs", "1")) == (3, 1)
    assert several.index() == {
        f"{name}:{version}": ("READY", "")
        for name, versions in {"double": "1", "scale": "10 2 1", "theirs": "3 1"}.items()
        for version in versions.split()
    }
    assert several.ask("GET", "/v2/models/scale")[1]["versions"] == ["1", "2", "10"]
    digests = {several.ask("GET", f"/v2/models/scale/versions/{v}")[1]["parameters"]["sha256"] for v in (1, 2, 10)}
    assert len(digests) == 3
    assert several.ask("GET", "/v2/health/ready")[0] == 200


def test_what_is_not_there_is_404(several: RepositoryServer) -> None:
    body = json.loads(json_request(np.ones((1, 4))))
    for path in ("/v2/models/no/infer", "/v2/models/scale/versions/3/infer", "/v2/models/double/versions/x/infer"):
        assert several.ask("POST", path, body)[0] == 404
    for path, status in (
        ("/v2/models/scale/versions/2/ready", 200),
        ("/v2/models/scale/versions/3/ready", 400),
        ("/v2/models/scale/versions/3", 404),
        ("/v2/models/no/config", 404),
    ):
        assert several.ask("GET", path)[0] == status


def test_every_version_counts_for_itself(several: RepositoryServer) -> None:
    before = several.ask("GET", "/v2/models/scale/versions/2/stats")[1]["model_stats"][0]["inference_count"]
    several.infer("scale", "2")
    several.infer("scale", "10")
    after = several.ask("GET", "/v2/models/scale/versions/2/stats")[1]["model_stats"]
    assert [(one["version"], one["inference_count"]) for one in after] == [("2", before + 1)]
    assert len(several.ask("GET", "/v2/models/stats")[1]["model_stats"]) == 6
    text = fetch(several.address, "GET", "/metrics")[1].decode()
    assert text.count("# TYPE slipway_requests_total counter") == 1
    assert 'slipway_model_ready{model="theirs",version="3",revision=""} 1' in text


def test_grpc_finds_models_and_versions(several: RepositoryServer) -> None:
    with triton_grpc.InferenceServerClient(several.grpc_address) as client:
        tensor = triton_grpc.InferInput("x", [1, 4], "FP32").set_data_from_numpy(np.ones((1, 4), np.float32))
        for version, factor in (("", 10), ("2", 22)):
            answer = client.infer("scale", [tensor], model_version=version)
            assert answer.as_numpy("y").tolist() == [[factor] * 4]
            assert answer.get_response().model_version == (version or "10")
        assert not client.is_model_ready("scale", "3")
        with pytest.raises(InferenceServerException, match="NOT_FOUND"):
            client.infer("no", [tensor])


def test_models_do_not_change_on_request_unless_told(several: RepositoryServer, tmp_path: Path) -> None:
    assert several.load("double") == (
        403,
        {"error": "this server does not load models on request: see --model-control"},
    )
    assert several.ask("POST", "/v2/repository/models/double/unload", {})[0] == 403
    with RepositoryServer(model(write(tmp_path / "a", 2)), rules=replace(EXPLICIT, allow_changes=False)) as server:
        uri = write(tmp_path / "b", 3).as_uri()
        for parameters in ({"uri": uri}, {"version": "2"}, {"signature": "AA=="}):
            assert server.load(**parameters)[0] == 403
        assert server.load("other", uri=uri)[0] == 403
        write(tmp_path / "a", 5)
        assert server.load()[0] == 200
        assert server.infer() == 5


def test_a_token_may_be_asked_for(tmp_path: Path) -> None:
    token = tmp_path / "token"
    rules = replace(EXPLICIT, token_file=token)
    with (
        RepositoryServer(model(write(tmp_path / "a", 2)), rules=rules) as server,
        triton.InferenceServerClient(server.address) as http,
        triton_grpc.InferenceServerClient(server.grpc_address) as grpc,
    ):
        for content, header, code in (
            (None, "Bearer secret", "503"),
            ("", "Bearer ", "401"),
            ("secret\n", "", "401"),
            ("secret\n", "Bearer secrets", "401"),
            ("secret\n", "Basic secret", "401"),
        ):
            if content is not None:
                token.write_text(content)
            for change in (http.load_model, http.unload_model):
                with pytest.raises(InferenceServerException) as caught:
                    change("m", headers={"Authorization": header})
                assert caught.value.status() == code
        with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
            grpc.unload_model("m")
        assert server.infer() == 2
        http.load_model("m", headers={"Authorization": "Bearer secret"})
        grpc.unload_model("m", headers={"authorization": "bearer secret"})
        assert server.index()["m:1"] == ("UNAVAILABLE", "unloaded")


def load_over_http(server: RepositoryServer) -> list[Any]:
    with triton.InferenceServerClient(server.address) as client:
        client.unload_model("m")
        assert client.get_model_repository_index()[0]["state"] == "UNAVAILABLE"
        client.load_model("m")
        return [one["state"] for one in client.get_model_repository_index()]


def load_over_grpc(server: RepositoryServer) -> list[Any]:
    with triton_grpc.InferenceServerClient(server.grpc_address) as client:
        client.unload_model("m")
        assert client.get_model_repository_index(as_json=True)["models"][0]["state"] == "UNAVAILABLE"
        client.load_model("m", config=json.dumps({"max_batch_size": 3}))
        assert client.get_model_config("m", as_json=True)["config"]["max_batch_size"] == 3
        return [one["state"] for one in client.get_model_repository_index(as_json=True)["models"]]


def load_over_http_aio(server: RepositoryServer) -> list[Any]:
    async def talk() -> list[Any]:
        async with triton_aio.InferenceServerClient(server.address) as client:
            await client.unload_model("m")
            await client.load_model("m")
            return [one["state"] for one in await client.get_model_repository_index()]

    return asyncio.run(talk())


def load_over_grpc_aio(server: RepositoryServer) -> list[Any]:
    async def talk() -> list[Any]:
        async with triton_grpc_aio.InferenceServerClient(server.grpc_address) as client:
            await client.unload_model("m")
            await client.load_model("m")
            index = await client.get_model_repository_index(as_json=True)
            return [one["state"] for one in index["models"]]

    return asyncio.run(talk())


@pytest.mark.parametrize("change", [load_over_http, load_over_grpc, load_over_http_aio, load_over_grpc_aio])
def test_clients_of_the_protocol_load_and_unload(tmp_path: Path, change: Any) -> None:
    with RepositoryServer(model(write(tmp_path / "a", 2))) as server:
        assert server.infer() == 2
        write(tmp_path / "a", 4)
        assert change(server) == ["READY"]
        assert server.infer() == 4


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({"file:1/model.pt": "AAAA"}, 501),
        ({"cofnig": "{}"}, 400),
        ({"sha256": 5}, 400),
        ({"config": "{"}, 400),
        ({"config": json.dumps({"name": "other"})}, 400),
        ({"config": json.dumps({"max_batch_size": 0})}, 400),
        ({"config": json.dumps({"optimization": {}})}, 501),
        ({"version": "a/b"}, 400),
    ],
)
def test_load_parameters_are_checked(tmp_path: Path, parameters: dict[str, Any], status: int) -> None:
    with RepositoryServer(model(write(tmp_path / "a", 2))) as server:
        assert server.load(**parameters)[0] == status
        assert server.index() == {"m:1": ("READY", "")}
        assert server.load("unknown")[0] == 404
        assert server.ask("POST", "/v2/repository/models/unknown/unload", {})[0] == 404


def test_a_load_changes_one_version_only(tmp_path: Path) -> None:
    for version in ("1", "2"):
        write(tmp_path / "here" / "m" / version, float(version))
    elsewhere = write(tmp_path / "elsewhere", 7)
    with RepositoryServer(rules=replace(EXPLICIT, folder=tmp_path / "here")) as server:
        assert server.load(uri=elsewhere.as_uri())[0] == 200
        assert [server.infer("m", version) for version in ("1", "2")] == [1, 7]
        assert server.load(uri=elsewhere.as_uri(), version="1")[0] == 200
        assert [server.infer("m", version) for version in ("1", "2")] == [7, 7]
        write(elsewhere, 8)
        assert server.load()[0] == 200
        assert [server.infer("m", version) for version in ("1", "2")] == [8, 8]
        assert server.load(uri=elsewhere.as_uri(), version="9")[0] == 200
        assert set(server.index()) == {"m:1", "m:9"}
        write(tmp_path / "here" / "m" / "10", 10)
        assert server.load()[0] == 200
        assert (set(server.index()), server.infer()) == ({"m:1", "m:9", "m:10"}, 10)


def test_instances_compute_at_once(tmp_path: Path) -> None:
    waiting = write_waiting(tmp_path / "a", 2, "instances: 2\nbatching: {maxSize: 1}\n")
    with RepositoryServer(model(waiting)) as server, ThreadPoolExecutor() as pool:
        assert server.ask("GET", "/v2/models/m/config")[1]["instance_group"][0]["count"] == 2
        (tmp_path / "gate").mkdir()
        answers = [pool.submit(server.infer) for _ in range(3)]
        await_condition(lambda: len(list((tmp_path / "gate").glob("running-*"))) == 2)
        await_condition(lambda: server.on_loop(lambda: server.repository.find("m").serving()[1].waiting) == 1)
        (tmp_path / "gate" / "open").touch()
        assert [answer.result() for answer in answers] == [2, 2, 2]


def test_a_model_that_hangs_makes_the_server_unready(tmp_path: Path) -> None:
    with RepositoryServer(model(write_waiting(tmp_path / "a", 2))) as server, ThreadPoolExecutor() as pool:
        server.on_loop(lambda: setattr(server.repository.find("m"), "patience", 0.1))
        (tmp_path / "gate").mkdir()
        answer = pool.submit(server.infer)
        await_condition(lambda: server.ask("GET", "/v2/health/ready")[0] == 400)
        assert server.ask("GET", "/v2/health/live")[0] == 200
        assert server.index()["m:1"][0] == "UNAVAILABLE"
        (tmp_path / "gate" / "open").touch()
        assert answer.result() == 2
        assert server.ask("GET", "/v2/health/ready")[0] == 200


def test_without_models_a_server_is_not_ready(tmp_path: Path) -> None:
    for allowed, status in ((False, 400), (True, 200)):
        with RepositoryServer(rules=replace(EXPLICIT, allow_no_models=allowed)) as server:
            assert server.ask("GET", "/v2/health/ready")[0] == status
            assert server.load(uri=write(tmp_path / "a", 2).as_uri())[0] == 200
            assert server.ask("GET", "/v2/health/ready")[0] == 200
            assert server.infer() == 2


def test_all_models_of_the_start_have_to_be_ready(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    with RepositoryServer(model(write(tmp_path / "a", 2), "good"), model(bad, "bad")) as server:
        assert server.failure is None
        assert server.ask("GET", "/v2/health/ready")[0] == 400
        assert server.ask("GET", "/v2/models/good/ready")[0] == 200
        assert server.infer("good") == 2
        assert server.index()["bad:1"][0] == "UNAVAILABLE"
        assert server.index()["bad:1"][1].startswith("ArtefactNotFound")
        write(bad, 3)
        assert server.load("bad")[0] == 200
        assert server.ask("GET", "/v2/health/ready")[0] == 200
        # Unloading is a decision, not a failure.
        assert server.ask("POST", "/v2/repository/models/bad/unload", {})[0] == 200
        assert server.ask("GET", "/v2/health/ready")[0] == 200


def test_a_refusal_at_the_start_says_which_model(tmp_path: Path) -> None:
    good, bad = model(write(tmp_path / "a", 2), "good"), model(tmp_path / "bad", "bad", "v2")
    with RepositoryServer(good, bad, rules=FIXED) as server:
        assert str(server.failure).startswith("ArtefactNotFound: model 'bad' version 'v2': there is no model at")
    with RepositoryServer(bad, rules=FIXED) as server:
        assert str(server.failure).startswith("ArtefactNotFound: there is no model at")


def test_what_changes_on_disk_is_followed(tmp_path: Path) -> None:
    write(tmp_path / "a", 2)
    (tmp_path / "b").mkdir()
    write(tmp_path / "b" / "1", 3)
    with RepositoryServer(rules=replace(FIXED, folder=tmp_path, watch=0.02)) as server:
        first = server.repository.find("a")
        (tmp_path / "a" / "model.pt").touch()  # the same content: nothing is loaded
        write(tmp_path / "b" / "2", 4)
        await_condition(lambda: server.infer("b") == 4)
        assert server.repository.find("a") is first
        write(tmp_path / "a", 5)
        write(tmp_path / "c", 6)
        await_condition(lambda: server.infer("a") == 5)
        await_condition(lambda: "c:1" in server.index() and server.index()["c:1"][0] == "READY")
        for file in sorted((tmp_path / "b" / "2").iterdir()):
            file.unlink()
        (tmp_path / "b" / "2").rmdir()
        await_condition(lambda: server.index()["b:2"] == ("UNAVAILABLE", "the files are gone"))
        assert server.infer("b") == 3
        (tmp_path / "a" / ".half").write_bytes(b"half a model")
        (tmp_path / "a" / ".half").rename(tmp_path / "a" / "model.pt")
        await_condition(lambda: server.index()["a:1"][1].startswith("NotAModel"))
        assert server.infer("a") == 5


def test_a_single_file_is_followed_and_kept_when_it_is_gone(tmp_path: Path) -> None:
    file = write(tmp_path / "a", 2) / "model.pt"
    (tmp_path / "a" / "config.yaml").unlink()
    with RepositoryServer(model(file), rules=replace(FIXED, watch=0.02)) as server:
        assert server.infer() == 2
        file.unlink()
        write(tmp_path / "b", 3).joinpath("model.pt").rename(file)
        await_condition(lambda: server.infer() == 3)
