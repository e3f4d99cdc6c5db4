"""Where the server sends its traces: OpenTelemetry's own environment variables, so that user code finds them too."""

from collections.abc import Mapping

from slipway.api.revisions import Revision
from slipway.resources.identity import Identity

__all__ = ["tracing_environment"]


def tracing_environment(identity: Identity, revision: Revision) -> Mapping[str, str]:
    """The variables; none while tracing is off. Those of the pod itself are filled in by the kubelet."""
    tracing = revision.runtime.tracing
    if not tracing.endpoint:
        return {}
    attributes = {
        "service.version": revision.version.name,
        "slipway.revision": revision.name,
        "k8s.namespace.name": "$(POD_NAMESPACE)",
        "k8s.pod.name": "$(POD_NAME)",
        "k8s.node.name": "$(NODE_NAME)",
    }
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": tracing.endpoint,
        "OTEL_SERVICE_NAME": identity.name,
        "OTEL_RESOURCE_ATTRIBUTES": ",".join(f"{name}={value}" for name, value in attributes.items()),
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": f"{tracing.sample_ratio:.10g}",
    }
