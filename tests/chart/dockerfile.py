"""Dockerfiles read as steps, and their RUN and COPY carried out below a folder instead of in a container.

SIMULATED: there is no base image, and no package index is asked. Everything that the image would download is there
already, in the environment that runs the tests; a .pth file shows it to the virtual environment that a step makes.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PREFIX = "/opt/slipway"
_STEP = re.compile(r"(?m)^([A-Z]+)\s+((?:.*\\\n)*.*)$")


@dataclass(frozen=True)
class Step:
    """One instruction."""

    word: str
    text: str
    stage: int
    """Counted from 1; 0 for what comes before the first FROM."""


def steps(path: Path) -> list[Step]:
    """The instructions of a Dockerfile, in order."""
    text = re.sub(r"(?m)^#.*\n", "", path.read_text())
    found, stage = [], 0
    for word, rest in _STEP.findall(text):
        stage += word == "FROM"
        found.append(Step(word, rest.replace("\\\n", " "), stage))
    return found


def of(path: Path, word: str, stage: int = 0) -> list[str]:
    """Arguments of all instructions of a kind, of one stage where that is given."""
    return [step.text.strip() for step in steps(path) if step.word == word and stage in (0, step.stage)]


def variables(path: Path, stage: int) -> dict[str, str]:
    """What ENV sets in a stage."""
    return {
        name: value.strip('"')
        for text in of(path, "ENV", stage)
        for name, value in re.findall(r"(\w+)=(\"[^\"]*\"|\S+)", text)
    }


@dataclass
class Build:
    """The first stage of a Dockerfile, below a folder."""

    dockerfile: Path
    root: Path
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments."""
    _folder: str = "/"
    _environment: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Carry out all steps of the first stage; raises CalledProcessError with what a step printed."""
        for step in (one for one in steps(self.dockerfile) if one.stage == 1):
            match step.word:
                case "WORKDIR":
                    self._folder = step.text
                    self._at(step.text).mkdir(parents=True, exist_ok=True)
                case "ARG":
                    name, _, value = step.text.partition("=")
                    self._environment[name] = self.arguments.get(name, value)
                case "ENV":
                    name, _, value = step.text.partition("=")
                    self._environment[name] = self._here(value).replace("$PATH", self._path())
                case "COPY":
                    self._copy(*step.text.split())
                case "RUN":
                    self._run(step.text)

    def _at(self, path: str) -> Path:
        return self.root / (path if path.startswith("/") else f"{self._folder}/{path}").lstrip("/")

    def _here(self, text: str) -> str:
        """Places of the image, below the folder."""
        return re.sub(rf"{PREFIX}|/tmp/", lambda found: f"{self.root}{found[0]}", text)

    def _path(self) -> str:
        return self._environment.get("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")

    def _copy(self, *words: str) -> None:
        *sources, target = words
        for source in sources:
            there = self._at(target)
            there = there / Path(source).name if target.endswith(("/", ".")) else there
            there.parent.mkdir(parents=True, exist_ok=True)
            place = REPOSITORY / source
            if place.is_dir():
                shutil.copytree(place, there, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copy(place, there)

    def _run(self, text: str) -> None:
        environment = {
            "PATH": self._path(),
            "HOME": str(self.root / "tmp"),
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            **self._environment,
        }
        for part in self._parts(text):
            subprocess.run(
                ["bash", "-euo", "pipefail", "-c", part],
                cwd=self._at(self._folder),
                env=environment,
                check=True,
                capture_output=True,
                text=True,
            )
            self._show_packages()

    def _parts(self, text: str) -> Iterator[str]:
        """The commands of a step; a virtual environment is shown the packages as soon as it is there."""
        yield from self._here(text).split(" && ") if "python -m venv" in text else [self._here(text)]

    def _show_packages(self) -> None:
        for site in (self.root / PREFIX.lstrip("/")).glob("lib/python*/site-packages"):
            if not (site / "tests.pth").exists():
                # pip would fetch a newer one to build with.
                for old in (*site.glob("setuptools*"), *site.glob("_distutils_hack"), *site.glob("pkg_resources")):
                    shutil.rmtree(old)
                (site / "distutils-precedence.pth").unlink(missing_ok=True)
            (site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")


def nobody(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program as user 65532, who has no name and no rights over files, with no other variables.

    As oneself where the kernel lets nobody make a user namespace.
    """
    mapped = ["unshare", "--user", "--map-user=65532", "--map-group=65532"]
    allowed = subprocess.run([*mapped, "true"], capture_output=True, check=False).returncode == 0
    command = [*(mapped if allowed else ()), *arguments]
    return subprocess.run(command, env=dict(environment), cwd=folder, capture_output=True, text=True, check=False)


def seal(folder: Path) -> None:
    """Take the right to write away from everything below a folder."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222)


def unseal(folder: Path) -> None:
    """Give the owner the right to write back, so that the folder can be removed."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o200)
