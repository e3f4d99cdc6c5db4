"""State diagrams of Mermaid as pictures in the site, without scripts and without a network.

Code hosts draw ``stateDiagram-v2`` blocks by themselves. Here states stand in a column in the order of their first
appearance; transitions are arcs, forward ones on the right, backward ones on the left, numbered as in the list below.
"""

import re
from html import escape
from typing import Any

from docutils import nodes

_EDGE = re.compile(r"^\s*(\S+)\s*-->\s*(\S+?)\s*(?::\s*(.*))?$")
_WIDTH, _LEFT, _STEP, _BOX, _HEIGHT = 760, 315, 74, 130, 34
_APART = 24
_OUTSIDE = "[*]"


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-read", _draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _draw(_app: Any, doctree: nodes.document) -> None:
    for block in list(doctree.findall(nodes.literal_block)):
        if block.get("language") == "mermaid":
            block.replace_self(nodes.raw("", picture(block.astext()), format="html"))


def edges(text: str) -> list[tuple[str, str, str]]:
    """From, to and label of every transition."""
    found = (_EDGE.match(line) for line in text.splitlines())
    return [(edge[1], edge[2], edge[3] or "") for edge in found if edge]


def picture(text: str) -> str:
    """The diagram and its legend as HTML."""
    shown = [edge for edge in edges(text) if _OUTSIDE not in edge[:2]]
    states = list(dict.fromkeys(state for edge in shown for state in edge[:2]))
    rows = {state: number for number, state in enumerate(states)}
    height = _STEP * len(states)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="State diagram, explained in the list below" '
        'style="max-width:100%;color:inherit" xmlns="http://www.w3.org/2000/svg">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="currentColor"/></marker></defs>',
    ]
    labels: list[tuple[int, int]] = []
    for number, (start, end, _) in enumerate(shown, 1):
        parts.append(_arc(number, rows[start], rows[end], labels))
    parts += [_state(state, row) for state, row in rows.items()]
    legend = "".join(f"<li>{escape(a)} → {escape(b)}: {escape(label)}</li>" for a, b, label in shown)
    return "\n".join([*parts, "</svg>", f"<ol>{legend}</ol>"])


def _state(name: str, row: int) -> str:
    top = row * _STEP + (_STEP - _HEIGHT) // 2
    return (
        f'<rect x="{_LEFT}" y="{top}" width="{_BOX}" height="{_HEIGHT}" rx="8" fill="none" stroke="currentColor"/>'
        f'<text x="{_LEFT + _BOX // 2}" y="{top + 22}" text-anchor="middle" fill="currentColor">{escape(name)}</text>'
    )


def _arc(number: int, start: int, end: int, labels: list[tuple[int, int]]) -> str:
    """An arc between the sides of two boxes, straight down for neighbours; its label covers none of ``labels``."""
    first, last = (row * _STEP + _STEP // 2 for row in (start, end))
    if end == start + 1:
        x = _LEFT + _BOX // 2
        line = f"M{x} {first + _HEIGHT // 2}V{last - _HEIGHT // 2 - 1}"
        return _line(line) + _number(number, x + 14, (first + last) // 2)
    forward = end >= start
    edge, away = (_LEFT + _BOX, 1) if forward else (_LEFT, -1)
    reach, y = 50 + 42 * max(1, abs(end - start)), (first + last) // 2
    while any(abs(edge + away * reach * 3 // 4 - x) < _APART and abs(y - other) < _APART for x, other in labels):
        reach += 8
    labels.append((edge + away * reach * 3 // 4, y))
    if start == end:
        first, last = first - 8, last + 8
    shift, bend = (5 if forward else -5), edge + away * reach
    line = f"M{edge} {first + shift}C{bend} {first} {bend} {last} {edge + away} {last - shift}"
    return _line(line) + _number(number, *labels[-1])


def _line(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="currentColor" marker-end="url(#tip)"/>'


def _number(number: int, x: int, y: int) -> str:
    return (
        f'<circle cx="{x}" cy="{y}" r="10" fill="var(--color-background-primary, white)" stroke="currentColor"/>'
        f'<text x="{x}" y="{y + 4}" font-size="11" text-anchor="middle" fill="currentColor">{number}</text>'
    )
