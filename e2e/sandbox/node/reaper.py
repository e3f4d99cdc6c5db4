"""The last safeguard against leftovers: kills every process that carries a marker once its parent is gone.

`python -m e2e.sandbox.node.reaper NAME=VALUE` waits for the end of its standard input, which is a pipe from the
agent, and then kills all processes that have NAME=VALUE in their environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

ROUNDS = 5


def kill_marked(marker: str) -> int:
    """Kill all processes with this environment entry; returns how many there were."""
    wanted = marker.encode()
    killed: set[int] = set()  # a process that is dying may be found again
    for _ in range(ROUNDS):
        found = [pid for pid in _processes() if pid != os.getpid() and wanted in _environment(pid)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        if not found:
            break
    return len(killed)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def main() -> None:
    """Wait for the end of standard input, then kill."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    marker = sys.argv[1]
    while sys.stdin.buffer.read(1 << 10):
        pass
    kill_marked(marker)


if __name__ == "__main__":
    main()
