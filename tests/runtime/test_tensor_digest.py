"""A digest over tensors: the same for equal weights, however they are stored."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from slipway_runtime.artefact.tensor_digest import tensor_lines, tensors_digest
from slipway_runtime.refusal import Refusal

WEIGHTS = {
    "a.weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "a.bias": torch.tensor([1.5, -0.0, 2.0], dtype=torch.bfloat16),
    "steps": torch.tensor(7),
    "none": torch.zeros(0, 4),
    "mask": torch.tensor([True, False]),
}


def shards(folder: Path, *parts: tuple[str, ...]) -> Path:
    folder.mkdir()
    for number, names in enumerate(parts):
        save_file({name: WEIGHTS[name] for name in names}, folder / f"model-{number}.safetensors")
    return folder


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    save_file(WEIGHTS, tmp_path / "whole.safetensors")
    return tmp_path / "whole.safetensors"


def test_shards_and_formats_make_no_difference(whole: Path, tmp_path: Path) -> None:
    torch.save(dict(reversed(WEIGHTS.items())), tmp_path / "weights.pt")
    two = shards(tmp_path / "two", ("a.weight", "none"), ("steps", "a.bias", "mask"))
    digests = {tensors_digest(path) for path in (whole, tmp_path / "weights.pt", two)}
    assert len(digests) == 1
    assert len(next(iter(digests))) == 64


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("a.weight", torch.arange(12, dtype=torch.float32).reshape(4, 3)),
        ("a.weight", torch.arange(12, dtype=torch.int32).reshape(3, 4)),
        ("a.bias", torch.tensor([1.5, 0.0, 2.0], dtype=torch.bfloat16)),
        ("none", torch.zeros(4, 0)),
        ("more", torch.zeros(1)),
    ],
)
def test_any_other_tensor_makes_one(whole: Path, tmp_path: Path, name: str, other: torch.Tensor) -> None:
    save_file({**WEIGHTS, name: other}, tmp_path / "other.safetensors")
    assert tensors_digest(whole) != tensors_digest(tmp_path / "other.safetensors")


def test_lines_name_each_tensor(whole: Path) -> None:
    lines = tensor_lines(whole).splitlines()
    assert [line.split("  ")[1] for line in lines] == [
        "a.bias bfloat16 [3]",
        "a.weight float32 [3, 4]",
        "mask bool [2]",
        "none float32 [0, 4]",
        "steps int64 []",
    ]


def test_a_view_counts_as_what_it_shows(tmp_path: Path) -> None:
    square = torch.arange(9).reshape(3, 3)
    torch.save({"x": square.T}, tmp_path / "view.pt")
    torch.save({"x": square.T.contiguous()}, tmp_path / "copy.pt")
    assert tensors_digest(tmp_path / "view.pt") == tensors_digest(tmp_path / "copy.pt")


def test_a_name_in_two_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="two shards hold a tensor 'steps'"):
        tensors_digest(shards(tmp_path / "twice", ("steps",), ("steps", "mask")))


def test_what_holds_no_tensors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"no")
    (tmp_path / "broken.pt").write_bytes(b"no")
    (tmp_path / "empty").mkdir()
    torch.save({"epoch": 3}, tmp_path / "more.pt")
    for name in ("broken.safetensors", "broken.pt", "empty", "more.pt"):
        with pytest.raises(Refusal):
            tensors_digest(tmp_path / name)
    with pytest.raises(Refusal, match="there is no model at"):
        tensors_digest(tmp_path / "nowhere")
