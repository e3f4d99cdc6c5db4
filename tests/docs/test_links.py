"""Links lead somewhere, anchors included: between the Markdown files as code hosts show them, and in the built site."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.blocks import PAGES, ROOT

_FENCED = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    return re.sub(r"`[^`\n]+`", lambda found: found[0].replace("[", " "), _FENCED.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """Anchors of headings as code hosts make them: lower case, no punctuation, dashes for spaces, numbers for twins."""
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#{1,6} +(.+?)\s*$", _FENCED.sub("", page.read_text()), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if slug in found else slug)
        found[slug] = found.get(slug, 0) + 1
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_of_markdown(page: Path) -> None:
    broken = []
    for target in _LINK.findall(prose(page)):
        parts = urlsplit(target)
        if parts.scheme:
            assert parts.scheme == "https", target
            continue
        file = (page.parent / parts.path).resolve() if parts.path else page
        if not file.exists() or (parts.fragment and parts.fragment not in anchors(file)):
            broken.append(target)
    assert not broken


class Page(HTMLParser):
    """What a built page links to, what can be linked to in it, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "iframe") and "src" in given:
            self.loads.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(ROOT / "docs"), str(out)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return out


def test_links_of_the_site(site: Path) -> None:
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    assert len(pages) > len(PAGES)
    assert list(_broken(site, pages)) == []


def _broken(site: Path, pages: dict[Path, Page]) -> Iterator[str]:
    for path, page in pages.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or link in ("", "#"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            fragment = parts.fragment and target in pages and parts.fragment not in pages[target].ids
            if not target.exists() or fragment:
                yield f"{path.relative_to(site)}: {link}"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not [load for load in Page(path.read_text()).loads if urlsplit(load).netloc], path


def test_every_page_is_in_the_navigation(site: Path) -> None:
    index = Page((site / "index.html").read_text())
    linked = {urlsplit(link).path for link in index.links}
    for page in PAGES[1:]:
        name = str(page.relative_to(ROOT / "docs").with_suffix(".html"))
        assert name in linked or name == "README.html", name


def test_the_state_diagram_is_drawn(site: Path) -> None:
    text = (site / "concepts.html").read_text()
    assert "State diagram, explained in the list below" in text
    assert "<li>Starting → Exposing: " in text
