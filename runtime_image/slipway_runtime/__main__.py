"""``python -m slipway_runtime``."""

import sys

from slipway_runtime.cli import main

sys.exit(main())
