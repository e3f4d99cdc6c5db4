"""The cookie that keeps a user on the revision drawn first.

It names a revision, not a version: two revisions of one version can be live at the same time.
"""

import re

from slipway.api.traffic import SessionAffinity

__all__ = ["cookie_pattern", "set_cookie"]


def set_cookie(affinity: SessionAffinity, revision: str) -> str:
    """The ``Set-Cookie`` value that binds a user to a revision."""
    seconds = max(1, round(affinity.ttl.seconds))
    return f"{affinity.cookie}={revision}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Lax"


def cookie_pattern(affinity: SessionAffinity, revision: str) -> str:
    """A regular expression (RE2) for the whole ``Cookie`` header of a user bound to a revision."""
    return rf"(.*;\s*)?{re.escape(affinity.cookie)}={re.escape(revision)}(\s*;.*)?"
