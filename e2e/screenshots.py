"""``python -m e2e.screenshots``: a rollout in the sandbox, and pictures of it for the documentation.

Writes ``docs/web.png`` (the page of one ModelDeployment), ``docs/web-table.png`` (all of them) and
``docs/status-watch.svg`` (``slipway status --watch``), taken from a real rollout while it goes on. Takes two minutes.
"""

import argparse
import asyncio
import fcntl
import io
import os
import pty
import re
import socket
import struct
import sys
import tempfile
import termios
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from e2e.browser import browser
from e2e.demo.manifest import CLAIM, MODEL, NAMESPACE, model_deployment
from e2e.demo.story import Story, start_operator
from e2e.demo.table import Screen
from e2e.sandbox.children import REPOSITORY_ROOT
from e2e.sandbox.cluster import cluster

__all__ = ["main"]

GPUS = 12
COLUMNS, ROWS = 112, 40
WIDTH, HEIGHT = 1280, 900
WATCHED_SECONDS = 3.0
CLEAR = "\x1b[H\x1b[J"


@dataclass
class Pictures(Story):
    """The beginning of the demo's story, up to the moment at which there is most to see."""

    page_url: str = ""
    docs: Path = Path("docs")

    async def _chapters(self) -> None:
        timeline = self.timeline
        assert timeline is not None
        await timeline.until("scaling of v1", lambda look: look.versions.get("v1", {}).get("readyReplicas", 0) >= 2, 90)
        await self._others()
        await self.apply(model_deployment(self.artefacts, ("v1", "v2"), "v2"))
        await timeline.until("step 3 of v2", lambda look: look.weight("v2") >= 50, 180)
        await self._photograph()

    async def _others(self) -> None:
        """More rows for the table: one that is suspended, and one whose model is not there."""
        for name, more, uri in (("digits-batch", {"suspend": True}, ""), ("digits-next", {}, f"pvc://{CLAIM}/nowhere")):
            manifest = model_deployment(self.artefacts, ("v1",), "v1")
            manifest["metadata"] = {"name": name, "namespace": NAMESPACE}
            manifest["spec"] |= more
            manifest["spec"]["versions"][0] |= {"uri": uri} if uri else {}
            await self.apply(manifest)

    async def _photograph(self) -> None:
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig), "TERM": "xterm-256color"}
        shown = await watched(["slipway", "-n", NAMESPACE, "status", MODEL, "--watch"], environment)
        (self.docs / "status-watch.svg").write_text(as_svg(shown, f"slipway -n {NAMESPACE} status {MODEL} --watch"))
        async with browser() as chromium:
            page = await chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            await page.goto(self.page_url)
            await page.wait_for_selector("tbody tr:nth-child(3)")
            await page.screenshot(
                path=self.docs / "web-table.png", clip={"x": 0, "y": 0, "width": WIDTH, "height": 320}
            )
            await page.goto(f"{self.page_url}#/{NAMESPACE}/{MODEL}")
            await page.wait_for_selector("figure path.line")
            await page.screenshot(path=self.docs / "web.png", full_page=True)


async def watched(command: list[str], environment: dict[str, str]) -> str:
    """What a program that redraws shows on a terminal after some seconds."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    program = [sys.executable, "-m", "slipway.cli", *command[1:]]
    process = await asyncio.create_subprocess_exec(*program, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    os.set_blocking(leader, False)
    seen = bytearray()
    asyncio.get_running_loop().add_reader(leader, lambda: seen.extend(os.read(leader, 65536)))
    try:
        await asyncio.sleep(WATCHED_SECONDS)
    finally:
        asyncio.get_running_loop().remove_reader(leader)
        process.terminate()
        await process.wait()
        os.close(leader)
    # The last redraw may be cut off; the one before it is whole.
    screens = seen.decode(errors="replace").split(CLEAR)
    return screens[-2 if len(screens) > 2 else -1].replace("\r\n", "\n").rstrip()


def as_svg(text: str, title: str) -> str:
    """A terminal's content as a picture that loads no font from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(text))
    drawn = console.export_svg(title=title)
    return re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", drawn, flags=re.DOTALL)


async def _run(docs: Path) -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with tempfile.TemporaryDirectory() as scratch, Screen() as screen:
        folder = Path(scratch)
        async with cluster(gpus=GPUS) as running:
            operator = await start_operator(running, folder, "--web-port", str(port))
            try:
                url = f"http://127.0.0.1:{port}/"
                await Pictures(running, folder, screen, folder / "demo.png", page_url=url, docs=docs).run()
            finally:
                await operator.stop()
    print(f"written to {docs}: web.png, web-table.png, status-watch.svg")
    return 0


def main() -> int:
    """Take the pictures; the exit status is 0, or the rollout's trouble is raised."""
    parser = argparse.ArgumentParser(prog="python -m e2e.screenshots", description=__doc__)
    parser.add_argument("--docs", type=Path, default=REPOSITORY_ROOT / "docs", help="where the pictures go")
    return asyncio.run(_run(parser.parse_args().docs))


if __name__ == "__main__":
    sys.exit(main())
