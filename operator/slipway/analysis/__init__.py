"""The comparison of a candidate with the live stable version: evidence windows, sequential tests, verdicts. Pure.

``docs/analysis.md`` explains the tests and shows their error rates.
"""

from slipway.analysis.assessment import Assessment, assess
from slipway.analysis.breakers import Breaker, tripped
from slipway.analysis.expressions import Subject, expressions
from slipway.analysis.reasons import Reason
from slipway.analysis.shadowing import with_agreement
from slipway.analysis.silence import still_asked

__all__ = [
    "Assessment",
    "Breaker",
    "Reason",
    "Subject",
    "assess",
    "expressions",
    "still_asked",
    "tripped",
    "with_agreement",
]
