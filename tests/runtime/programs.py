"""The torch modules behind the model files of the tests."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch


class Weighted(torch.nn.Module):
    """Four numbers in, two out."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class Doubler(torch.nn.Module):
    """Twice whatever comes; it has no weights to guess an input from."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Slow(torch.nn.Module):
    """About 0.2 seconds of arithmetic, then twice the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.ones(256, 256)
        total = torch.zeros(256, 256)
        for _ in range(150):
            total = total + torch.mm(noise, noise) * 1e-12
        return x * 2 + total.sum() * 0.0


class TwoTensors(torch.nn.Module):
    """Two inputs, two named outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.linear(x), "next": y + 1}


def script(module: torch.nn.Module, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(module).save(str(path))


def trace(module: torch.nn.Module, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.trace(module, torch.randn(2, 4)).save(str(path))


def export(module: torch.nn.Module, path: Path, rows: Any = None) -> None:
    batch = rows or torch.export.Dim("batch", min=1, max=64)
    example = (torch.randn(3, 4), torch.ones(3, 2, dtype=torch.int64))
    program = torch.export.export(module, example, dynamic_shapes={"x": {0: batch}, "y": {0: batch}})
    torch.export.save(program, path)
