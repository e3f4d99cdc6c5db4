"""What the repository decides without a server: compatibility, order of versions, trials, layouts, copies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.repository.arguments import cuda_devices
from slipway_runtime.repository.catalogue import Catalogue, fingerprint, scan
from slipway_runtime.repository.compatibility import incompatibility
from slipway_runtime.repository.loader import places_of
from slipway_runtime.repository.place import version_order
from slipway_runtime.repository.source import LoadRequest, Source
from slipway_runtime.serving.trial import FIRST_REQUESTS, Trial
from slipway_runtime.settings import Limits, ModelSettings, Warmup
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, TensorSpec

TEMPLATE = ModelSettings("", "", "", "")


def spec(name: str = "x", datatype: Datatype = Datatype.FP32, rank: int = 2) -> TensorSpec:
    return TensorSpec(name, datatype, (-1,) * rank)


OLD = Signature((spec("x"),), (spec("y"), spec("z")), True)


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (OLD, None),
        (replace(OLD, outputs=(*OLD.outputs, spec("more"))), None),
        (replace(OLD, inputs=(TensorSpec("x", Datatype.FP32, (-1, 4)),)), None),
        (replace(OLD, outputs=(spec("y"),)), "no output 'z'"),
        (replace(OLD, inputs=(spec("w"),)), "no input 'x'"),
        (replace(OLD, inputs=(spec("x"), spec("w"))), "wants an input 'w' as well"),
        (replace(OLD, inputs=(spec("x", Datatype.FP16),)), "input 'x' is FP16, not FP32"),
        (replace(OLD, outputs=(spec("y", rank=3), spec("z"))), "output 'y' has 3 dimensions, not 2"),
        (replace(OLD, inputs=(spec("x", Datatype.FP16),), open=True), None),
        (replace(OLD, inputs=(spec("w"),), open=True), "no input 'x'"),
    ],
)
def test_a_successor_must_do_for_the_same_clients(new: Signature, said: str | None) -> None:
    found = incompatibility(OLD, new)
    assert found is None if said is None else (found is not None and said in found)


@pytest.mark.parametrize(("was", "size", "fits"), [(4, 4, True), (4, -1, True), (-1, 4, True), (4, 5, False)])
def test_no_input_of_a_fixed_size_gets_another(was: int, size: int, fits: bool) -> None:
    old, new = (Signature((TensorSpec("x", Datatype.FP32, (-1, one)),), (spec("y"),), True) for one in (was, size))
    assert (incompatibility(old, new) is None) is fits
    assert incompatibility(old, replace(new, open=True)) is None


def test_versions_are_ordered_as_people_count() -> None:
    ordered = ["v1", "v2", "v10", "v10.1", "1", "1.2", "1.10", "2", "10"]
    shuffled = [ordered[at] for at in (4, 0, 8, 2, 6, 1, 3, 7, 5)]
    assert sorted(shuffled, key=version_order) == ordered


@pytest.mark.parametrize(
    ("codes", "failed"),
    [
        ([503] * FIRST_REQUESTS, True),
        ([503] * (FIRST_REQUESTS - 1), False),
        ([503, 200] + [503] * 50, False),
        ([500] * 50, False),
        ([400, 503, 499, 503, 503, 504, 503, 503], True),
    ],
)
def test_only_a_device_that_fails_everything_ends_a_trial(codes: list[int], failed: bool) -> None:
    said: list[str] = []
    trial = Trial(said.append)
    for code in codes:
        trial.judge(code)
    assert len(said) == failed


def test_a_folder_is_read_as_it_looks(tmp_path: Path) -> None:
    for path in (
        "config-only/config.yaml",
        "config-only/weights/part",
        "file/model.onnx",
        "file/notes/README.md",
        "versions/v1/model.pt",
        "versions/v2/model.pt",
        "versions/README.md",
        "versions/not a version!/model.pt",
        "stats/model.pt",
        ".hidden/model.pt",
        "README.md",
        "triton/config.pbtxt",
        "triton/3/model.pt",
        "triton/11/model.pt",
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('backend: "pytorch"' if path.endswith("pbtxt") else "")
    (tmp_path / "empty").mkdir()
    found = {(one.name, one.version): one.uri for one in scan(tmp_path, TEMPLATE)}
    assert found == {
        ("config-only", "1"): (tmp_path / "config-only").as_uri(),
        ("file", "1"): (tmp_path / "file").as_uri(),
        ("versions", "v1"): (tmp_path / "versions" / "v1").as_uri(),
        ("versions", "v2"): (tmp_path / "versions" / "v2").as_uri(),
        ("triton", "11"): (tmp_path / "triton").as_uri(),
    }
    for policy, versions in (
        ("all: {}", ["3", "11"]),
        ("latest: { num_versions: 2 }", ["3", "11"]),
        ("specific: { versions: [3, 5] }", ["3"]),
    ):
        (tmp_path / "triton" / "config.pbtxt").write_text(f'backend: "pytorch" version_policy: {{ {policy} }}')
        assert [one.version for one in scan(tmp_path, TEMPLATE) if one.name == "triton"] == versions
    with pytest.raises(Refusal, match="RepositoryNotFound") as caught:
        list(scan(tmp_path / "nowhere", TEMPLATE))
    assert caught.value.code is ExitCode.ARTEFACT_NOT_FOUND


def test_what_was_told_or_loaded_comes_before_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model.pt").touch()
    catalogue = Catalogue((replace(TEMPLATE, name="b", version="1", uri="s3://b"),), tmp_path, TEMPLATE)
    assert {name: models[0].uri for name, models in catalogue.entries().items()} == {
        "a": (tmp_path / "a").as_uri(),
        "b": "s3://b",
    }
    for version in ("2", "3"):
        (tmp_path / "c" / version).mkdir(parents=True)
        (tmp_path / "c" / version / "model.pt").touch()
    catalogue.remember(replace(TEMPLATE, name="c", version="4", uri="s3://4"), instead_of="3")
    catalogue.remember(replace(TEMPLATE, name="d", version="1", uri="s3://d"), instead_of="1")

    def known(name: str) -> dict[str, str]:
        return {model.version: model.uri for model in catalogue.entries()[name]}

    assert known("c") == {"2": (tmp_path / "c" / "2").as_uri(), "4": "s3://4"}
    assert known("d") == {"1": "s3://d"}
    catalogue.remember(replace(TEMPLATE, name="c", version="3", uri="s3://3"), instead_of="4")
    assert known("c") == {"2": (tmp_path / "c" / "2").as_uri(), "3": "s3://3"}


def test_changes_on_disk_are_seen(tmp_path: Path) -> None:
    model = tmp_path / "m"
    assert fingerprint(model.as_uri()) is None
    assert fingerprint("s3://bucket/m") is None
    model.mkdir()
    assert fingerprint(model.as_uri()) is None
    (model / "model.pt").write_text("a")
    seen = [fingerprint(model.as_uri())]
    (model / "part").write_text("b")
    seen.append(fingerprint(model.as_uri()))
    (model / "other").write_text("c")
    (model / "other").replace(model / "part")
    seen.append(fingerprint(model.as_uri()))
    assert len(set(seen)) == 3
    assert fingerprint(model.as_uri()) == seen[-1]


def test_copies_are_made_on_every_device() -> None:
    def devices(settings: ModelSettings, said: int | None) -> list[int | None]:
        return [place.cuda_device for place in places_of(settings, said)]

    assert devices(TEMPLATE, None) == [None]
    assert devices(TEMPLATE, 3) == [None] * 3
    assert devices(replace(TEMPLATE, instances=2), 3) == [None] * 2
    assert devices(replace(TEMPLATE, cuda_devices=(0, 3)), None) == [0, 3]
    assert devices(replace(TEMPLATE, cuda_devices=(1, 2), instances=2), None) == [1, 1, 2, 2]
    assert cuda_devices("0, 2") == (0, 2)
    for text in ("0,0", "a", "1,,2", "-1"):
        with pytest.raises(Refusal, match="--cuda-devices"):
            cuda_devices(text)


def test_a_configuration_sets_batching_and_copies() -> None:
    source = Source(replace(TEMPLATE, name="m"), Limits(), Warmup())
    config = {
        "name": "m",
        "max_batch_size": 4,
        "dynamic_batching": {"max_queue_delay_microseconds": 2500},
        "instance_group": [{"count": 2, "kind": "KIND_CPU"}, {}],
    }
    found = LoadRequest(config=json.dumps(config)).applied(source)
    assert (found.limits.max_batch_size, found.limits.max_delay, found.model.instances) == (4, 0.0025, 3)
    # Another artefact has another digest and another signature.
    signed = replace(source, model=replace(source.model, sha256="a" * 64))
    assert LoadRequest(uri="s3://b/c").applied(signed).model.sha256 == ""
