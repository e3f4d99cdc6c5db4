"""The sandbox's own processes: started together, logged to files, never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from .node.process import die_with_parent

REPOSITORY_ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 10.0


class ChildFailedError(RuntimeError):
    """A process of the sandbox did not start; the message ends with its last log lines."""


def _open_log(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("ab")


class Child:
    """One process; its standard error goes to a log file, and so does what it prints after it is ready."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log_path: Path) -> None:
        self.name = name
        self.process = process
        self.log_path = log_path
        self._drain: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, name: str, argv: Sequence[str], log_folder: Path, env: Mapping[str, str] | None = None
    ) -> Self:
        """Start a process."""
        log_path = log_folder / f"{name}.log"
        with _open_log(log_path) as log_file:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log_file,
                cwd=REPOSITORY_ROOT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        return cls(name, process, log_path)

    async def ready_line(self) -> dict[str, Any]:
        """Wait for the JSON line that says that the process is ready; raises ChildFailedError."""
        stream = self.process.stdout
        if stream is None:
            raise ChildFailedError(f"{self.name} has no output")
        try:
            async with asyncio.timeout(START_SECONDS):
                while line := await stream.readline():
                    if line.startswith(b"{"):
                        self._drain = asyncio.create_task(self._drain_output(stream))
                        answer: dict[str, Any] = json.loads(line)
                        return answer
        except TimeoutError:
            raise ChildFailedError(f"{self.name} was not ready within {START_SECONDS:g} s:\n{self.tail()}") from None
        raise ChildFailedError(f"{self.name} ended with code {await self.process.wait()}:\n{self.tail()}")

    def drain(self) -> None:
        """Throw away what the process prints."""
        if self.process.stdout is not None:
            self._drain = asyncio.create_task(self._drain_output(self.process.stdout))

    @staticmethod
    async def _drain_output(stream: asyncio.StreamReader) -> None:
        while await stream.read(1 << 16):
            pass

    def tail(self) -> str:
        """The last lines of the log."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-20:])
        return ""

    async def stop(self) -> None:
        """Ask the process to end, and kill its group if it does not."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self.process.wait(), STOP_SECONDS)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                await self.process.wait()
        if self._drain is not None:
            self._drain.cancel()
            await asyncio.gather(self._drain, return_exceptions=True)
