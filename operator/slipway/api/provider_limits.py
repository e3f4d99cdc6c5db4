"""Settings of ``spec.traffic`` that contradict each other, or that the chosen provider has no means for.

They are refused: a retry that nobody makes or a token that nobody checks must not look as if it were in force.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from slipway.api.matches import misread_parts
from slipway.api.problems import Problem, fields_of
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.traffic import Provider, Traffic

__all__ = ["beyond_provider", "untranslatable"]

_BEYOND: Mapping[Provider, frozenset[str]] = {
    Provider.ISTIO: frozenset(),
    Provider.GATEWAY_API: frozenset(
        {
            "resilience.retries",
            "resilience.outlierDetection",
            "resilience.rateLimit",
            "auth.jwt",
            "virtualService.delegate",
        }
    ),
    Provider.NONE: frozenset(
        {
            "hosts",
            "gateways",
            "versionHeader",
            "experiments",
            "sessionAffinity",
            "mirror",
            "resilience",
            "auth.jwt",
            "virtualService.delegate",
        }
    ),
}
"""Fields by provider that have to stay at their defaults."""

SHORTEST_DURATION = 0.001
"""Seconds; Istio's schema refuses less."""
SLOWEST_RATE = 0.001
"""Requests per second."""

_INSTEAD: Mapping[Provider, str] = {
    Provider.GATEWAY_API: "Gateway API has no means for it; leave it out, or set provider istio",
    Provider.NONE: "a plain Service has no means for it; leave it out, or choose a provider that routes",
}
_URI = frozenset({"exact", "prefix", "regex"})
_VALUE = frozenset({"exact", "regex"})
_CONDITIONS = frozenset({"name", "uri", "method", "headers", "queryParams"})


def beyond_provider(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    """Every setting of that sort."""
    traffic = spec.traffic
    for field in fields_of(traffic, "spec.traffic"):
        if field.path.removeprefix("spec.traffic.") in _BEYOND[traffic.provider] and not field.is_default:
            yield _problem(field.path, f"cannot be set with provider {traffic.provider}: {_INSTEAD[traffic.provider]}")
    yield from _matches(traffic)
    yield from _ejection(traffic)
    yield from _delegate(traffic)
    yield from _rate(traffic)
    yield from _mirror(spec)


def untranslatable(match: Mapping[str, Any]) -> str:
    """The first part of an Istio ``HTTPMatchRequest`` that an HTTPRoute cannot say; empty when there is none."""
    for field, value in match.items():
        if field not in _CONDITIONS:
            return field
        if field in {"uri", "method"} and not _is_one_of(value, _URI if field == "uri" else frozenset({"exact"})):
            return field
        if field in {"headers", "queryParams"}:
            if not isinstance(value, Mapping):
                return field
            for name, condition in value.items():
                if not _is_one_of(condition, _VALUE):
                    return f"{field}.{name}"
    return ""


def _is_one_of(condition: Any, kinds: frozenset[str]) -> bool:
    return isinstance(condition, Mapping) and len(condition) == 1 and set(condition) <= kinds


def _matches(traffic: Traffic) -> Iterator[Problem]:
    for number, experiment in enumerate(traffic.experiments):
        for index, match in enumerate(experiment.match):
            path = f"spec.traffic.experiments[{number}].match[{index}]"
            misread = tuple(misread_parts(match))
            yield from (_problem(f"{path}.{part}" if part else path, text) for part, text in misread)
            part = untranslatable(match) if traffic.provider is Provider.GATEWAY_API and not misread else ""
            if part:
                yield _problem(
                    f"{path}.{part}",
                    "cannot be said by an HTTPRoute, which knows uri, method, headers and queryParams with one exact "
                    "or regex value each",
                )


def _ejection(traffic: Traffic) -> Iterator[Problem]:
    ejection = traffic.resilience.outlier_detection
    for name, value in (("interval", ejection.interval), ("ejectionTime", ejection.ejection_time)):
        if ejection.consecutive_errors and value.seconds < SHORTEST_DURATION:
            path = f"spec.traffic.resilience.outlierDetection.{name}"
            yield _problem(path, "must be at least 1ms; consecutiveErrors 0 turns ejection off")


def _delegate(traffic: Traffic) -> Iterator[Problem]:
    if not traffic.virtual_service.delegate:
        return
    for name, value in (("hosts", traffic.hosts), ("gateways", traffic.gateways)):
        if value:
            yield _problem(
                f"spec.traffic.{name}",
                "belong to the root VirtualService, which is yours with virtualService.delegate; leave them out here",
            )


def _rate(traffic: Traffic) -> Iterator[Problem]:
    rate = traffic.resilience.rate_limit.requests_per_second
    if 0 < rate < SLOWEST_RATE:
        text = f"must be 0, which sets no limit, or at least {SLOWEST_RATE}"
        yield _problem("spec.traffic.resilience.rateLimit.requestsPerSecond", text)


def _mirror(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    mirrored = spec.traffic.mirror.version
    live = {spec.served, *(experiment.version for experiment in spec.traffic.experiments)}
    if mirrored and spec.version(mirrored) is not None and mirrored not in live:
        yield _problem(
            "spec.traffic.mirror.version",
            f"{mirrored} has no pods to send copies to: serve it, or list it in spec.traffic.experiments with weight 0",
        )


def _problem(field: str, message: str) -> Problem:
    return Problem(field, "InvalidSpec", message)
