"""W3C trace context: who caused a request, and whether its trace is recorded."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import NamedTuple

PARENT_HEADER = "traceparent"
STATE_HEADER = "tracestate"
RESPONSE_HEADER = "traceresponse"

_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NOBODY = ("0" * 32, "0" * 16)
_SAMPLED = 0x01
_MAX_STATE = 512


class TraceContext(NamedTuple):
    """The place of a request in its trace. Ids in lower-case hexadecimal; ``parent_id`` is empty at a trace's start."""

    trace_id: str
    span_id: str
    parent_id: str
    sampled: bool
    state: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that is caused by this one."""
        found = {PARENT_HEADER: self.header}
        return {**found, STATE_HEADER: self.state} if self.state else found

    @property
    def header(self) -> str:
        """The value of ``traceparent`` for what is caused by this request."""
        return f"00-{self.trace_id}-{self.span_id}-{_SAMPLED if self.sampled else 0:02x}"


def token_hex(size: int) -> str:
    """Random bytes in hexadecimal. They tell things apart and keep no secret: the system's own are dear."""
    return f"{random.getrandbits(8 * size):0{2 * size}x}"


def begin(parent: str, state: str, ratio: float, token: Callable[[int], str] = token_hex) -> TraceContext:
    """The context of a request that came with these headers (empty: absent or unreadable).

    The caller's decision to record holds; where there is none, the share ``ratio`` is recorded, drawn by the trace's
    id. ``token`` gives random bytes in hexadecimal.
    """
    found = _PARENT.fullmatch(parent.strip())
    if found is None or found[2] == _NOBODY[0] or found[3] == _NOBODY[1] or (found[1] == "00" and found[5]):
        trace_id = token(16)
        return TraceContext(trace_id, token(8), "", int(trace_id[16:], 16) < ratio * 2**64)
    sampled = bool(int(found[4], 16) & _SAMPLED)
    return TraceContext(found[2], token(8), found[3], sampled, state if len(state) <= _MAX_STATE else "")
