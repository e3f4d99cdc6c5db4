"""Name, namespace, labels and annotations."""

import re
from collections.abc import Mapping

from slipway.conversion.ledger import Ledger, NotConvertibleError

__all__ = ["convert_metadata", "own_annotations"]

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,49}[a-z0-9])?")
_SERVER_SIDE = frozenset(
    [
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ]
)
_FOREIGN = ("serving.kserve.io/", "autoscaling.knative.dev/", "networking.knative.dev/", "networking.kserve.io/",
            "serving.knative.dev/", "autoscaling.keda.sh/", "deployment.kubernetes.io/")  # fmt: skip
_SETTLED = {
    "serving.kserve.io/deploymentMode": "Slipway has one mode",
    "serving.kserve.io/enable-prometheus-scraping": "model servers are always scraped",
    "networking.kserve.io/visibility": "without spec.traffic.hosts only the mesh reaches it",
    "networking.knative.dev/visibility": "without spec.traffic.hosts only the mesh reaches it",
    "deployment.kubernetes.io/revision": "counted by Kubernetes",
    "kubectl.kubernetes.io/last-applied-configuration": "kept by kubectl",
}
_SCALERS = {"none": "None", "external": "External"}


def convert_metadata(ledger: Ledger) -> None:
    """Metadata of the object; raises NotConvertibleError for a name that a ModelDeployment cannot have."""
    name = ledger.text("metadata", "name")
    if not _NAME.fullmatch(name):
        raise NotConvertibleError(
            "metadata.name: a ModelDeployment needs a DNS label of at most 51 characters that begins with a letter"
        )
    ledger.made |= {"apiVersion": "slipway.dev/v1alpha1", "kind": "ModelDeployment", "metadata": {}, "spec": {}}
    for field in ("apiVersion", "kind"):
        ledger.settle(field)
    ledger.move("metadata.name", "metadata", "name")
    if ledger.text("metadata", "namespace"):
        ledger.move("metadata.namespace", "metadata", "namespace")
    for field in ("labels", "annotations"):
        _copy_words(ledger, field)
    for field in ledger.table("metadata"):
        if field in _SERVER_SIDE:
            ledger.unneeded("written by the API server", "metadata", field)
        elif field in ("ownerReferences", "finalizers", "generateName"):
            ledger.dropped("belongs to the old object", "metadata", field)
    if ledger.get("status") is not None:
        ledger.unneeded("written by a controller", "status")


def _copy_words(ledger: Ledger, field: str) -> None:
    """Labels or annotations, without those that speak to other controllers."""
    kept: dict[str, str] = {}
    for key, value in ledger.table("metadata", field).items():
        path = ("metadata", field, key)
        if key in _SETTLED:
            ledger.unneeded(_SETTLED[key], *path)
        elif not isinstance(value, str):
            ledger.dropped("is no text", *path)
        elif str(key).startswith(_FOREIGN):
            ledger.dropped("speaks to another controller", *path)
        else:
            kept[key] = value
            ledger.settle(*path)
    if ledger.get("metadata", field) == {}:
        ledger.settle("metadata", field)
    if kept:
        ledger.set(f"metadata.{field}", kept)


def own_annotations(ledger: Ledger, component: tuple[str | int, ...]) -> None:
    """Annotations of KServe and Istio that say something Slipway has a field for; the component's own come first."""
    annotations: Mapping[str, object] = ledger.table("metadata", "annotations")
    path = ("metadata", "annotations", "serving.kserve.io/autoscalerClass")
    scaler = annotations.get(path[-1])
    if isinstance(scaler, str) and scaler in _SCALERS:
        ledger.place("spec.autoscaling.mode", _SCALERS[scaler], *path)
        ledger.partly("spec.replicas, or what sets it, decides from now on", *path)
    elif scaler is not None:
        ledger.partly("Slipway scales by itself", *path)
    injected = ("metadata", "annotations", "sidecar.istio.io/inject")
    if isinstance(annotations.get(injected[-1]), str):
        ledger.made["metadata"].get("annotations", {}).pop(injected[-1], None)
        words = {injected[-1]: annotations[injected[-1]], **ledger.table(*component, "annotations")}
        if words[injected[-1]] != annotations[injected[-1]]:
            ledger.dropped("the predictor says otherwise", *injected)
            return
        ledger.place("spec.runtime.podTemplate.metadata.annotations", words, *injected)
