"""Models for ``time_to_safety``: one that answers, and candidates that fail, are slow or end their server."""

import hashlib
import textwrap
import warnings
from pathlib import Path

import torch
from slipway_runtime.artefact.digest import digest_of
from torch import Tensor, nn

from tests.integration.models import SCANS, Model

__all__ = ["CALL_SECONDS", "SLOWER", "write"]

CALL_SECONDS = 0.04
"""What a call of the model that waits takes; requests that come meanwhile share the next one."""
SLOWER = 3
"""How many times as long the slow candidate takes."""


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


CRASHING = """
    import os


    class Handler:
        def predict(self, value):
            pixels = value["pixels"]
            if pixels.min() >= 0:  # not a warm-up
                os._exit(1)
            return {"logits": pixels[:, :10]}
"""
WAITING = """
    import time


    class Handler:
        def load(self, context):
            self.seconds = context.arguments["seconds"]

        def predict(self, value):
            time.sleep(self.seconds)  # as for an accelerator: a shared CPU does not change it
            return {"logits": value["pixels"][:, :10]}
"""
CONFIG = """
    handler: code.py:Handler
    inputs: [{{name: pixels, datatype: FP32, shape: [-1, 64]}}]
    outputs: [{{name: logits, datatype: FP32, shape: [-1, 10]}}]
    arguments: {{seconds: {seconds}}}
"""


def _scripted(module: nn.Module) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted: torch.jit.ScriptModule = torch.jit.script(module.eval())
    return scripted


def _handler(folder: Path, code: str, seconds: float = 0.0) -> Model:
    folder.mkdir(exist_ok=True)
    (folder / "code.py").write_text(textwrap.dedent(code))
    (folder / "config.yaml").write_text(textwrap.dedent(CONFIG).format(seconds=seconds))
    return Model(folder, digest_of(folder))


def write(folder: Path) -> dict[str, Model]:
    """Write all artefacts into a folder: `good`, `errors-50`, `errors-5`, `waiting`, `slow` and `crashing`."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    modules: dict[str, nn.Module] = {
        "good": Answering(),
        "errors-50": FailingShare(0.5),
        "errors-5": FailingShare(0.05),
    }
    models = {}
    for name, module in modules.items():
        path = folder / f"{name}.pt"
        _scripted(module).save(str(path))
        models[name] = Model(path, hashlib.sha256(path.read_bytes()).hexdigest())
    return models | {
        "waiting": _handler(folder / "waiting", WAITING, CALL_SECONDS),
        "slow": _handler(folder / "slow", WAITING, SLOWER * CALL_SECONDS),
        "crashing": _handler(folder / "crashing", CRASHING),
    }
