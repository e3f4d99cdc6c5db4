"""What validation said of specs, so that a spec is examined once and not at every look at its object."""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from slipway.api.validation import Validated, validate

__all__ = ["Examined"]

MOST = 2048
"""Specs that are remembered; each takes some 10 KiB."""


class Examined:
    """Remembers outcomes by what was examined, never by who asked: an edited or restored spec is examined anew."""

    def __init__(self, examine: Callable[[Mapping[str, Any]], Validated] = validate, most: int = MOST) -> None:
        self._examine = examine
        self._most = most
        self._outcomes: OrderedDict[str, Validated] = OrderedDict()

    def __call__(self, raw: Mapping[str, Any]) -> Validated:
        """The same as :func:`~slipway.api.validation.validate`, which looks at the name and the spec only."""
        # As text, since 1 and true are equal in Python and not in JSON.
        text = json.dumps([raw["metadata"].get("name"), raw.get("spec")])
        known = self._outcomes.pop(text, None)
        outcome = self._examine(raw) if known is None else known
        self._outcomes[text] = outcome
        if len(self._outcomes) > self._most:
            self._outcomes.popitem(last=False)
        return outcome
