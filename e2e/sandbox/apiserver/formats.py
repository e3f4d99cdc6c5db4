"""String formats that a custom resource's schema may ask for."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import uuid
from collections.abc import Callable
from datetime import date, datetime
from urllib.parse import urlparse

_DURATION = re.compile(r"^[+-]?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h|d|w))+$")
_HOSTNAME = re.compile(
    r"^(?=.{1,255}$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$"
)
_EMAIL = re.compile(r"^[^@\s]+@[^@\s]+$")
_MAC = re.compile(r"^([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}$")


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


def _zoned(text: str) -> object:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or "T" not in text.upper():
        raise ValueError("no time zone")
    return moment


CHECKS: dict[str, Callable[[str], bool]] = {
    "date-time": _parses(_zoned),
    "date": _parses(date.fromisoformat),
    "duration": lambda text: bool(_DURATION.match(text)) or text == "0",
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "cidr": _parses(lambda text: ipaddress.ip_network(text, strict=False)),
    "uuid": _parses(uuid.UUID),
    "byte": _parses(lambda text: base64.b64decode(text, validate=True)),
    "hostname": lambda text: bool(_HOSTNAME.match(text)),
    "email": lambda text: bool(_EMAIL.match(text)),
    "mac": lambda text: bool(_MAC.match(text)),
    "uri": lambda text: bool(urlparse(text).scheme),
}


def fits(name: str, text: str) -> bool:
    """Whether the text has the named format; formats nobody knows fit everything."""
    check = CHECKS.get(name)
    return check is None or check(text)
