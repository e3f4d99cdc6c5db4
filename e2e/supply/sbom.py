"""Bills of materials of the images, in CycloneDX's JSON; ``python -m e2e.supply.sbom`` writes them into build/."""

import subprocess
import sys
import sysconfig
from pathlib import Path

from e2e.supply.locks import IMAGES, ROOT, TORCH_LOCK, Lock

FOLDER = ROOT / "build"


def write(lock: Lock, folder: Path = FOLDER) -> Path:
    """Write what a lock installs, with versions and hashes; gives the file."""
    target = folder / f"sbom-{lock.title}.cdx.json"
    folder.mkdir(parents=True, exist_ok=True)
    command = [f"{sysconfig.get_path('scripts')}/cyclonedx-py", "requirements", str(lock.file)]
    command += ["--output-format", "JSON", "--output-reproducible", "--output-file", str(target)]
    subprocess.run(command, check=True)
    return target


def main() -> int:
    """Write the bill of each image, and of torch's build for CUDA."""
    for lock in (*IMAGES, TORCH_LOCK):
        sys.stdout.write(f"{write(lock).relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
