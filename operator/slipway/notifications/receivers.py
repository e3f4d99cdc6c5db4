"""Who is told what, as the installation says.

URLs of chat systems are secrets, so they come from files (a mounted Secret) or environment variables, are read anew
for each message, and are never logged. The operator cannot read Secrets through the API server.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from slipway.api.errors import SlipwayError
from slipway.notifications.news import NewsKind

__all__ = ["Receiver", "ReceiverError", "ReceiverType", "receivers_of"]

_FIELDS = frozenset({"name", "type", "url", "urlFile", "urlEnv", "tokenFile", "events", "namespaces"})
_URL_FIELDS = ("url", "urlFile", "urlEnv")


class ReceiverError(SlipwayError):
    """A receiver is described in a way that cannot be meant, or its URL cannot be read."""

    reason = "InvalidReceiver"
    remedy = "Correct --notifications, or the chart's value of that name; docs/notifications.md lists the fields."


class ReceiverType(StrEnum):
    """The form in which a receiver takes news."""

    WEBHOOK = "webhook"
    SLACK = "slack"


@dataclass(frozen=True, slots=True)
class Receiver:
    """One receiver."""

    name: str
    type: ReceiverType
    url: str = ""
    url_file: str = ""
    """File with the URL."""
    url_env: str = ""
    """Environment variable with the URL."""
    token_file: str = ""
    """File with a token that is sent as ``Authorization: Bearer``."""
    kinds: frozenset[NewsKind] = frozenset(NewsKind)
    namespaces: frozenset[str] = frozenset()
    """None means all."""

    def wants(self, kind: NewsKind, namespace: str) -> bool:
        """Whether news of a kind from a namespace is for this receiver."""
        return kind in self.kinds and (not self.namespaces or namespace in self.namespaces)

    def address(self, environment: Mapping[str, str] | None = None) -> str:
        """The URL as it is now; raises ReceiverError where there is none or it is no HTTP URL. Tells no part of it."""
        environment = os.environ if environment is None else environment
        url = self.url or (_content(self.url_file) if self.url_file else environment.get(self.url_env, ""))
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            source = self.url_file or f"${self.url_env}"
            raise ReceiverError(f"{'the url' if self.url else source} of receiver {self.name} is no http or https URL")
        return url.strip()

    def token(self) -> str:
        """The token as it is now; empty without a file."""
        return _content(self.token_file) if self.token_file else ""


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ReceiverError(f"{path} cannot be read: {type(error).__name__}") from error


def receivers_of(text: str) -> tuple[Receiver, ...]:
    """Receivers from a list in JSON or YAML, or from the file that ``@FILE`` names; raises ReceiverError."""
    if text.startswith("@"):
        text = _content(text[1:])
    try:
        entries = yaml.safe_load(text) if text.strip() else []
    except yaml.YAMLError as error:
        raise ReceiverError("notifications are neither JSON nor YAML") from error
    if not isinstance(entries, list):
        raise ReceiverError("notifications are a list of receivers")
    receivers = tuple(_receiver(f"notifications[{place}]", entry) for place, entry in enumerate(entries))
    names = [receiver.name for receiver in receivers]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise ReceiverError(f"two receivers are named {twice}")
    return receivers


def _receiver(where: str, entry: Any) -> Receiver:
    if not isinstance(entry, dict):
        raise ReceiverError(f"{where} is no mapping")
    unknown = sorted(set(entry) - _FIELDS)
    if unknown:
        raise ReceiverError(f"{where} has an unknown field {unknown[0]}; it can have {', '.join(sorted(_FIELDS))}")
    if sum(1 for name in _URL_FIELDS if entry.get(name)) != 1:
        raise ReceiverError(f"{where} needs exactly one of {', '.join(_URL_FIELDS)}")
    receiver = Receiver(
        name=_text(where, entry, "name"),
        type=ReceiverType(_one_of(f"{where}.type", entry.get("type"), tuple(ReceiverType))),
        url=_text(where, entry, "url"),
        url_file=_text(where, entry, "urlFile"),
        url_env=_text(where, entry, "urlEnv"),
        token_file=_text(where, entry, "tokenFile"),
        kinds=frozenset(
            NewsKind(_one_of(f"{where}.events", word, tuple(NewsKind)))
            for word in _list(where, entry, "events") or tuple(NewsKind)
        ),
        namespaces=frozenset(str(name) for name in _list(where, entry, "namespaces")),
    )
    if not receiver.name:
        raise ReceiverError(f"{where} needs a name")
    if receiver.url:
        receiver.address()
    return receiver


def _text(where: str, entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name) or ""
    if not isinstance(value, str):
        raise ReceiverError(f"{where}.{name} is no text")
    return value


def _list(where: str, entry: Mapping[str, Any], name: str) -> list[Any]:
    value = entry.get(name) or []
    if not isinstance(value, list):
        raise ReceiverError(f"{where}.{name} is no list")
    return value


def _one_of(where: str, word: Any, known: tuple[StrEnum, ...]) -> str:
    if word not in tuple(known):
        raise ReceiverError(f"{where}: {word!r} is none of {', '.join(known)}")
    return str(word)
