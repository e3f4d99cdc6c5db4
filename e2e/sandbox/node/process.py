"""Local processes that stand for containers: started in a group of their own, never outliving the agent."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
PIPE_LIMIT = 1 << 16
FLUSH_SECONDS = 1.0

LineSink = Callable[[bytes], None]


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends; for use in the child."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _prepare_child(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


class LocalProcess:
    """One running process with its whole process group; standard output and error go to a sink line by line."""

    def __init__(self, process: asyncio.subprocess.Process, sink: LineSink) -> None:
        self.ended = asyncio.Event()
        self._process = process
        self._reader = asyncio.create_task(self._read(sink))

    @classmethod
    async def start(cls, argv: Sequence[str], env: Mapping[str, str], folder: Path, sink: LineSink) -> Self:
        """Start the program; raises OSError when there is no such program."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=dict(env),
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=PIPE_LIMIT,
            start_new_session=True,
            preexec_fn=_prepare_child(os.getpid()),
        )
        return cls(process, sink)

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its group."""
        return self._process.pid

    async def _read(self, sink: LineSink) -> None:
        stream = self._process.stdout
        if stream is None:
            return
        while True:
            try:
                line = await stream.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                line = await stream.readexactly(error.consumed)
            except asyncio.IncompleteReadError as error:
                if error.partial:
                    sink(error.partial)
                return
            sink(line)

    async def wait(self) -> int:
        """Wait for the end; returns the exit code as a container's: 128 + n for signal n. The whole group ends."""
        code = await self._process.wait()
        self.signal(signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._reader), FLUSH_SECONDS)
        self._reader.cancel()
        self.ended.set()
        return code if code >= 0 else 128 - code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process's group (SIGTERM to the process alone, as a container runtime does)."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if number == signal.SIGTERM:
                os.kill(self.pid, number)
            else:
                os.killpg(self.pid, number)

    def memory_bytes(self) -> int:
        """Anonymous and shared memory of the process and its descendants: what a cgroup could not give back."""
        return sum(_memory_of(pid) for pid in _family(self.pid))


def _family(root: int) -> list[int]:
    family, queue = [], [root]
    while queue:
        pid = queue.pop()
        family.append(pid)
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                queue += [int(child) for child in (task / "children").read_text().split()]
    return family


def _memory_of(pid: int) -> int:
    kibibytes = 0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                kibibytes += int(line.split()[1])
    return kibibytes * 1024


async def run_to_end(argv: Sequence[str], env: Mapping[str, str], folder: Path, seconds: float) -> tuple[int, str]:
    """Run a short command; returns its exit code (124 when it took too long) and the end of its output."""
    output: list[bytes] = []
    process = await LocalProcess.start(argv, env, folder, output.append)
    try:
        code = await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        code = 124
    finally:
        process.signal(signal.SIGKILL)
    return code, b"".join(output)[-2048:].decode("utf-8", "replace").strip()
