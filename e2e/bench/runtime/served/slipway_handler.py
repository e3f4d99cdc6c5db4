"""The Slipway runtime with a model of the comparison: the Python handler of a model folder."""

from __future__ import annotations

from typing import Any

from e2e.bench.runtime.served.models import Arrays, chosen


class Served:
    """The adapter."""

    def load(self, context: Any) -> None:
        """Load the model."""
        self.run = chosen().load()

    def predict(self, inputs: Arrays) -> Arrays:
        """Run the model."""
        return self.run(inputs)
