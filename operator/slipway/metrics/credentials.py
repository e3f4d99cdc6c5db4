"""How the operator says who it is to a Prometheus that asks, and how it knows whom it asks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import requests

__all__ = ["Credentials", "headers_of"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """What goes with every query; nothing by default."""

    token_file: str = ""
    """File with a bearer token, read anew for each query: tokens of service accounts live an hour."""
    ca_file: str = ""
    """File with the certificates of authorities that are trusted in place of the public ones."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """More headers, such as the tenant's of Mimir or Thanos."""

    def sign(self, request: requests.PreparedRequest) -> None:
        """Put token and headers into a request; raises requests.RequestException where the token cannot be read."""
        request.headers.update(self.headers)
        if not self.token_file:
            return
        try:
            token = Path(self.token_file).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise requests.RequestException(f"the token cannot be read: {error}") from error
        request.headers["Authorization"] = f"Bearer {token}"


def headers_of(text: str) -> dict[str, str]:
    """The headers of ``NAME=VALUE,NAME=VALUE``; raises ValueError for anything else."""
    found = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, value = entry.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"{entry!r} is not NAME=VALUE")
        found[name.strip()] = value.strip()
    return found
