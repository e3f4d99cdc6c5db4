"""What the reasons of conditions, rollouts and versions mean, and what a person can do about them.

The reasons of scaling decisions and of checks explain themselves in ``slipway.scaling`` and ``slipway.analysis``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["REASONS", "Explanation"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A reason in words."""

    meaning: str
    remedy: str = ""
    """What to do, as a sentence or two; empty where it passes by itself or nothing is wrong."""


REASONS: Mapping[str, Explanation] = {
    "InvalidSpec": Explanation(
        "The spec breaks a rule of the API; what runs goes on as it is.",
        "Correct the fields that the message names.",
    ),
    "NotYetSupported": Explanation(
        "The spec asks for something that this release does not do; what runs goes on as it is.",
        "Remove the fields that the message names, or leave them at their defaults.",
    ),
    "Suspended": Explanation("spec.suspend is set, so nothing is changed.", "Set spec.suspend to false."),
    "Conflict": Explanation(
        "An object or host that is needed belongs to somebody else and is left untouched.",
        "Rename this ModelDeployment, or remove the object or host that the message names.",
    ),
    "NotStarted": Explanation("No version serves yet."),
    "FirstDeployment": Explanation("The first version starts and gets all traffic once it is ready."),
    "Starting": Explanation("Pods of the new version are being created."),
    "WaitingForPods": Explanation(
        "Pods are not ready yet.", "If it lasts: look at the pods with kubectl describe and kubectl logs."
    ),
    "Verifying": Explanation("The operator checks signature, digest and goldens of the new version."),
    "WaitingForCapacity": Explanation("More replicas must be ready before the weight may rise."),
    "Unschedulable": Explanation(
        "The scheduler finds no node for a pod.",
        "Add nodes or GPUs, lower resources, or lower maxReplicas; the message is the scheduler's.",
    ),
    "QuotaExceeded": Explanation("A quota of the namespace allows no more pods.", "Raise the ResourceQuota."),
    "ReplicaFailure": Explanation(
        "The API server refuses to create pods.", "Read the message: it is usually a policy or a limit."
    ),
    "ArtefactRefused": Explanation(
        "The server refused the artefact: wrong digest, unknown format, or a declaration that it does not keep.",
        "Correct sha256, format, inputs or outputs of the version, or publish the artefact again.",
    ),
    "ArtefactNotFound": Explanation("The artefact is not where uri says.", "Correct uri, or mount the volume."),
    "BadArguments": Explanation(
        "The server does not understand its arguments.",
        "Check runtime.args and whether the image belongs to this release of the operator.",
    ),
    "GoldensMissing": Explanation("The ConfigMap with the goldens cannot be read.", "Create the ConfigMap."),
    "GoldensInvalid": Explanation(
        "The goldens are not in the expected form.",
        "Correct the ConfigMap: each key holds a list of {request, response} of the Open Inference Protocol.",
    ),
    "GoldensFailed": Explanation(
        "The new version does not give the known answers.",
        "Find out whether model or goldens are wrong; the tolerance is goldens.tolerance. Then retry.",
    ),
    "SignatureMismatch": Explanation(
        "The loaded model has other inputs or outputs than the version declares.",
        "Correct inputs and outputs of the version, or the artefact. Then retry.",
    ),
    "DigestMismatch": Explanation(
        "The server has loaded another artefact than sha256 names.", "Correct sha256 or the artefact. Then retry."
    ),
    "ProbeFailed": Explanation(
        "The operator's own requests to a server got no proper answer.",
        "Look at the pod's log, and whether a NetworkPolicy, or a mesh with STRICT mutual TLS (docs/traffic.md), keeps "
        "the operator from the servers' HTTP port.",
    ),
    "CrashLoopBackOff": Explanation("The server keeps ending.", "Look at the pod's log (kubectl logs --previous)."),
    "ImagePullBackOff": Explanation("The image cannot be pulled.", "Correct runtime.image or the pull secret."),
    "StoppingStable": Explanation(
        "Strategy Recreate: stable's pods are stopped before the new version starts; requests fail until it is ready."
    ),
    "Swapping": Explanation("maxSurgeGPUs: pods of stable give their GPUs to pods of the candidate, one at a time."),
    "SurgeDeadlock": Explanation(
        "maxSurgeGPUs leaves no GPUs for the candidate without stopping stable.",
        "Raise rollout.maxSurgeGPUs, or choose strategy Recreate where an outage is acceptable. Then retry.",
    ),
    "SteppedDown": Explanation("The candidate was found harmful and went one step back; its evidence begins anew."),
    "StillHarmful": Explanation(
        "Ten windows after the step back the candidate is still as bad.",
        "Compare the two versions; publish a better one. `slipway retry` begins the same one anew.",
    ),
    "WatchingSwitch": Explanation(
        "All traffic was switched; hard breakers watch it for one interval before stable goes."
    ),
    "VerificationFailed": Explanation(
        "The new version's servers did not pass the operator's checks.", "Read the message, correct it, then retry."
    ),
    "RevisionLost": Explanation(
        "Nothing describes a live revision any more: its pods stay as they are and cannot be changed.",
        "Put the version back into spec.versions as it was, or roll out another one.",
    ),
    "ObservedDiffers": Explanation(
        "The shares that requests show are not those that the router holds.",
        "Look for clients outside the mesh and for many pinned requests; then at istiod.",
    ),
    "SetByRollout": Explanation("The rollout sets the number of replicas for now, within its bound on GPUs."),
    "Exposing": Explanation("The new version's subset is written to the router."),
    "StillServing": Explanation(
        "Requests still come to a version that has no weight any more. It goes when they end, or after five minutes "
        "or progressDeadline, whichever is shorter.",
        "If it lasts: look for clients that go past the mesh, or for a proxy that does not follow.",
    ),
    "SubsetSettling": Explanation("The router learns the new subset before any weight names it."),
    "Shifting": Explanation("A weight is written and waits to be confirmed."),
    "WaitingForMesh": Explanation(
        "The router does not hold the intended weights yet.", "If it lasts: look at istiod and the VirtualService."
    ),
    "MeshMissing": Explanation(
        "The API server does not know a kind that spec.traffic needs: Istio's, or Gateway API's HTTPRoute.",
        "Install what the message names, allow it with the operator's --apis, or choose another traffic.provider.",
    ),
    "DriftFight": Explanation(
        "Somebody else changes the routes again after every repair, so repairs are put off.",
        "Stop the other field manager that the message names.",
    ),
    "RouteRefused": Explanation(
        "A gateway does not accept the HTTPRoute, or the API server (often a webhook of the mesh) refuses a route, a "
        "rule or a policy: what the spec asks for is not in force.",
        "Read the message, which is theirs: a gateway may allow no routes of this namespace, or not serve a host; a "
        "setting of spec.traffic may be none that the mesh knows.",
    ),
    "WaitingForDeletion": Explanation(
        "Somebody has deleted an object of the operator's and something keeps it: nothing is written until it is gone.",
        "Find out who keeps it: the message names its finalizers. The operator makes it anew.",
    ),
    "NoRoute": Explanation("No route exists, since no version can serve yet."),
    "Applied": Explanation("The router holds the intended weights."),
    "Observing": Explanation("The weight is confirmed; hold and evidence run."),
    "NoChecks": Explanation("The comparison is turned off; only hard breakers watch the candidate."),
    "Holding": Explanation("The step's hold has not passed yet."),
    "Paused": Explanation("Somebody paused the rollout, or the step is a pause.", "`slipway resume` or `promote`."),
    "AwaitingPromotion": Explanation(
        "The rollout waits for approval.",
        "`slipway promote`, or name the version in rollout.approvedVersion; `slipway abort` goes back.",
    ),
    "Inconclusive": Explanation(
        "maxDuration has passed without a verdict.",
        "Give the candidate more traffic or time, or decide with `slipway promote` or `slipway abort`.",
    ),
    "CollectingEvidence": Explanation("Requests are counted and do not suffice for a verdict yet."),
    "EvidenceOfSafety": Explanation("There is evidence that the candidate is safe."),
    "HarmDetected": Explanation(
        "There is evidence that the candidate is worse than stable beyond the tolerated margin.",
        "Compare the two versions; publish a better one. `slipway retry` begins the same one anew.",
    ),
    "OutOfBounds": Explanation(
        "The value of a query was out of its bounds in two windows running.",
        "Look at the expression in Prometheus; correct the bounds, or the version. Then retry.",
    ),
    "WithinBounds": Explanation("The value of a query is within its bounds, which is no statistical evidence."),
    "NoHistogram": Explanation(
        "Requests are counted, but neither the servers nor the mesh measure how long they take.",
        "Have Prometheus scrape the proxies in front of the servers, or drop the latency check; see docs/engines.md.",
    ),
    "NoValue": Explanation(
        "A query of the analysis has no value that could be judged.",
        "Try the expression in Prometheus; it must have one value, so aggregate it, for example with sum().",
    ),
    "NoComparisons": Explanation(
        "Stable's servers have not compared any answer of the candidate yet.",
        "If it lasts: send requests; look at slipway_shadow_comparisons_total of stable's pods, whether the ConfigMap "
        "named after the ModelDeployment reached them, and whether a NetworkPolicy keeps them from the candidate.",
    ),
    "NoTraffic": Explanation("Nobody asks either version, so nothing can be compared.", "Send requests, or promote."),
    "NoCanaryTraffic": Explanation(
        "Stable is asked and the candidate is not, although it has weight.",
        "Check that clients go through the mesh, and the pods' sidecars.",
    ),
    "NoStableBaseline": Explanation("Stable is not asked, so there is nothing to compare with."),
    "MetricsUnavailable": Explanation(
        "Prometheus does not answer, or knows nothing of the pods.",
        "Check the operator's --prometheus-url and that the pods are scraped.",
    ),
    "MetricsStale": Explanation("The newest scrape is too old.", "Check Prometheus and the scrape of the pods."),
    "CrashLoop": Explanation("The candidate's server keeps ending.", "Look at the pod's log."),
    "OutOfMemory": Explanation("The candidate was ended for its memory.", "Raise resources.limits.memory."),
    "ImageError": Explanation("The candidate's image or configuration cannot be had.", "Correct runtime.image."),
    "ReadinessLost": Explanation("The candidate had ready pods with weight and has none now.", "Look at its pods."),
    "ErrorBurst": Explanation("At least half of the candidate's requests failed.", "Look at its log."),
    "ProgressDeadlineExceeded": Explanation(
        "A wait took longer than progressDeadline.", "Remove the cause that the message names, then `slipway retry`."
    ),
    "Promoting": Explanation("The candidate is sized for all traffic and gets it."),
    "Promoted": Explanation("The new version serves all traffic."),
    "RolledBack": Explanation(
        "The candidate was harmful; stable has all traffic again.",
        "Change spec.serve or the version; `slipway retry` begins the same one anew.",
    ),
    "Aborted": Explanation(
        "Somebody gave the rollout up; stable has all traffic again.", "Change spec.serve, or `slipway retry`."
    ),
    "Failed": Explanation(
        "The candidate never got as far as a verdict.", "Remove the cause that the message names, then `slipway retry`."
    ),
    "Superseded": Explanation("Another version was wanted before this one was promoted."),
    "Reverted": Explanation("spec.serve went back to the stable version."),
    "NoReadyPods": Explanation("The stable version has no ready pod.", "Look at its pods and their logs."),
    "NothingServes": Explanation("No version has both traffic and ready pods.", "Look at the pods and their logs."),
    "PartlyServing": Explanation(
        "Traffic goes to a version without a ready pod.", "Look at that version's pods and their logs."
    ),
    "Serving": Explanation("Requests are answered."),
    "Scheduled": Explanation("Every pod has found a place."),
    "NoRollout": Explanation("No rollout is under way."),
    "NotStalled": Explanation("Nothing needs a person."),
    "Ready": Explanation("The version wanted serves all traffic."),
    "StatusRecovered": Explanation("The status was lost and has been rebuilt from what runs."),
}
