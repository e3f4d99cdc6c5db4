"""What keeps a revision's pods from becoming ready, in words."""

from slipway.api.observed import PodView, RevisionView
from slipway.api.status import VersionStatus

__all__ = ["startup_failure", "startup_message"]

_FINAL_EXITS = {
    64: "BadArguments",
    65: "ArtefactRefused",
    66: "ArtefactNotFound",
}
"""Exit codes of the runtime that another try will not change (those of sysexits.h)."""

TRIES = 2
"""A final exit is believed when it was seen again after a restart."""


def startup_failure(view: RevisionView) -> tuple[str, str] | None:
    """A failure that waiting does not mend: the server refused its arguments or the artefact, and did so again."""
    for pod in view.pods:
        reason = _FINAL_EXITS.get(pod.exit_code or 0)
        if reason is not None and pod.restarts >= TRIES and not pod.ready:
            return reason, pod.message or f"the server of pod {pod.name} ended with exit code {pod.exit_code}"
    return None


def startup_message(entry: VersionStatus, view: RevisionView, needed: int) -> tuple[str, str]:
    """Reason and message of the wait for pods."""
    if view.failure:
        return "QuotaExceeded" if "quota" in view.failure else "ReplicaFailure", view.failure
    ready = f"{view.ready} of {needed} pods of {entry.name} are ready"
    for pod in view.pods:
        reason = _trouble(pod)
        if reason:
            return reason, f"{ready}; {pod.name}: {pod.message or reason}"
    if view.probe.reason == "GoldensMissing":
        return view.probe.reason, f"{ready}; {view.probe.message}"
    if view.ready >= needed:
        return "Verifying", f"{ready}; {view.probe.message or 'signature and goldens are being checked'}"
    # Nobody waits for those, but where a node refuses or evicts every one of them it has to be told.
    return "WaitingForPods", f"{ready}; {view.ended}" if view.ended else ready


def _trouble(pod: PodView) -> str:
    if pod.unschedulable:
        return "Unschedulable"
    if pod.failing:
        return _FINAL_EXITS.get(pod.exit_code or 0) or pod.waiting_reason
    if pod.terminated_reason and not pod.ready:
        return _FINAL_EXITS.get(pod.exit_code or 0) or pod.terminated_reason
    return ""
