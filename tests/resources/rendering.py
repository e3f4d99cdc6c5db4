"""Builders of what the renderer takes: small, complete, and varied by keyword."""

from collections.abc import Mapping
from typing import Any

from slipway.api.revisions import Revision, revision_of
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Role, VersionStatus, VersionWeight
from slipway.resources import Identity, RenderOptions, desired

IDENTITY = Identity("sentiment", "nlp", "11111111-2222-3333-4444-555555555555")
OPTIONS = RenderOptions(runtime_image="slipway-runtime:0.1.0")
HOST = "sentiment.nlp.svc.cluster.local"


def raw_spec(**changes: Any) -> dict[str, Any]:
    """A spec with the versions v1 and v2 on a claim, in its JSON form."""
    spec: dict[str, Any] = {
        "versions": [
            {"name": "v1", "uri": "pvc://models/sentiment/v1"},
            {"name": "v2", "uri": "file:///srv/models/v2", "sha256": "ab" * 32},
        ],
        "serve": "v1",
    }
    return spec | changes


def revisions_of(spec: Mapping[str, Any]) -> dict[str, Revision]:
    """Every version's revision by its name."""
    revisions = [revision_of(IDENTITY.name, spec, version["name"]) for version in spec["versions"]]
    return {revision.name: revision for revision in revisions}


def entry_of(revision: Revision, *, weight: int = 0, **fields: Any) -> VersionStatus:
    """A status entry with ready pods and a subset, unless said otherwise."""
    settings: dict[str, Any] = {"role": Role.STABLE, "replicas": 2, "ready_replicas": 2, "subset": True}
    return VersionStatus(
        name=revision.version.name,
        revision=revision.name,
        weight=VersionWeight(intended=weight),
        **(settings | fields),
    )


def render(
    spec: Mapping[str, Any],
    entries: tuple[VersionStatus, ...],
    *,
    numbers: Mapping[str, int] | None = None,
    options: RenderOptions = OPTIONS,
) -> tuple[dict[str, Any], ...]:
    """Render a spec with these live revisions."""
    typed = ModelDeploymentSpec.from_wire(spec)
    return desired(IDENTITY, typed, ModelDeploymentStatus(versions=entries), revisions_of(spec), options, numbers)


def canary(spec: Mapping[str, Any], stable: int = 75) -> tuple[VersionStatus, ...]:
    """v1 as stable and v2 as candidate, both routed."""
    first, second = revisions_of(spec).values()
    return (
        entry_of(first, weight=stable),
        entry_of(second, weight=100 - stable, role=Role.CANDIDATE, replicas=1, ready_replicas=1),
    )


def only(objects: tuple[dict[str, Any], ...], kind: str) -> dict[str, Any]:
    """The one object of a kind."""
    (found,) = (item for item in objects if item["kind"] == kind)
    return found


def of_kind(objects: tuple[dict[str, Any], ...], kind: str) -> list[dict[str, Any]]:
    """All objects of a kind."""
    return [item for item in objects if item["kind"] == kind]


def server_of(objects: tuple[dict[str, Any], ...], version: str = "v1") -> dict[str, Any]:
    """The server container of a version's pods."""
    template = template_of(objects, version)
    container: dict[str, Any] = next(item for item in template["spec"]["containers"] if item["name"] == "server")
    return container


def template_of(objects: tuple[dict[str, Any], ...], version: str = "v1") -> dict[str, Any]:
    """The pod template of a version."""
    template: dict[str, Any] = next(
        item["spec"]["template"]
        for item in of_kind(objects, "Deployment")
        if item["metadata"]["labels"]["slipway.dev/version"] == version
    )
    return template


def arguments_of(objects: tuple[dict[str, Any], ...], version: str = "v1") -> dict[str, str]:
    """The flags of a version's server with their values."""
    words = server_of(objects, version)["args"]
    assert words[0] == "serve"
    return dict(zip(words[1::2], words[2::2], strict=True))
