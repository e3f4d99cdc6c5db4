"""What validation said of specs, so that a spec is examined once and not at every look at its object."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from slipway.api.validation import Validated, validate

__all__ = ["Examined"]

MOST = 2048
"""Specs that are remembered; each takes some 10 KiB."""


class Examined:
    """Remembers outcomes by what was examined, never by who asked: an edited or restored spec is examined anew.

    Who asked decides only what is forgotten: the outcome of the spec that an object had before.
    """

    def __init__(self, examine: Callable[[Mapping[str, Any]], Validated] = validate, most: int = MOST) -> None:
        self._examine = examine
        self._most = most
        self._outcomes: OrderedDict[bytes, Validated] = OrderedDict()
        self._newest: OrderedDict[tuple[Any, Any], bytes] = OrderedDict()

    def __call__(self, raw: Mapping[str, Any]) -> Validated:
        """The same as :func:`~slipway.api.validation.validate`, which looks at the name and the spec only."""
        metadata = raw["metadata"]
        # As text, since 1 and true are equal in Python and not in JSON.
        text = json.dumps([metadata.get("name"), raw.get("spec")])
        digest = hashlib.sha256(text.encode()).digest()
        known = self._outcomes.pop(digest, None)
        self._outcomes[digest] = outcome = self._examine(raw) if known is None else known
        who = (metadata.get("namespace"), metadata.get("name"))
        former = self._newest.pop(who, digest)
        self._newest[who] = digest
        if former != digest:
            self._outcomes.pop(former, None)
        for known_things in (self._outcomes, self._newest):
            if len(known_things) > self._most:
                known_things.popitem(last=False)
        return outcome
