"""The web page of the operator: rollouts as pictures, read-only, without anything from outside."""

from slipway.web.answers import Answers
from slipway.web.records import Records
from slipway.web.server import serve_page

__all__ = ["Answers", "Records", "serve_page"]
