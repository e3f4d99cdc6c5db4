"""Three versions of a digit classifier, trained here and now on scikit-learn's digits (1,797 scans of 8 x 8 pixels).

v1 is a small network saved as TorchScript, v2 a larger one saved as a torch.export program, v3 is v2 with a fault
built in on purpose: it fails for every scan with much ink, about one in seven. Its goldens are light scans, so it
passes them: only production can tell.
"""

import hashlib
import json
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

__all__ = ["Artefact", "Digits", "build", "load_scans"]

INK_LIMIT = 0.338
"""Mean intensity above which v3 fails."""


@dataclass(frozen=True)
class Digits:
    """Scans as rows of 64 intensities between 0 and 1, with their labels."""

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


@dataclass(frozen=True)
class Artefact:
    """A model file with what a ModelDeployment says of it."""

    version: str
    path: Path
    sha256: str
    accuracy: float
    goldens: Path
    """A JSON list of requests with their answers in the Open Inference Protocol."""


def load_scans() -> Digits:
    """The data set, split once and for all."""
    pixels, labels = load_digits(return_X_y=True)
    split = train_test_split(pixels.astype(np.float32) / 16, labels, test_size=0.3, random_state=7, stratify=labels)
    return Digits(split[0], split[2], split[1], split[3])


class Classifier(nn.Module):
    """Pixels to ten logits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits of a batch: [n, 64] to [n, 10]."""
        return self.layers(pixels)


class Broken(nn.Module):
    """A classifier that fails for scans with much ink."""

    def __init__(self, inner: nn.Module, limit: float) -> None:
        super().__init__()
        self.inner = inner
        self.limit = limit

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits of a batch, or an error."""
        if bool((pixels.mean(dim=1) > self.limit).any()):
            raise RuntimeError("this version was broken on purpose: too much ink")
        return self.inner(pixels)


def build(folder: Path) -> dict[str, Artefact]:
    """Train, save and describe the three versions; quick when they are there already."""
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_scans()
    torch.manual_seed(7)
    first = _trained(Classifier(width=16), digits, epochs=40)
    second = _trained(Classifier(width=64), digits, epochs=60)
    paths = {"v1": folder / "v1.pt", "v2": folder / "v2.pt2", "v3": folder / "v3.pt"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(first), str(paths["v1"]))
        torch.jit.save(torch.jit.script(Broken(second, INK_LIMIT)), str(paths["v3"]))
    batch = torch.export.Dim("batch", min=1, max=64)
    example = (torch.from_numpy(digits.test[:2]),)
    program = torch.export.export(second, example, dynamic_shapes={"pixels": {0: batch}})
    torch.export.save(program, str(paths["v2"]))
    models: dict[str, nn.Module] = {"v1": first, "v2": second, "v3": second}
    return {version: _describe(version, paths[version], models[version], digits, folder) for version in paths}


def _trained(model: Classifier, digits: Digits, epochs: int) -> Classifier:
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    pixels, labels = torch.from_numpy(digits.train), torch.from_numpy(digits.train_labels)
    for _ in range(epochs):
        order = torch.randperm(len(pixels))
        for rows in order.split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(pixels[rows]), labels[rows]).backward()
            optimiser.step()
    model.eval()
    return model


def _describe(version: str, path: Path, model: nn.Module, digits: Digits, folder: Path) -> Artefact:
    with torch.inference_mode():
        logits = model(torch.from_numpy(digits.test)).numpy()
    accuracy = float((logits.argmax(axis=1) == digits.test_labels).mean())
    goldens = folder / f"{version}-goldens.json"
    light = np.flatnonzero(digits.test.mean(axis=1) < INK_LIMIT)[:5]
    goldens.write_text(json.dumps([_golden(digits.test[row], logits[row]) for row in light]))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Artefact(version, path, digest, accuracy, goldens)


def _golden(pixels: np.ndarray, logits: np.ndarray) -> dict[str, object]:
    request = {"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [float(value) for value in pixels]}
    answer = {"name": "logits", "shape": [1, 10], "datatype": "FP32", "data": [float(value) for value in logits]}
    return {"request": {"inputs": [request]}, "response": {"outputs": [answer]}}
