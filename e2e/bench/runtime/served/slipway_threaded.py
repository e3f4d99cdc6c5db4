"""``slipway-runtime`` that never runs a model on the event loop: what slower models have, measured with fast ones."""

from __future__ import annotations

import sys

from slipway_runtime import cli
from slipway_runtime.serving.cost import CostModel

if __name__ == "__main__":
    CostModel.may_run_inline = lambda self, rows: False  # type: ignore[method-assign]
    sys.exit(cli.main())
