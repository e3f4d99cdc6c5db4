"""Colours and redrawing, where a person looks at a terminal; plain text everywhere else."""

import os
import re
import sys
from collections.abc import Mapping
from typing import TextIO

__all__ = ["Screen"]

_GREEN, _YELLOW, _RED, _BOLD = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[1m"
_OFF = "\x1b[0m"
_HOME_AND_CLEAR = "\x1b[H\x1b[J"
_COLOURS: Mapping[str, str] = {
    **dict.fromkeys(("Ready", "Promoted", "Safe", "True", "Accepted"), _GREEN),
    **dict.fromkeys(("Progressing", "Paused", "Promoting", "Pending", "Undecided", "Suspended"), _YELLOW),
    **dict.fromkeys(("Stalled", "Degraded", "RollingBack", "RolledBack", "Failed", "Harmful", "Refused"), _RED),
    **dict.fromkeys(("next", "Conditions", "Evidence", "Replicas"), _BOLD),
}
_WORDS = re.compile(rf"\b(?:{'|'.join(_COLOURS)})\b")


class Screen:
    """Standard output, or another file."""

    def __init__(self, file: TextIO | None = None, environment: Mapping[str, str] | None = None) -> None:
        """Colours are used on terminals only, and never where ``NO_COLOR`` is set."""
        self._file = file or sys.stdout
        environment = os.environ if environment is None else environment
        self.is_terminal = self._file.isatty() and environment.get("TERM") != "dumb"
        self.colours = self.is_terminal and not environment.get("NO_COLOR")
        """Whether words are painted; documents for programs are not."""

    def show(self, text: str) -> None:
        """Print a text."""
        print(self._painted(text), file=self._file, flush=True)

    def redraw(self, text: str) -> None:
        """Print a text in the place of the one before; one below the other where that cannot be."""
        if self.is_terminal:
            print(_HOME_AND_CLEAR, end="", file=self._file)
        self.show(text)

    def _painted(self, text: str) -> str:
        if not self.colours:
            return text
        return _WORDS.sub(lambda match: f"{_COLOURS[match.group()]}{match.group()}{_OFF}", text)
