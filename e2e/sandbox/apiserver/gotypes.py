"""What the published schemas do not say of Kubernetes' Go types: which optional fields are pointers or plain structs.

The real server decodes an object into Go types and encodes it again. A zero value in an optional field that is no
pointer is lost on the way, and a plain struct or time is written out even when nothing was set. Fields are named
`Type.field`, the type without its package.
"""

from __future__ import annotations

import re


def _fields(type_name: str, names: str) -> set[str]:
    return {f"{type_name}.{name}" for name in names.split()}


POINTERS: frozenset[str] = frozenset().union(
    _fields("ObjectMeta", "deletionGracePeriodSeconds"),
    _fields("OwnerReference", "controller blockOwnerDeletion"),
    _fields("DeleteOptions", "gracePeriodSeconds orphanDependents propagationPolicy"),
    _fields("Preconditions", "uid resourceVersion"),
    _fields("PodSpec", "terminationGracePeriodSeconds activeDeadlineSeconds automountServiceAccountToken"),
    _fields("PodSpec", "shareProcessNamespace priority runtimeClassName enableServiceLinks preemptionPolicy"),
    _fields("PodSpec", "setHostnameAsFQDN hostUsers hostnameOverride"),
    _fields("Container", "restartPolicy"),
    _fields("ContainerStatus", "started"),
    _fields("SecurityContext", "privileged runAsUser runAsGroup runAsNonRoot readOnlyRootFilesystem"),
    _fields("SecurityContext", "allowPrivilegeEscalation procMount"),
    _fields("PodSecurityContext", "runAsUser runAsGroup runAsNonRoot fsGroup fsGroupChangePolicy"),
    _fields("PodSecurityContext", "supplementalGroupsPolicy seLinuxChangePolicy"),
    _fields("SeccompProfile", "localhostProfile"),
    _fields("Probe", "terminationGracePeriodSeconds"),
    _fields("GRPCAction", "service"),
    _fields("Lifecycle", "stopSignal"),
    _fields("Toleration", "tolerationSeconds"),
    _fields("TopologySpreadConstraint", "minDomains nodeAffinityPolicy nodeTaintsPolicy"),
    _fields("ConfigMapKeySelector", "optional"),
    _fields("SecretKeySelector", "optional"),
    _fields("ConfigMapEnvSource", "optional"),
    _fields("SecretEnvSource", "optional"),
    _fields("ConfigMapVolumeSource", "defaultMode optional"),
    _fields("SecretVolumeSource", "defaultMode optional"),
    _fields("ConfigMapProjection", "optional"),
    _fields("SecretProjection", "optional"),
    _fields("DownwardAPIVolumeSource", "defaultMode"),
    _fields("DownwardAPIVolumeFile", "mode"),
    _fields("ProjectedVolumeSource", "defaultMode"),
    _fields("ServiceAccountTokenProjection", "expirationSeconds"),
    _fields("KeyToPath", "mode"),
    _fields("HostPathVolumeSource", "type"),
    _fields("CSIVolumeSource", "readOnly fsType"),
    _fields("VolumeMount", "mountPropagation recursiveReadOnly"),
    _fields("EmptyDirVolumeSource", "sizeLimit"),
    _fields("ServicePort", "appProtocol"),
    _fields("ServiceSpec", "ipFamilyPolicy allocateLoadBalancerNodePorts loadBalancerClass"),
    _fields("ServiceSpec", "internalTrafficPolicy trafficDistribution"),
    _fields("ClientIPConfig", "timeoutSeconds"),
    _fields("LoadBalancerIngress", "ipMode"),
    _fields("ConfigMap", "immutable"),
    _fields("Secret", "immutable"),
    _fields("ServiceAccount", "automountServiceAccountToken"),
    _fields("PersistentVolumeClaimSpec", "storageClassName volumeMode volumeAttributesClassName"),
    _fields("DeploymentSpec", "replicas revisionHistoryLimit progressDeadlineSeconds"),
    _fields("DeploymentStatus", "collisionCount terminatingReplicas"),
    _fields("ReplicaSetSpec", "replicas"),
    _fields("ReplicaSetStatus", "terminatingReplicas"),
    _fields("StatefulSetSpec", "replicas revisionHistoryLimit"),
    _fields("StatefulSetStatus", "collisionCount"),
    _fields("RollingUpdateStatefulSetStrategy", "partition"),
    _fields("DaemonSetSpec", "revisionHistoryLimit"),
    _fields("PodDisruptionBudgetSpec", "unhealthyPodEvictionPolicy"),
    _fields("HorizontalPodAutoscalerSpec", "minReplicas targetCPUUtilizationPercentage"),
    _fields("HorizontalPodAutoscalerStatus", "observedGeneration currentCPUUtilizationPercentage"),
    _fields("MetricTarget", "averageUtilization value averageValue"),
    _fields("MetricValueStatus", "averageUtilization value averageValue"),
    _fields("HPAScalingRules", "stabilizationWindowSeconds selectPolicy tolerance"),
    _fields("EndpointPort", "name protocol port appProtocol"),
    _fields("EndpointConditions", "ready serving terminating"),
    _fields("Endpoint", "hostname nodeName zone"),
    _fields("EndpointAddress", "nodeName"),
    _fields("LeaseSpec", "holderIdentity leaseDurationSeconds leaseTransitions strategy preferredHolder"),
    _fields("CustomResourceDefinitionVersion", "deprecationWarning"),
    _fields("CustomResourceSubresourceScale", "labelSelectorPath"),
    _fields("PriorityClass", "preemptionPolicy"),
    _fields("NodeSpec", "doNotUseExternalID"),
    _fields("TokenRequestSpec", "expirationSeconds"),
)

STRUCTS: frozenset[str] = frozenset().union(
    _fields("PodTemplateSpec", "metadata spec"),
    _fields("DeploymentSpec", "strategy"),
    _fields("ReplicaSetSpec", "template"),
    _fields("StatefulSetSpec", "updateStrategy"),
    _fields("DaemonSetSpec", "updateStrategy"),
    _fields("Container", "resources"),
    _fields("EphemeralContainer", "resources"),
    _fields("ContainerStatus", "state lastState"),
    _fields("ServiceStatus", "loadBalancer"),
    _fields("Event", "source involvedObject regarding"),
    _fields("Endpoint", "conditions"),
    _fields("NodeStatus", "daemonEndpoints nodeInfo"),
    _fields("NodeDaemonEndpoints", "kubeletEndpoint"),
    _fields("PersistentVolumeClaimSpec", "resources"),
    _fields("CustomResourceDefinitionStatus", "acceptedNames"),
    _fields("SelfSubjectReviewStatus", "userInfo"),
)

REQUIRED_POINTERS: frozenset[str] = frozenset().union(
    _fields("DeploymentSpec", "selector"),
    _fields("ReplicaSetSpec", "selector"),
    _fields("StatefulSetSpec", "selector"),
    _fields("DaemonSetSpec", "selector"),
    _fields("CustomResourceDefinitionVersion", "schema"),
)

PLAIN_TIMES: frozenset[str] = frozenset().union(
    _fields("PodCondition", "lastProbeTime lastTransitionTime"),
    _fields("NodeCondition", "lastHeartbeatTime lastTransitionTime"),
    _fields("DeploymentCondition", "lastUpdateTime lastTransitionTime"),
    _fields("ReplicaSetCondition", "lastTransitionTime"),
    _fields("StatefulSetCondition", "lastTransitionTime"),
    _fields("DaemonSetCondition", "lastTransitionTime"),
    _fields("HorizontalPodAutoscalerCondition", "lastTransitionTime"),
    _fields("CustomResourceDefinitionCondition", "lastTransitionTime"),
    _fields("PersistentVolumeClaimCondition", "lastProbeTime lastTransitionTime"),
    _fields("NamespaceCondition", "lastTransitionTime"),
    _fields("ContainerStateRunning", "startedAt"),
    _fields("ContainerStateTerminated", "startedAt finishedAt"),
    _fields("Event", "firstTimestamp lastTimestamp eventTime deprecatedFirstTimestamp deprecatedLastTimestamp"),
    _fields("EventSeries", "lastObservedTime"),
    _fields("Condition", "lastTransitionTime"),
)

# Optional fields that Go writes out even when they are empty.
ALWAYS: dict[str, object] = {
    "io.k8s.api.core.v1.Event.reportingComponent": "",
    "io.k8s.api.core.v1.Event.reportingInstance": "",
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus.currentMetrics": None,
    "io.k8s.api.policy.v1.PodDisruptionBudgetStatus.disruptionsAllowed": 0,
    "io.k8s.api.policy.v1.PodDisruptionBudgetStatus.currentHealthy": 0,
    "io.k8s.api.policy.v1.PodDisruptionBudgetStatus.desiredHealthy": 0,
    "io.k8s.api.policy.v1.PodDisruptionBudgetStatus.expectedPods": 0,
    "io.k8s.api.rbac.v1.RoleRef.apiGroup": "",
    "io.k8s.api.rbac.v1.Role.rules": None,
    "io.k8s.api.rbac.v1.ClusterRole.rules": None,
    "io.k8s.api.discovery.v1.EndpointSlice.endpoints": None,
    "io.k8s.api.discovery.v1.EndpointSlice.ports": None,
    "io.k8s.api.authorization.v1.SubjectAccessReviewStatus.allowed": False,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus.conditions": None,
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus.storedVersions": None,
}

# Required fields with `omitempty` in Go: nothing is written when they are missing.
OMITTED: frozenset[str] = frozenset().union(
    _fields("CustomResourceDefinitionCondition", "reason"),
    _fields("PodDisruptionBudgetStatus", "disruptedPods"),
)

_PACKAGE = re.compile(r"^.*\.([A-Z][A-Za-z0-9]*)$")


def short(name: str) -> str:
    """`DeploymentSpec` for `io.k8s.api.apps.v1.DeploymentSpec`."""
    match = _PACKAGE.match(name)
    return match[1] if match else name
