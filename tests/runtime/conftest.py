"""Model files for the tests, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.runtime.programs import Doubler, Slow, TwoTensors, Weighted, export, script, trace


@pytest.fixture(scope="session")
def model_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small programs by name: scripted, traced, exported, and a checkpoint that is no program."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(7)
    files = {name: folder / name for name in ("weighted.pt", "traced.pt", "doubler.pt", "slow.pt")}
    files |= {name: folder / name for name in ("two.pt2", "checkpoint.pt")}
    weighted = Weighted().eval()
    script(weighted, files["weighted.pt"])
    trace(weighted, files["traced.pt"])
    script(Doubler().eval(), files["doubler.pt"])
    script(Slow().eval(), files["slow.pt"])
    export(TwoTensors().eval(), files["two.pt2"])
    torch.save(weighted.state_dict(), files["checkpoint.pt"])
    return files
