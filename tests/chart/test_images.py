"""The images: what they are made from, what is in them, and that it runs without rights on a read-only file system."""

import fnmatch
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from packaging.utils import canonicalize_name

from e2e.supply.locks import RUNTIME_LOCK
from tests.chart import dockerfile, pins
from tests.chart.dockerfile import PREFIX, REPOSITORY, Build

OPERATOR = REPOSITORY / "operator" / "Dockerfile"
RUNTIME = REPOSITORY / "runtime_image" / "Dockerfile"
HERE = "cpu" if torch.version.cuda is None else "cuda"
"""What the tests' own torch is for."""
BOTH = pytest.mark.parametrize("path", [OPERATOR, RUNTIME], ids=["operator", "runtime"])


def built(path: Path, root: Path, **arguments: str) -> Path:
    """The prefix that the last stage copies, after all steps of the first; nothing below it can be written."""
    try:
        Build(path, root, arguments).run()
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{error.cmd[-1]}\n{error.stdout}\n{error.stderr}")
    made = root / PREFIX.lstrip("/")
    dockerfile.seal(made)
    return made


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = built(OPERATOR, tmp_path_factory.mktemp("operator"))
    yield made
    dockerfile.unseal(made)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = built(RUNTIME, tmp_path_factory.mktemp("runtime"), ACCELERATOR=HERE)
    yield made
    dockerfile.unseal(made)


def files(folder: Path) -> set[Path]:
    """Names of all files below a folder but compiled ones."""
    return {one.relative_to(folder) for one in folder.rglob("*") if one.is_file() and one.suffix != ".pyc"}


def variables(path: Path, made: Path, writable: Path) -> dict[str, str]:
    """As the image sets them, its /tmp being a folder of this machine."""
    found = dockerfile.variables(path, 2) | {"HOME": str(writable), "TMPDIR": str(writable)}
    return found | {"PATH": f"{made}/bin:/usr/bin:/bin"}


@BOTH
def test_hadolint_is_content(path: Path) -> None:
    answer = subprocess.run(
        [str(Path(sys.executable).parent / "hadolint"), str(path)], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stdout) == (0, "")


@BOTH
def test_there_are_two_stages_on_one_exact_base_and_the_user_is_a_number(path: Path) -> None:
    first, last = dockerfile.of(path, "FROM")
    assert (first, last) == ("python:${PYTHON} AS build", "python:${PYTHON}")
    [tag] = [text for text in dockerfile.of(path, "ARG") if text.startswith("PYTHON=")]
    version, _, rest = tag.removeprefix("PYTHON=").partition("-")
    assert len(version.split(".")) == 3
    assert rest == "slim-trixie"
    assert dockerfile.of(path, "USER") == ["65532:65532"]
    assert dockerfile.of(path, "RUN", 2) == [], "what is built is copied, build tools stay behind"
    assert {"HOME": "/tmp", "USER": "slipway", "PYTHONDONTWRITEBYTECODE": "1"}.items() <= dockerfile.variables(
        path, 2
    ).items()


@BOTH
def test_the_context_has_what_is_copied_and_little_else(path: Path) -> None:
    lines = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    allowed = [line[1:] for line in lines if line.startswith("!")]
    for text in dockerfile.of(path, "COPY"):
        for source in text.split()[:-1]:
            if not text.startswith("--from"):
                assert any(fnmatch.fnmatch(source.removeprefix("./").split("/")[0], one) for one in allowed), source
    assert set(allowed) == {"pyproject.toml", "README.md", "LICENSE", "operator", "runtime_image"}


@pytest.mark.parametrize("image", pins.EXTRAS)
def test_every_package_is_pinned_within_what_pyproject_asks_for(image: str) -> None:
    pinned = pins.pins(image)
    for requirement in pins.requirements(image):
        name = canonicalize_name(requirement.name)
        if name not in pins.CHOSEN:
            assert requirement.specifier.contains(pinned[name]), f"{requirement}: {pinned[name]}"
    assert set(pins.closure(pins.requirements(image))) <= set(pinned)


def test_the_runtime_installs_all_its_extras_but_those_for_exports() -> None:
    extras = set(pins.EXTRAS["runtime_image"])
    assert set(RUNTIME_LOCK.extras) == extras
    everything = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name for name in everything if name.startswith("runtime")} == extras | {"runtime-export"}


def test_the_operator_runs_from_what_is_built(operator: Path, tmp_path: Path) -> None:
    [site] = operator.glob("lib/python*/site-packages")
    sources = REPOSITORY / "operator" / "slipway"
    wanted = {
        file.relative_to(sources) for file in sources.rglob("*") if file.is_file() and "__pycache__" not in file.parts
    }
    there = {file.relative_to(site / "slipway") for file in (site / "slipway").rglob("*") if file.is_file()}
    assert wanted <= there, "the page's files among them"
    assert not (site / "slipway_runtime").exists()
    assert not (site / "pip").exists()
    environment = variables(OPERATOR, operator, tmp_path)
    script = "import slipway, slipway.app, slipway.web, sys; print(slipway.__file__, sys.flags.dont_write_bytecode)"
    answer = dockerfile.nobody([f"{operator}/bin/python", "-c", script], environment, tmp_path)
    assert answer.stdout.split() == [f"{site}/slipway/__init__.py", "1"], answer.stderr
    answer = dockerfile.nobody([f"{operator}/bin/slipway", "run", "--help"], environment, tmp_path)
    assert "--prometheus-url" in answer.stdout, answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_runtime_runs_from_what_is_built(runtime: Path, tmp_path: Path) -> None:
    [site] = runtime.glob("lib/python*/site-packages")
    assert not (site / "slipway").exists()
    assert not (site / "pip").exists()
    environment = variables(RUNTIME, runtime, tmp_path)
    script = (
        "import slipway_runtime, uvloop, pynvml, opentelemetry.sdk, onnxruntime, safetensors, minio, getpass, torch;"
        "from torch._inductor.runtime.cache_dir_utils import cache_dir;"
        "print(slipway_runtime.__file__, getpass.getuser(), cache_dir())"
    )
    answer = dockerfile.nobody([f"{runtime}/bin/python", "-c", script], environment, tmp_path)
    file, user, cache = answer.stdout.split()
    assert file == f"{site}/slipway_runtime/__init__.py", answer.stderr
    assert user == "slipway"
    assert cache.startswith(str(tmp_path))
    answer = dockerfile.nobody(
        [f"{runtime}/bin/python", "-m", "slipway_runtime", "serve", "--help"], environment, tmp_path
    )
    assert "--model-name" in answer.stdout, answer.stderr


def test_a_build_for_gpus_refuses_a_torch_for_cpus_and_the_other_way_round(tmp_path: Path) -> None:
    other = "cuda" if HERE == "cpu" else "cpu"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        Build(RUNTIME, tmp_path, {"ACCELERATOR": other}).run()
    assert "(cuda is None) != " in caught.value.cmd[-1]
