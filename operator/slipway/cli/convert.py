"""``slipway convert``: KServe InferenceServices and Deployments with their autoscalers as ModelDeployments."""

import sys
import textwrap
from collections.abc import Iterator

import yaml

from slipway.api.schema import PlainDumper
from slipway.cli.documents import documents_of, shown
from slipway.conversion import Conversion, Converted, Finding
from slipway.conversion import convert as converted

__all__ = ["convert", "written"]

INCOMPLETE = 2
"""Exit status with ``--strict`` when something was not converted, or only in part."""


def convert(filename: str, *, strict: bool = False) -> int:
    """Print ModelDeployments, and to standard error what became of every field that is not simply in them.

    Returns 1 when an object could not be converted at all or there was none to convert, 2 with ``strict`` when
    anything was lost or changed its meaning, else 0.
    """
    conversion = converted(documents_of(filename))
    print(written(conversion), end="")
    for document in conversion.documents:
        for finding in document.findings:
            print(f"{shown(filename)}: {document.title}: {_line(finding)}", file=sys.stderr)
    made = len(conversion.objects)
    print(f"{made} converted, {sum(document.failed for document in conversion.documents)} failed", file=sys.stderr)
    if strict and not conversion.complete:
        return INCOMPLETE
    return 1 if not made or any(document.failed for document in conversion.documents) else 0


def written(conversion: Conversion) -> str:
    """The ModelDeployments as YAML, each below comments that say where it comes from and what is not in it."""
    return "".join(_document(document) for document in conversion.documents)


def _document(document: Converted) -> str:
    comments = [f"# {line}" for line in _account(document)]
    text = ""
    if document.made is not None:
        text = yaml.dump(dict(document.made), Dumper=PlainDumper, sort_keys=False, width=120, allow_unicode=True)
        comments.insert(0, "---")
    return "\n".join(comments) + "\n" + text


def _account(document: Converted) -> Iterator[str]:
    if document.made is not None:
        yield f"Converted from {document.title}."
    else:
        yield f"{document.title}: {'not converted.' if document.failed else 'no object of its own.'}"
    for finding in document.findings:
        yield from textwrap.wrap(_line(finding), 110, subsequent_indent="  ", break_long_words=False)


def _line(finding: Finding) -> str:
    where = f"{finding.path}: " if finding.path else ""
    return f"{finding.severity.value}: {where}{finding.message}"
