"""Locks: exact versions with the hashes of their files; ``python -m e2e.supply.locks`` writes them anew.

The versions are those of the environment that runs the tests (see :mod:`tests.chart.pins`), so that what is tested is
what is installed. torch is locked apart: there is one build for CUDA, which brings its libraries along, and one for
CPUs, which another index serves; everything else is the same for both. No lock names an index.
"""

import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
NO_TORCH = 'torch ; sys_platform == "never"\n'
BUILD = "setuptools>=77\n"
"""What builds the operator's own package, without a download in isolation."""
PYTHON = "3.11.14"
"""The images' own, on Linux for x86-64; hashes of other platforms' files are in the locks as well."""


@dataclass(frozen=True, slots=True)
class Lock:
    """One file of locked packages."""

    path: str
    extras: tuple[str, ...] = ()
    """Extras of pyproject.toml that it installs."""
    constraints: str = ""
    """File of exact versions; empty for those of this environment."""

    @property
    def title(self) -> str:
        """A word for what it installs: operator, runtime, torch-cuda, dev."""
        folder, _, name = self.path.removesuffix(".lock").rpartition("/")
        return folder.removesuffix("_image") if name == "requirements" else name.removeprefix("requirements-")

    @property
    def file(self) -> Path:
        """Where it lies."""
        return ROOT / self.path


RUNTIME = ("runtime", "runtime-onnx", "runtime-safetensors", "runtime-tracing", "runtime-gpu")
OPERATOR_LOCK = Lock("operator/requirements.lock", ("operator",), "operator/constraints.txt")
RUNTIME_LOCK = Lock("runtime_image/requirements.lock", RUNTIME, "runtime_image/constraints.txt")
DEV_LOCK = Lock("requirements-dev.lock", ("dev",))
TORCH_LOCK = Lock("runtime_image/torch-cuda.lock", constraints="runtime_image/constraints.txt")
"""torch for CUDA with everything that it needs."""
IMAGES = (OPERATOR_LOCK, RUNTIME_LOCK)

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\]+)\s*\\?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a lock."""

    name: str
    version: str
    hashes: int = 0


def pins(text: str) -> list[Pin]:
    """The packages of a lock file's text, in its order."""
    found = list(_PIN.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [
        Pin(canonicalize_name(match[1]), match[2], text.count("--hash=sha256:", match.end(), end))
        for match, end in zip(found, ends, strict=True)
    ]


def installed() -> str:
    """Constraints: what is installed here, but for torch and what is ours."""
    names = {canonicalize_name(one.metadata["Name"]): one.version for one in distributions()}
    return "".join(
        f"{name}=={version}\n" for name, version in sorted(names.items()) if name not in ("torch", "slipway")
    )


def known(lock: Lock) -> str:
    """The exact versions that a lock is made of."""
    if lock.constraints:
        return (ROOT / lock.constraints).read_text()
    return installed() if lock.extras else ""


def write(lock: Lock, requirements: Iterable[str] = ()) -> None:
    """Resolve a lock anew and write it. Raises CalledProcessError where the index has no such packages."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        # torch itself is left out, but what it needs of Python is in the lock.
        named = re.findall(r"(?m)^[a-z0-9-]+(?===)", known(lock)) if lock.extras and lock.constraints else ()
        (there / "extra.in").write_text("\n".join([*named, *requirements]))
        (there / "override.txt").write_text(NO_TORCH if lock.extras else "")
        (there / "constraints.txt").write_text(known(lock))
        command = [f"{sysconfig.get_path('scripts')}/uv", "pip", "compile", str(there / "extra.in"), "--quiet"]
        command += ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--system-certs"]
        command += ["--python-version", PYTHON, "--override", str(there / "override.txt")]
        command += ["--constraint", str(there / "constraints.txt"), "--output-file", str(there / "out.lock")]
        command += ["--python-platform", "x86_64-manylinux_2_31"]
        command += [part for extra in lock.extras for part in ("--extra", extra)]
        command += [str(ROOT / "pyproject.toml")] if lock.extras else []
        subprocess.run(command, check=True, cwd=ROOT)
        text = (there / "out.lock").read_text()
    lock.file.write_text(f"# Written by `python -m e2e.supply.locks`. Do not edit.\n{text}")


def direct(lock: Lock) -> list[Requirement]:
    """What pyproject.toml asks for by the lock's extras, those of extras named in extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found, waiting, seen = list(map(Requirement, project["dependencies"])), list(lock.extras), set[str]()
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            if requirement.name == "slipway":
                waiting += requirement.extras
            else:
                found.append(requirement)
    return found


def main() -> int:
    """Write all locks."""
    write(OPERATOR_LOCK, [BUILD])
    write(RUNTIME_LOCK)
    write(DEV_LOCK)
    write(TORCH_LOCK, ["torch==2.13.0\n"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
