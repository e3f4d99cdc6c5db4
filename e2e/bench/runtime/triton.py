"""A real Triton on this machine: the server binary in the wheel of pytriton, started directly.

pytriton's own way of starting it does not work with every Python, and only the binary is wanted here. Its Python
backend runs models in a stub process, which is linked for one version of Python: the fitting one is laid beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from e2e.bench.runtime.environments import CACHE, ROOT, python_of
from e2e.bench.runtime.served.models import MODELS, Port

_KINDS = {"FP32": "TYPE_FP32", "INT64": "TYPE_INT64"}
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def _packages() -> Path:
    return python_of("triton").parents[1] / "lib" / f"python{_VERSION}" / "site-packages"


def binary() -> Path:
    """The server. Raises environments.NotInstalled."""
    return _packages() / "pytriton" / "tritonserver" / "bin" / "tritonserver"


def backends() -> Path:
    """The backend folder with the stub for this Python."""
    folder = CACHE / "triton-backends"
    if not (folder / "python" / "triton_python_backend_stub").exists():
        source = _packages() / "pytriton" / "tritonserver"
        shutil.copytree(source / "backends", folder, dirs_exist_ok=True)
        shutil.copy(
            source / "python_backend_stubs" / _VERSION / "triton_python_backend_stub",
            folder / "python" / "triton_python_backend_stub",
        )
    return folder


def environment() -> dict[str, str]:
    """What the server needs in its environment, besides the models' own."""
    prefix = subprocess.run(
        [str(python_of("triton")), "-c", "import sys; print(sys.base_prefix)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    libraries = [str(_packages() / "nvidia_pytriton.libs"), f"{prefix}/lib", os.environ.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": ":".join(one for one in libraries if one), "PYTHONHOME": prefix}


def command(repository: Path, http_port: int, grpc_port: int, models: list[str]) -> list[str]:
    """The command that serves ``models`` of a repository on loopback."""
    return [
        str(binary()),
        f"--model-repository={repository}",
        f"--backend-directory={backends()}",
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in models),
        "--http-address=127.0.0.1",
        f"--http-port={http_port}",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={grpc_port}",
        "--allow-metrics=false",
        "--log-info=false",
        "--log-warning=false",
    ]


def model_source(module: str) -> str:
    """A ``model.py`` with the class TritonPythonModel of ``module``.

    The stub heeds no PYTHONPATH, and needs NumPy 1: the packages of its environment go before all others.
    """
    paths = [str(_packages()), str(CACHE / "lent"), str(ROOT)]
    return f"import sys\n\nsys.path[:0] = {paths!r}\nfrom {module} import TritonPythonModel\n"


def _ports(kind: str, ports: tuple[Port, ...], skip: int) -> str:
    entries = [
        f'  {{ name: "{one.name}", data_type: {_KINDS[one.datatype]}, dims: {list(one.shape[skip:])} }}'
        for one in ports
    ]
    return f"{kind} [\n" + ",\n".join(entries) + "\n]\n"


def write_repository(folder: Path, model: str, batch: int) -> Path:
    """A repository with the model ``m``: one of the comparison's."""
    served = MODELS[model]
    rows = 32 if served.batched else 0
    skip = 1 if rows else 0
    text = f'name: "m"\nbackend: "python"\nmax_batch_size: {rows}\n'
    text += _ports("input", served.inputs, skip) + _ports("output", served.outputs, skip)
    text += "instance_group [{ kind: KIND_CPU, count: 1 }]\n"
    if batch > 1:
        text += "dynamic_batching { max_queue_delay_microseconds: 1000 }\n"
    (folder / "m" / "1").mkdir(parents=True)
    (folder / "m" / "config.pbtxt").write_text(text)
    (folder / "m" / "1" / "model.py").write_text(model_source("e2e.bench.runtime.served.triton_model"))
    return folder
