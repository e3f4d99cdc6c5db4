"""A Python handler for the runtime: every input comes back under the name of its output."""

from __future__ import annotations

from typing import Any


class Echo:
    """``x`` comes back as ``out_x``."""

    def predict(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Give back what came."""
        return {f"out_{name}": array for name, array in inputs.items()}
