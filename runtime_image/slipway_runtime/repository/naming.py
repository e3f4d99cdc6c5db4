"""What models and versions may be called."""

from __future__ import annotations

import re

FIRST_VERSION = "1"
"""The version of a model of which nobody has said a version."""
RESERVED_NAMES = ("stats", "")
"""These have a meaning of their own in the protocol's paths."""
VERSION_FORM = re.compile(r"[A-Za-z0-9._-]+")
