"""Licences of what the images hold; ``python -m e2e.supply.licences`` writes docs/licences.md."""

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.utils import canonicalize_name

from e2e.supply.locks import IMAGES, ROOT, pins

PAGE = Path("docs/licences.md")
FORBIDDEN = re.compile(
    r"(?<!L)(?<!Lesser )\b(?:A?GPL|GNU (?:Affero )?General|SSPL|BUSL|Commons Clause|Proprietary)", re.I
)
"""Licences that would bind whoever ships an image, or forbid to."""
_LONGEST = 120


def licence(name: str) -> str:
    """The licence of an installed package as its own metadata say; raises LookupError where they say nothing."""
    try:
        metadata = distribution(name).metadata.json
    except PackageNotFoundError:
        raise LookupError(f"{name} is locked and not installed here: pip install it, or write the locks anew") from None
    classifiers = [text for text in metadata.get("classifier", ()) if text.startswith("License ::")]
    said = str(metadata.get("license_expression", "")) or ", ".join(text.split(" :: ")[-1] for text in classifiers)
    said = said or str(metadata.get("license", "")).strip().split("\n")[0]
    if not said or said == "UNKNOWN":
        raise LookupError(f"{name} says nothing of its licence")
    return said[:_LONGEST]


def table() -> dict[str, tuple[str, str, str]]:
    """By package: its version, its licence, and the images that hold it."""
    rows: dict[str, tuple[str, str, str]] = {}
    for lock in IMAGES:
        image = lock.title
        for pin in pins(lock.file.read_text()):
            name = canonicalize_name(pin.name)
            before = rows.get(name)
            rows[name] = (pin.version, licence(name), f"{before[2]}, {image}" if before else image)
    return dict(sorted(rows.items()))


def page() -> str:
    """The page's text."""
    lines = [
        "# Licences",
        "",
        "What the images hold beside Python and Slipway (Apache-2.0), by the packages' own metadata. Written by",
        "`python -m e2e.supply.licences`; a test refuses licences of the kinds GPL, AGPL, SSPL, BUSL and proprietary.",
        "",
        f"torch ({licence('torch')}) is in the runtime's image as well.",
        "The build of it for CUDA brings NVIDIA's libraries, under NVIDIA's own terms; the build for CPUs has none.",
        "",
        "| Package | Version | Licence | Images |",
        "|---|---|---|---|",
    ]
    lines += [f"| {name} | {version} | {text} | {images} |" for name, (version, text, images) in table().items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page."""
    (ROOT / PAGE).write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
