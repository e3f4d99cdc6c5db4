"""A program run as a child process that never outlives us."""

import asyncio
import ctypes
import os
import signal
from pathlib import Path

STOP_SECONDS = 5.0
LAST_LINES = 5

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class ChildEndedError(Exception):
    """A child process ended when it should not have; the message holds its last log lines."""


class Child:
    """One child process. The kernel kills it when we die, however that happens."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the program with its output in the log file."""
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    @property
    def pid(self) -> int | None:
        """The process id, while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def check(self) -> None:
        """Raise ChildEndedError unless the program runs."""
        if self.pid is None:
            raise ChildEndedError(f"{Path(self._command[0]).name} has ended: {self.last_words()}")

    def last_words(self) -> str:
        """The last lines of the log."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return "\n".join(lines[-LAST_LINES:]) or "no log"

    async def stop(self) -> None:
        """End the program: politely first, then not."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
