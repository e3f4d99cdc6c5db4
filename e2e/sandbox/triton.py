"""A real Triton Inference Server: the program that the PyPI package nvidia-pytriton carries, run without a container.

``python -m e2e.sandbox.triton tritonserver ARGUMENTS…`` stands for Triton's image in the sandbox. What is fetched
(70 MB) is unpacked once into the cache folder of :mod:`e2e.sandbox.binaries`. The only backend in the package is
Python's; its stub is linked against numpy 1, so Triton's Python has packages of its own (numpy 1.26) before those of
this environment, and a ``model.py`` may import torch as well.
"""

import hashlib
import os
import shutil
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from e2e.sandbox.binaries import BinaryMissingError, cached, run_or_explain

__all__ = ["Triton", "main", "triton"]

TRITON_PACKAGE = "nvidia-pytriton==0.7.0"
"""Brings tritonserver 2.51."""
NUMPY_PACKAGE = "numpy==1.26.4"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
ADDRESSES = ("http", "grpc", "metrics")
_WANTED = ("pytriton/tritonserver/bin/", "pytriton/tritonserver/backends/", "nvidia_pytriton.libs/")
_STUB = f"pytriton/tritonserver/python_backend_stubs/{PYTHON}/triton_python_backend_stub"


@dataclass(frozen=True, slots=True)
class Triton:
    """An unpacked Triton."""

    folder: Path

    @property
    def binary(self) -> Path:
        """The server."""
        return self.folder / "pytriton/tritonserver/bin/tritonserver"

    @property
    def backends(self) -> Path:
        """For ``--backend-directory``."""
        return self.folder / "pytriton/tritonserver/backends"

    def environment(self) -> Mapping[str, str]:
        """Variables that the server needs, besides those of its caller."""
        libraries = f"{_python_library().parent}:{self.folder / 'nvidia_pytriton.libs'}"
        path = f"{self.folder / 'python' / 'bin'}:{os.environ.get('PATH', os.defpath)}"
        return {"LD_LIBRARY_PATH": libraries, "PATH": path}

    def command(self, *arguments: str) -> list[str]:
        """The command line; ``arguments`` are those of ``tritonserver``."""
        return [str(self.binary), f"--backend-directory={self.backends}", *arguments]


def triton() -> Triton:
    """Triton in the cache folder, fetched if it is not there.

    Raises BinaryMissingError where it cannot be had: no Linux on x86_64, or a Python without its shared library.
    """
    _python_library()
    # The standard library and the packages that are linked below belong to one environment.
    environment = hashlib.sha256(f"{sys.prefix}:{sys.base_prefix}".encode()).hexdigest()[:8]
    name = f"triton-{PYTHON}-{environment}"
    return Triton(cached(name, "pytriton/tritonserver/bin/tritonserver", _unpack).parents[3])


def _unpack(folder: Path) -> None:
    downloads = folder.parent / "wheels"
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(downloads)]
    run_or_explain([*download, TRITON_PACKAGE, NUMPY_PACKAGE], folder, "Triton could not be fetched from PyPI")
    with zipfile.ZipFile(next(downloads.glob("nvidia_pytriton-*.whl"))) as wheel:
        for name in wheel.namelist():
            if name.startswith(_WANTED) or name == _STUB:
                wheel.extract(name, folder)
    if not (folder / _STUB).exists():
        raise BinaryMissingError(f"{TRITON_PACKAGE} has no backend for Python {PYTHON}")
    triton_here = Triton(folder)
    stub = triton_here.backends / "python" / Path(_STUB).name
    shutil.move(folder / _STUB, stub)
    stub.chmod(0o755)
    triton_here.binary.chmod(0o755)
    packages = _python_packages(folder / "python")
    with zipfile.ZipFile(next(downloads.glob("numpy-*.whl"))) as wheel:
        wheel.extractall(packages)


def _python_packages(home: Path) -> Path:
    """Make a virtual environment with those of this one behind its own; gives the folder of its packages.

    The stub pays no regard to PYTHONPATH or PYTHONHOME; it takes the environment of the first python3 on the PATH.
    """
    venv.create(home, symlinks=True)
    packages = home / "lib" / f"python{PYTHON}" / "site-packages"
    (packages / "environment.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return packages


def _python_library() -> Path:
    """The shared library of this Python, with which the stub is linked. Raises BinaryMissingError."""
    known = sysconfig.get_config_vars("LIBDIR", "MULTIARCH")
    folders = [Path(known[0] or "/usr/lib"), Path(sys.base_prefix) / "lib"]
    folders += [folder / known[1] for folder in tuple(folders) if known[1]]
    for folder in folders:
        library = folder / f"libpython{PYTHON}.so.1.0"
        if library.exists():
            return library
    raise BinaryMissingError(
        f"Triton's Python backend needs libpython{PYTHON}.so.1.0: a Python built with --enable-shared"
    )


def main(arguments: Sequence[str]) -> NoReturn:
    """Become Triton; the first argument is the program's name, as in its image. Listens on ``$SLIPWAY_HOST``."""
    if not arguments or Path(arguments[0]).name != "tritonserver":
        sys.exit(f"this stands for Triton's image, whose only program is tritonserver, not {' '.join(arguments)}")
    host = os.environ.get("SLIPWAY_HOST", "127.0.0.1")
    server = triton()
    command = server.command(*(f"--{name}-address={host}" for name in ADDRESSES), *arguments[1:])
    os.execve(command[0], command, {**os.environ, **server.environment()})  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
