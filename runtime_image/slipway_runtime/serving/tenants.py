"""Shares of the server by tenant: who a request belongs to, how many it may send, and how urgent it is.

Pure: the clock is given. A tenant's name comes from a header, which the mesh must have set or verified; a name that
is not configured gets the default share. Names are the client's choice, so the table of the unknown ones is bounded.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

import msgspec

from slipway_runtime.protocol.failures import RequestFailure

MAX_PRIORITY = 100
MAX_NAME = 253
"""Longest name in bytes; a longer one is cut, so that two of them may share a bucket."""
OTHERS = "default"
"""The name in metrics of every tenant without an entry of its own."""
_MAX_UNKNOWN = 1024
_MAX_CLAIMS = 16 * 1024


class _Share(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    requests_per_second: float = 0.0
    priority: int = 1


class _Override(_Share, rename="camel", forbid_unknown_fields=True, kw_only=True):
    name: str


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    header: str = "x-tenant"
    claim: str = ""
    default: _Share = msgspec.field(default_factory=_Share)
    overrides: list[_Override] = []


@dataclass(frozen=True)
class Share:
    """What a tenant may have: requests a second (0: no limit) and a priority; the higher one goes first."""

    rate: float
    priority: int


@dataclass(frozen=True)
class TenantRules:
    """Which header names the tenant (with ``claim``: holds the verified claims of a token), and the shares."""

    header: str
    claim: str = ""
    default: Share = Share(0.0, 1)
    named: Mapping[str, Share] = field(default_factory=dict)

    def name_in(self, value: str) -> str:
        """The tenant that the header's value names; "" for none. Raises RequestFailure (401) for unreadable claims."""
        return (_claimed(value, self.claim) if self.claim else value)[:MAX_NAME]

    @property
    def highest(self) -> int:
        """The highest priority of all shares."""
        return max(share.priority for share in (self.default, *self.named.values()))

    def shared_by(self, count: int) -> TenantRules:
        """The rules for each of ``count`` servers that have the requests in equal parts."""

        def part(share: Share) -> Share:
            return Share(share.rate / count, share.priority)

        named = {name: part(share) for name, share in self.named.items()}
        return TenantRules(self.header, self.claim, part(self.default), named)


def read_rules(text: str) -> TenantRules:
    """Rules from JSON text, or from the file of that name. Raises ValueError that says what is wrong."""
    try:
        data = text if text.lstrip().startswith("{") else Path(text).read_text()
        document = msgspec.json.decode(data, type=_Document)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    header = document.header.strip().lower()
    if not header:
        raise ValueError("header must name a header")
    names = [one.name for one in document.overrides]
    if len(set(names)) != len(names) or "" in names:
        raise ValueError("overrides need names that differ")
    if OTHERS in names:
        raise ValueError(f"{OTHERS!r} is not the name of a tenant")
    named = {one.name: _share(one) for one in document.overrides}
    return TenantRules(header, document.claim, _share(document.default), named)


def _share(share: _Share) -> Share:
    if not 0 <= share.requests_per_second < math.inf:
        raise ValueError("requestsPerSecond must be 0 (no limit) or more")
    if not 0 <= share.priority <= MAX_PRIORITY:
        raise ValueError(f"priority must be from 0 to {MAX_PRIORITY}")
    return Share(share.requests_per_second, share.priority)


class TokenBucket:
    """Admits ``rate`` requests a second on average, and a second's worth (at least one) at once."""

    __slots__ = ("_burst", "_rate", "_tokens", "_updated")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._burst = max(rate, 1.0)
        self._tokens = self._burst
        self._updated = now

    def take(self, now: float) -> float:
        """Take a token; gives 0, or the seconds until there is one."""
        self._refill(now)
        # A sum of many small refills may fall short by a rounding error.
        if self._tokens >= 1.0 - 1e-9:
            self._tokens = max(self._tokens - 1.0, 0.0)
            return 0.0
        return (1.0 - self._tokens) / self._rate

    def full(self, now: float) -> bool:
        """Whether it is as good as a new one."""
        self._refill(now)
        return self._tokens >= self._burst

    def _refill(self, now: float) -> None:
        elapsed = max(0.0, now - self._updated)
        self._updated = max(now, self._updated)
        self._tokens = min(self._burst, self._tokens + elapsed * self._rate)


class Count(Protocol):
    """A counter."""

    def add(self, amount: float = 1.0) -> None:
        """Count up."""


@dataclass(frozen=True, slots=True)
class TenantCounts:
    """Where a tenant's requests are counted, by what was decided."""

    admitted: Count
    limited: Count


class Tenants:
    """Admission by tenant."""

    def __init__(
        self,
        rules: TenantRules,
        counts: Callable[[str], TenantCounts],
        clock: Callable[[], float] = time.monotonic,
        max_unknown: int = _MAX_UNKNOWN,
    ) -> None:
        """``counts`` gives the counters of a tenant that has an entry, or of all others (``OTHERS``).

        ``max_unknown`` names without an entry have a bucket of their own at a time, all further ones share one.
        """
        self.rules = rules
        self.header = rules.header
        self._clock = clock
        self._max_unknown = max_unknown
        now = clock()
        self._named = {name: TokenBucket(share.rate, now) for name, share in rules.named.items() if share.rate}
        self._unknown: OrderedDict[str, TokenBucket] = OrderedDict()
        self._crowd = TokenBucket(rules.default.rate, now)
        self._highest = max(rules.highest, 1)
        self._counts = {name: counts(name) for name in (*rules.named, OTHERS)}

    @property
    def tracked(self) -> int:
        """Unknown names with a bucket of their own."""
        return len(self._unknown)

    def admit(self, value: str) -> float:
        """Take a request whose header has ``value`` ("" where it has none); gives its lag, from 0 to 1.

        The lag is 0 for the highest priority; see ``serving.waiting``. Raises RequestFailure: 429 when the tenant has
        used up its share, 401 when the claims cannot be read.
        """
        name = self.rules.name_in(value)
        share = self.rules.named.get(name)
        count = self._counts[OTHERS if share is None else name]
        bucket = self._bucket(name, share)
        wait = 0.0 if bucket is None else bucket.take(self._clock())
        if wait > 0:
            count.limited.add()
            raise RequestFailure(
                HTTPStatus.TOO_MANY_REQUESTS, "the tenant's rate of requests is used up", max(1, math.ceil(wait))
            )
        count.admitted.add()
        return 1.0 - (share or self.rules.default).priority / self._highest

    def _bucket(self, name: str, share: Share | None) -> TokenBucket | None:
        if share is not None:
            return self._named.get(name)
        if not self.rules.default.rate:
            return None
        bucket = self._unknown.get(name)
        if bucket is None:
            self._forget_idle()
            if len(self._unknown) >= self._max_unknown:
                return self._crowd
            bucket = self._unknown[name] = TokenBucket(self.rules.default.rate, self._clock())
        self._unknown.move_to_end(name)
        return bucket

    def _forget_idle(self) -> None:
        """Drop buckets that have filled up again (nothing is lost with them), a few at a time, the idlest first."""
        now = self._clock()
        for _ in range(2):
            name = next(iter(self._unknown), None)
            if name is None or not self._unknown[name].full(now):
                return
            del self._unknown[name]


def _claimed(value: str, claim: str) -> str:
    """The claim in a token's payload, as a mesh forwards it after it has verified the token; "" without a token."""
    if not value:
        return ""
    refusal = RequestFailure(HTTPStatus.UNAUTHORIZED, "the token's claims cannot be read")
    if len(value) > _MAX_CLAIMS:
        raise refusal
    try:
        padded = value + "=" * (-len(value) % 4)
        claims: Any = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError, binascii.Error) as error:
        raise refusal from error
    found = claims.get(claim, "") if isinstance(claims, dict) else None
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise refusal
    return str(found)
