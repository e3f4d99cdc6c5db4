"""A headless Chromium for the tests and screenshots of the web page.

The system's own if there is one, else Debian's package with the libraries that this machine lacks, unpacked into the
cache as Prometheus is; nothing is installed. ``python -m e2e.browser`` fetches it and prints its path.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from e2e.sandbox.binaries import BinaryMissingError, cached, run_or_explain

__all__ = ["browser", "chromium_path"]

PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
BINARY = "usr/lib/chromium/chromium-headless-shell"
SYSTEM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FONTS = "fonts.conf"
_FONTS_XML = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir>/usr/share/fonts</dir>
  <dir prefix="relative">usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""


def chromium_path() -> Path:
    """The browser; raises BinaryMissingError where it can neither be found nor fetched."""
    installed = next((found for name in SYSTEM if (found := shutil.which(name))), None)
    return Path(installed) if installed else cached("chromium", BINARY, _unpack)


@contextlib.asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A running browser without any page."""
    path = chromium_path()
    async with async_playwright() as playwright:
        # Chromium's own sandbox cannot be had as root or in most containers; it only ever opens pages of ours.
        running = await playwright.chromium.launch(
            executable_path=path, env={**os.environ, **_environment(path)}, args=["--no-sandbox"]
        )
        try:
            yield running
        finally:
            await running.close()


def _environment(path: Path) -> dict[str, str]:
    root = path.parents[3]
    if not (root / FONTS).exists():
        return {}
    libraries = sorted({str(found.parent) for found in root.glob("usr/lib/*-linux-gnu*/**/*.so*")})
    return {"LD_LIBRARY_PATH": ":".join(libraries), "FONTCONFIG_FILE": str(root / FONTS)}


def _unpack(folder: Path) -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise BinaryMissingError("a browser is missing: install Chromium and put `chromium` on the PATH")
    archives = folder.parent / "deb"
    (archives / "partial").mkdir(parents=True)
    download = [
        *("apt-get", "install", "--yes", "--download-only", "--no-install-recommends"),
        *("-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1", *PACKAGES),
    ]
    if subprocess.run(download, cwd=archives, capture_output=True, check=False).returncode != 0:
        # The usual reason is an empty or stale package index.
        subprocess.run(["apt-get", "update"], capture_output=True, check=False)
        failure = f"Chromium could not be fetched: install the Debian package `{PACKAGES[0]}`"
        run_or_explain(download, archives, failure)
    for package in sorted(archives.glob("*.deb")):
        run_or_explain(["dpkg-deb", "-x", str(package), str(folder)], folder, f"{package.name} is damaged")
    for unneeded in ("usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(folder / unneeded, ignore_errors=True)
    (folder / FONTS).write_text(_FONTS_XML)


if __name__ == "__main__":
    print(chromium_path())
    sys.exit(0)
