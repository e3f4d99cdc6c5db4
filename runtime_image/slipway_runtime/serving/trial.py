"""The first requests of a model that has taken another's place: if the device fails them all, the other comes back."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

FIRST_REQUESTS = 5


class Trial:
    """Ends with the first answer, or with as many failures in a row as make a verdict."""

    def __init__(self, failed: Callable[[str], object]) -> None:
        """``failed`` gets the cause, once."""
        self._failed = failed
        self._failures = 0
        self.undecided = True

    def judge(self, code: int) -> None:
        """A request ended with this status. 503 is what a device without memory gives; 500 is the model's own doing."""
        if not self.undecided:
            return
        if code == HTTPStatus.OK:
            self.undecided = False
        elif code == HTTPStatus.SERVICE_UNAVAILABLE:
            self._failures += 1
            if self._failures == FIRST_REQUESTS:
                self.undecided = False
                self._failed(f"the device failed the first {FIRST_REQUESTS} requests")
