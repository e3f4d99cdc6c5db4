"""Settings of the documentation's site: `make docs` builds it from the Markdown files beside this one."""

import sys
from pathlib import Path
from typing import Any

import slipway

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "Slipway"
author = "The Slipway authors"
copyright = author  # noqa: A001 - Sphinx wants this name
version = release = slipway.__version__

extensions = ["myst_parser", "state_diagram"]
exclude_patterns = ["README.md", "_ext"]  # index.rst includes the former
root_doc = "index"
nitpicky = True

myst_heading_anchors = 4

html_theme = "furo"
html_title = f"Slipway {release}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"


def setup(app: Any) -> None:
    """Add pages that no list of index.rst names, so that a new page is never left out."""
    app.connect("source-read", _complete)


def _complete(_app: Any, name: str, source: list[str]) -> None:
    if name == "index":
        words = set(source[0].split())
        more = [page.stem for page in sorted(HERE.glob("*.md")) if page.stem not in {*words, "README"}]
        source[0] += "".join(f"   {page}\n" for page in more)
