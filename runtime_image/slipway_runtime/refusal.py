"""Why a server does not start: exit codes and the message left for Kubernetes."""

from __future__ import annotations

import contextlib
import os
from enum import IntEnum
from pathlib import Path

# Kubernetes keeps 4096 bytes of a termination message; the rest would be cut off silently.
_TERMINATION_LIMIT = 4096


class ExitCode(IntEnum):
    """Exit codes of ``slipway-runtime serve``; the operator explains them to the user."""

    OK = 0
    BAD_ARGUMENTS = 64
    ARTEFACT_REFUSED = 65
    ARTEFACT_NOT_FOUND = 66
    INTERNAL = 70


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not a defect of the program
    """The server will not start. ``reason`` is a CamelCase word, ``text`` a sentence for a person."""

    def __init__(self, reason: str, text: str, code: ExitCode = ExitCode.ARTEFACT_REFUSED) -> None:
        super().__init__(f"{reason}: {text}")
        self.reason = reason
        self.text = text
        self.code = code


def write_termination_message(refusal: Refusal) -> None:
    """Leave ``Reason: text`` where the kubelet (or whoever set the variable) reads it."""
    leave_termination_message(str(refusal))


def leave_termination_message(text: str) -> None:
    """Leave a text there, of which Kubernetes keeps the beginning.

    The path is ``$SLIPWAY_TERMINATION_LOG``, by default Kubernetes' own. A missing path is no error:
    outside Kubernetes nobody reads it, and the same words are in the log.
    """
    path = Path(os.environ.get("SLIPWAY_TERMINATION_LOG", "/dev/termination-log"))
    if not path.parent.is_dir():
        return
    message = text.encode()[:_TERMINATION_LIMIT]
    with contextlib.suppress(OSError):
        path.write_bytes(message)
