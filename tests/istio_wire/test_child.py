"""Programs run as children: they end when told, and when we die without telling them."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.sandbox.mesh.child import Child, ChildEndedError

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def said(log: Path, text: str) -> bool:
    return log.exists() and text in log.read_text()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_child_that_ends_by_itself_is_reported_with_its_last_words(tmp_path: Path) -> None:
    child = Child(python("import sys; sys.exit('no such thing')"), tmp_path / "log")
    await child.start()
    await until(lambda: said(tmp_path / "log", "no such thing"))
    await until(lambda: child.pid is None)
    with pytest.raises(ChildEndedError, match="no such thing"):
        child.check()
    await child.stop()


async def test_a_stubborn_child_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("e2e.sandbox.mesh.child.STOP_SECONDS", 0.2)
    child = Child(python(STUBBORN), tmp_path / "log")
    await child.start()
    await until(lambda: said(tmp_path / "log", "up"))
    pid = child.pid
    assert pid is not None
    await child.stop()
    assert not alive(pid)


async def test_a_child_dies_with_us(tmp_path: Path) -> None:
    code = f"""
import asyncio
from pathlib import Path
from e2e.sandbox.mesh.child import Child
async def main():
    child = Child(["sleep", "60"], Path({str(tmp_path / "inner.log")!r}))
    await child.start()
    print(child.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(
        *python(code), stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert alive(pid)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await until(lambda: not alive(pid))
