"""The documents of a file, sorted by what belongs together, and what became of each."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slipway.api.validation import validate
from slipway.conversion.deployment import convert_deployment, scales, selects
from slipway.conversion.inference_service import convert_inference_service
from slipway.conversion.ledger import Finding, Ledger, NotConvertibleError, Severity

__all__ = ["Conversion", "Converted", "convert"]

_BLOCKS = ("versions", "runtime", "traffic", "rollout", "autoscaling", "replicas")
_API_VERSIONS = {"InferenceService": "serving.kserve.io/v1beta1", "Deployment": "apps/v1"}


@dataclass(frozen=True, slots=True)
class Converted:
    """What became of one document."""

    kind: str
    name: str
    findings: tuple[Finding, ...]
    made: Mapping[str, Any] | None = None
    """The ModelDeployment; None where there is none, or where it came from the document before this one."""
    failed: bool = False
    """It should have become a ModelDeployment and could not."""

    @property
    def title(self) -> str:
        """Kind and name, for people."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Conversion:
    """What became of all documents."""

    documents: tuple[Converted, ...]

    @property
    def objects(self) -> tuple[Mapping[str, Any], ...]:
        """All ModelDeployments."""
        return tuple(document.made for document in self.documents if document.made is not None)

    @property
    def complete(self) -> bool:
        """Whether everything was converted, and means the same."""
        return not any(
            document.failed or finding.severity is not Severity.UNNEEDED
            for document in self.documents
            for finding in document.findings
        )


def convert(documents: Iterable[Any]) -> Conversion:
    """Convert the documents of a file; a List counts as what is in it, an empty document as nothing."""
    objects = list(_flat(documents))
    taken: set[int] = set()
    results: list[Converted] = []
    for number, obj in enumerate(objects):
        kind, group = _kind(obj), str(obj.get("apiVersion") or "")
        if kind == "InferenceService" and group.startswith("serving.kserve.io/"):
            results.append(_inference_service(obj))
        elif kind == "Deployment" and group.startswith("apps/"):
            scaler, services = _belonging(objects, obj, taken)
            results += _deployment(obj, scaler, services)
        else:
            continue
        taken.add(number)
    results += [_left(obj) for number, obj in enumerate(objects) if number not in taken]
    return Conversion(tuple(results))


def _flat(documents: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        if isinstance(document, Mapping) and isinstance(document.get("items"), list):
            yield from _flat(document["items"])
        elif isinstance(document, Mapping):
            yield document
        elif document is not None:
            yield {"kind": "something that is no object"}


def _kind(obj: Mapping[str, Any]) -> str:
    return str(obj.get("kind") or "object without kind")


def _name(obj: Mapping[str, Any]) -> str:
    return Ledger(obj).text("metadata", "name") or "without a name"


def _belonging(objects: list[Mapping[str, Any]], deployment: Mapping[str, Any], taken: set[int]) -> tuple[
    Ledger | None, list[Ledger]
]:  # fmt: skip
    scaler, services = None, []
    for number, obj in enumerate(objects):
        if number in taken:
            continue
        if scaler is None and _kind(obj) == "HorizontalPodAutoscaler" and scales(obj, deployment):
            scaler = Ledger(obj)
            taken.add(number)
        elif _kind(obj) == "Service" and selects(obj, deployment):
            services.append(Ledger(obj))
            taken.add(number)
    return scaler, services


def _inference_service(obj: Mapping[str, Any]) -> Converted:
    ledger = Ledger(obj)
    try:
        convert_inference_service(ledger)
        _accepted(ledger)
    except NotConvertibleError as reason:
        return _failed(obj, str(reason))
    return Converted(_kind(obj), _name(obj), ledger.findings(), _ordered(ledger.made))


def _deployment(obj: Mapping[str, Any], scaler: Ledger | None, services: list[Ledger]) -> Iterator[Converted]:
    ledger = Ledger(obj)
    beside = [*([scaler] if scaler is not None else []), *services]
    try:
        convert_deployment(ledger, scaler, services)
        _accepted(ledger, *beside)
    except NotConvertibleError as reason:
        yield _failed(obj, str(reason))
        yield from (_left(other.source) for other in beside)
        return
    yield Converted(_kind(obj), _name(obj), ledger.findings(), _ordered(ledger.made))
    for other in beside:
        for field in ("apiVersion", "kind", "metadata", "status"):
            other.settle(field)
        yield Converted(_kind(other.source), _name(other.source), other.findings())


def _accepted(ledger: Ledger, *beside: Ledger) -> None:
    """Take out of what was made what the API would refuse, and report it; raises where that cannot be taken out."""
    while problems := validate(ledger.made).problems:
        problem = problems[0]
        if not any(books.withdraw(problem.field, problem.message) for books in (ledger, *beside)):
            raise NotConvertibleError(f"{problem.field} {problem.message}")


def _ordered(made: Mapping[str, Any]) -> dict[str, Any]:
    """The blocks of the spec in the order of the reference."""
    spec = {block: made["spec"][block] for block in _BLOCKS if made["spec"].get(block) not in (None, {})}
    return {**made, "spec": spec}


def _failed(obj: Mapping[str, Any], reason: str) -> Converted:
    return Converted(_kind(obj), _name(obj), (Finding("", Severity.DROPPED, reason),), failed=True)


def _left(obj: Mapping[str, Any]) -> Converted:
    message = "is none of the kinds that are converted; apply it as it is, if it is still needed"
    if _kind(obj) == "HorizontalPodAutoscaler":
        message = "its Deployment is not in the input"
    elif _kind(obj) in _API_VERSIONS:
        version = obj.get("apiVersion")
        message = f"apiVersion must be {_API_VERSIONS[_kind(obj)]}{f', not {version}' if version else ''}"
    return Converted(_kind(obj), _name(obj), (Finding("", Severity.DROPPED, message),))
