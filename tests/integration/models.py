"""Tiny TorchScript models, made once for all tests: 64 numbers to ten logits, as in the demo."""

import hashlib
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from e2e.sandbox.children import REPOSITORY_ROOT

FOLDER = REPOSITORY_ROOT / ".slipway" / "tests"
"""Not below /tmp: a pod has a /tmp of its own."""

SCANS = np.random.default_rng(5).random((200, 64), dtype=np.float32)
"""Inputs between 0 and 1."""


@dataclass(frozen=True)
class Model:
    """An artefact as a version names it."""

    path: Path
    sha256: str

    @property
    def uri(self) -> str:
        return self.path.as_uri()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))

    def forward(self, pixels: Tensor) -> Tensor:
        return self.layers(pixels)


class Failing(nn.Module):
    """Fails for about half of :data:`SCANS`, and never for the random inputs of a warm-up, which have both signs."""

    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, pixels: Tensor) -> Tensor:
        if bool(((pixels[:, 0] > 0.5) & (pixels.amin(dim=1) >= 0)).any()):
            raise RuntimeError("this model was broken on purpose")
        return self.net(pixels)


def build() -> dict[str, Model]:
    """`good-1` and `good-2` answer, `failing` fails for half of all inputs, `corrupt` is no model at all."""
    made = FOLDER / f"models-{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]}"
    if not made.exists():
        # By one rename, for the sake of tests that run at the same time.
        FOLDER.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=FOLDER))
        fresh.chmod(0o755)
        _write(fresh)
        try:
            fresh.rename(made)
        except OSError:
            shutil.rmtree(fresh)
    return {path.stem: Model(path, hashlib.sha256(path.read_bytes()).hexdigest()) for path in made.glob("*.pt")}


def _write(folder: Path) -> None:
    kinds: dict[str, type[nn.Module]] = {"good-1": Net, "good-2": Net, "failing": Failing}
    for seed, (name, module) in enumerate(kinds.items()):
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.save(torch.jit.script(module().eval()), str(folder / f"{name}.pt"))
    (folder / "corrupt.pt").write_bytes(b"<html>404 Not Found</html>")
