"""Models for ``time_to_safety``: one that answers, and candidates that fail, are slow or end their server."""

import hashlib
import textwrap
import time
import warnings
from pathlib import Path

import torch
from slipway_runtime.artefact.digest import digest_of
from torch import Tensor, nn

from tests.integration.models import SCANS, Model

__all__ = ["SLOWER", "WORK_SECONDS", "write"]

WORK_SECONDS = 0.008
"""What one call of the model that works takes on this machine while it is otherwise idle."""
SLOWER = 3
"""How many times as long the slow candidate takes."""
_TRIAL = 200


class Answering(nn.Module):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))

    def forward(self, pixels: Tensor) -> Tensor:
        """Pixels to logits."""
        logits: Tensor = self.layers(pixels)
        return logits


class FailingShare(nn.Module):
    """Fails for the share of ``SCANS`` whose first number is above a bound, and never for a warm-up (both signs)."""

    def __init__(self, share: float):
        super().__init__()
        firsts = torch.from_numpy(SCANS[:, 0]).sort(descending=True).values
        self.bound = float(firsts[round(share * len(firsts))])
        self.net = Answering()

    def forward(self, pixels: Tensor) -> Tensor:
        """Pixels to logits; raises RuntimeError on purpose."""
        if bool(((pixels[:, 0] > self.bound) & (pixels.amin(dim=1) >= 0)).any()):
            raise RuntimeError("this model was broken on purpose")
        logits: Tensor = self.net(pixels)
        return logits


class Working(nn.Module):
    """As many small products as it takes: the time grows with ``rounds`` and hardly with the size of the batch."""

    def __init__(self, rounds: int):
        super().__init__()
        self.rounds = rounds
        self.mixing = nn.Linear(64, 64)
        self.last = nn.Linear(64, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        """Pixels to logits."""
        for _ in range(self.rounds):
            pixels = torch.tanh(self.mixing(pixels))
        logits: Tensor = self.last(pixels)
        return logits


CRASHING = """
    import os


    class Crashing:
        def predict(self, value):
            pixels = value["pixels"]
            if pixels.min() >= 0:  # not a warm-up
                os._exit(1)
            return {"logits": pixels[:, :10]}
"""
CRASHING_CONFIG = """
    handler: code.py:Crashing
    inputs: [{name: pixels, datatype: FP32, shape: [-1, 64]}]
    outputs: [{name: logits, datatype: FP32, shape: [-1, 10]}]
"""


def _scripted(module: nn.Module) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted: torch.jit.ScriptModule = torch.jit.script(module.eval())
    return scripted


def _rounds() -> int:
    """How many rounds take ``WORK_SECONDS`` here, by the best of some trials."""
    model = _scripted(Working(_TRIAL))
    row = torch.from_numpy(SCANS[:1])
    best = float("inf")
    with torch.inference_mode():
        for _ in range(30):
            begun = time.perf_counter()
            model(row)
            best = min(best, time.perf_counter() - begun)
    return max(1, round(_TRIAL * WORK_SECONDS / best))


def write(folder: Path) -> dict[str, Model]:
    """Write all artefacts into a folder: `good`, `errors-50`, `errors-5`, `working`, `slow` and `crashing`."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    rounds = _rounds()
    modules: dict[str, nn.Module] = {
        "good": Answering(),
        "errors-50": FailingShare(0.5),
        "errors-5": FailingShare(0.05),
        "working": Working(rounds),
        "slow": Working(SLOWER * rounds),
    }
    models = {}
    for name, module in modules.items():
        path = folder / f"{name}.pt"
        _scripted(module).save(str(path))
        models[name] = Model(path, hashlib.sha256(path.read_bytes()).hexdigest())
    crashing = folder / "crashing"
    crashing.mkdir(exist_ok=True)
    (crashing / "code.py").write_text(textwrap.dedent(CRASHING))
    (crashing / "config.yaml").write_text(textwrap.dedent(CRASHING_CONFIG))
    return models | {"crashing": Model(crashing, digest_of(crashing))}
