"""Which revisions there are to be, from what they are rebuilt, and what their pods take."""

import re
from collections.abc import Mapping
from typing import Any

from slipway.api.observed import Observed
from slipway.api.revisions import Revision, revision_from_definition, revision_of, with_image, with_template
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Role
from slipway.api.versions import Runtime
from slipway.engine.pods import GPU_SUFFIX
from slipway.resources import Identity, RenderOptions, pod_template
from slipway.resources.engines import default_image
from slipway.rollout import ExperimentTarget

__all__ = ["experiment_targets", "gpus_per_pod", "lost_revisions", "revisions_to_keep", "with_losses"]

LOST = "RevisionLost"


def experiment_targets(
    name: str, raw_spec: Mapping[str, Any], spec: ModelDeploymentSpec
) -> tuple[ExperimentTarget, ...]:
    """The revisions that the experiments of a spec ask for."""
    return tuple(
        ExperimentTarget(
            version=experiment.version,
            revision=revision_of(name, raw_spec, experiment.version).name,
            weight=experiment.weight,
            matched=bool(experiment.match),
        )
        for experiment in spec.traffic.experiments
    )


def gpus_per_pod(observed: Observed, target: Revision) -> Mapping[str, int]:
    """GPUs of one pod by revision: as defined, else as seen on its pods."""
    known = {name: _from_definition(observed.name, name, item.data) for name, item in observed.definitions.items()}
    found = {name: _gpus(revision.runtime) for name, revision in (known | {target.name: target}).items()}
    for name, view in observed.revisions.items():
        if name not in found:
            found[name] = max((pod.gpus for pod in view.pods), default=0)
    return found


def _gpus(runtime: Runtime) -> int:
    """Whole GPUs of one pod, of whichever make; limits count, as for the scheduler."""
    limits = runtime.resources.get("limits") or runtime.resources.get("requests") or {}
    total = 0
    for resource, amount in limits.items() if isinstance(limits, Mapping) else ():
        if str(resource).endswith(GPU_SUFFIX) and re.fullmatch("[0-9]{1,9}", str(amount)):
            total += int(amount)
    return total


def revisions_to_keep(
    raw_spec: Mapping[str, Any],
    spec: ModelDeploymentSpec,
    status: ModelDeploymentStatus,
    observed: Observed,
    runtime_image: str,
) -> Mapping[str, Revision]:
    """Live revisions as they were made, and the newest others up to the history limit.

    A live revision whose stored definition is gone is made again from a version of the spec that is still the same; one
    that no version matches is lost and not among them.
    """
    live = {entry.revision for entry in status.versions}
    stored = sorted(observed.definitions.values(), key=lambda definition: definition.number, reverse=True)
    kept = [definition for definition in stored if definition.revision not in live]
    kept = kept[: spec.rollout.revision_history_limit]
    result: dict[str, Revision] = {}
    for definition in sorted(kept, key=lambda definition: definition.number):
        result[definition.revision] = _from_definition(observed.name, definition.revision, definition.data)
    described = {found.name: found for found in _described(observed.name, raw_spec, spec)}
    for name in sorted(live):
        known = observed.definitions.get(name)
        if known is not None:
            result[name] = _from_definition(observed.name, name, known.data)
        elif name in described:
            result[name] = _first_run(described[name], observed, runtime_image)
    return result


def _first_run(revision: Revision, observed: Observed, runtime_image: str) -> Revision:
    """A revision with what it keeps for life: the default image and the pod template of the day."""
    image = default_image(revision.runtime.engine, runtime_image)
    imaged = revision_from_definition(observed.name, with_image(revision.data, image))
    identity = Identity(observed.name, observed.namespace, observed.uid)
    template = pod_template(identity, imaged, RenderOptions(runtime_image=runtime_image))
    return revision_from_definition(observed.name, with_template(imaged.data, template))


def _described(name: str, raw_spec: Mapping[str, Any], spec: ModelDeploymentSpec) -> list[Revision]:
    return [revision_of(name, raw_spec, version.name) for version in spec.versions]


def _from_definition(owner: str, name: str, data: Mapping[str, Any]) -> Revision:
    """A stored definition under the name it was given, even where a later release would hash it differently."""
    revision = revision_from_definition(owner, data)
    return Revision(name=name, version=revision.version, runtime=revision.runtime, data=data)


def lost_revisions(status: ModelDeploymentStatus, revisions: Mapping[str, Revision]) -> frozenset[str]:
    """Live revisions that nothing describes any more: their objects stay as they are and cannot be changed.

    One that is on its way out and is to have no pods any more is not among them: it goes with its Deployment.
    """
    return frozenset(
        entry.revision
        for entry in status.versions
        if entry.revision not in revisions and (entry.role is not Role.RETIRING or entry.replicas > 0)
    )


def with_losses(status: ModelDeploymentStatus, lost: frozenset[str]) -> ModelDeploymentStatus:
    """Say of each lost revision that it is lost, and no longer of one that was found again."""
    if not lost and not any(entry.reason == LOST for entry in status.versions):
        return status
    message = "its definition was deleted and spec.versions has no equal one: its pods stay and cannot be changed"
    entries = []
    for entry in status.versions:
        if entry.revision in lost:
            entries.append(entry.model_copy(update={"reason": LOST, "message": message}))
        elif entry.reason == LOST:
            entries.append(entry.model_copy(update={"reason": "", "message": ""}))
        else:
            entries.append(entry)
    return status.model_copy(update={"versions": tuple(entries)})
