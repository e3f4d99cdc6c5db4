"""Words that a user gives to commands: names, namespaces and times, checked before anybody is asked."""

import argparse
import math
import re

from slipway.api.scalars import Duration

__all__ = ["name_of", "namespace_of", "seconds_of"]

_LONGEST = 253
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_KIND = re.compile(r"(mdep|modeldeployments?)(\.slipway\.dev)?/")
_DURATION = re.compile(Duration.pattern)


def name_of(text: str) -> str:
    """The name of a ModelDeployment, also in kubectl's form ``mdep/NAME``; raises ArgumentTypeError for others."""
    found = _KIND.match(text)
    name = text[found.end() :] if found else text
    if not name:
        raise argparse.ArgumentTypeError("it is empty (an unset variable?)")
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        raise argparse.ArgumentTypeError(f"{_short(text)!r} is not the name of an object")
    return name


def namespace_of(text: str) -> str:
    """A namespace; empty for that of the context. Raises ArgumentTypeError for what cannot be one."""
    if text and not _LABEL.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{_short(text)!r} is not the name of a namespace")
    return text


def seconds_of(text: str) -> float:
    """A time in seconds, from a number or from a duration such as ``90s`` or ``5m``; raises ArgumentTypeError."""
    try:
        number = Duration(text).seconds if _DURATION.match(text) else float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{_short(text)} is no time to wait, which 60, 60s or 5m would be")
    return number


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:40]}..."
