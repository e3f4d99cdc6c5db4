"""What can go wrong between a user and Slipway: a small tree, each with the reason that a condition carries."""

from collections.abc import Sequence
from typing import ClassVar

from slipway.api.problems import Problem

__all__ = [
    "ApiUnavailableError",
    "ConflictError",
    "InvalidSpecError",
    "NotFoundError",
    "NotYetSupportedError",
    "SlipwayError",
    "spec_error",
]


class SlipwayError(Exception):
    """Something that a user can act on."""

    reason: ClassVar[str] = "Error"
    """CamelCase reason, as in a condition."""
    remedy: ClassVar[str] = ""
    """What to do, as one sentence."""


class InvalidSpecError(SlipwayError):
    """The spec breaks a rule of the API."""

    reason = "InvalidSpec"
    remedy = "Correct the fields named and apply again; until then what runs goes on as it is."


class NotYetSupportedError(SlipwayError):
    """The spec asks for something that this release does not do."""

    reason = "NotYetSupported"
    remedy = "Remove the fields named or leave them at their defaults."


class ConflictError(SlipwayError):
    """Somebody else changed or owns what was to be written."""

    reason = "Conflict"
    remedy = "Look at the object again, then repeat the command or change the other owner's object."


class NotFoundError(SlipwayError):
    """The object, or the API itself, is not in the cluster."""

    reason = "NotFound"
    remedy = "Check name, namespace and context; `slipway crd | kubectl apply -f -` installs the API."


class ApiUnavailableError(SlipwayError):
    """The API server cannot be reached or refuses the credentials."""

    reason = "ApiUnavailable"
    remedy = "Check KUBECONFIG, the current context and your rights (`kubectl auth can-i get modeldeployments`)."


def spec_error(problems: Sequence[Problem]) -> SlipwayError:
    """The error for a spec's problems, invalid ones first."""
    text = "\n".join(str(problem) for problem in problems)
    invalid = any(problem.reason == "InvalidSpec" for problem in problems)
    return InvalidSpecError(text) if invalid else NotYetSupportedError(text)
