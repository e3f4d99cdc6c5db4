"""Rules across fields, as the API server checks them: CEL expressions with their places in the schema.

:mod:`slipway.api.validation` checks the same rules by the same names for objects that are older than a rule and for
servers without CEL. Every list and string that a rule looks at is bounded in the schema, so that the server's cost
estimate stays far below its limit. The expressions need nothing beyond the CEL of Kubernetes 1.25: ascending order is
checked with a literal list of indexes.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["HASH_SUFFIX_LENGTH", "LABEL_LENGTH", "RULES", "TRANSITIONS", "Rule"]

Cause = Literal["FieldValueInvalid", "FieldValueRequired", "FieldValueForbidden", "FieldValueDuplicate"]

LABEL_LENGTH = 63
HASH_SUFFIX_LENGTH = 10
"""Characters of a revision's name beside the two names in it: two hyphens and eight hexadecimal digits."""

MAX_STEPS = 20


@dataclass(frozen=True, slots=True)
class Rule:
    """One ``x-kubernetes-validations`` entry."""

    name: str
    """Identity; the check of that name in :mod:`slipway.api.validation` is the same rule."""
    at: str
    """The place in the schema, such as ``spec.rollout.steps`` or ``spec.versions[].uri``; empty for the root."""
    expression: str
    message: str
    field_path: str = ""
    """The field to blame, relative to the place."""
    reason: Cause = "FieldValueInvalid"

    def to_wire(self) -> dict[str, str]:
        """The entry as the API server takes it."""
        entry = {"rule": self.expression, "message": self.message, "reason": self.reason}
        return entry | ({"fieldPath": self.field_path} if self.field_path else {})


_STEP_INDEXES = ", ".join(str(index) for index in range(MAX_STEPS - 1))

RULES: tuple[Rule, ...] = (
    Rule(
        "object-name",
        "",
        "self.metadata.name.matches('^[a-z][-a-z0-9]*$')",
        "metadata.name becomes the name of a Service: lower-case letters, digits and hyphens, first a letter",
    ),
    Rule(
        "revision-name-length",
        "",
        f"self.spec.versions.all(v, size(self.metadata.name) + size(v.name) + {HASH_SUFFIX_LENGTH} <= {LABEL_LENGTH})",
        "metadata.name and a version's name may have 53 characters together, "
        "since <name>-<version>-<hash> is a label of 63; shorten one of them",
    ),
    Rule(
        "serve-required",
        "spec",
        "size(self.versions) < 2 || (has(self.serve) && size(self.serve) > 0)",
        "must name the version wanted in production when there are two or more",
        ".serve",
        "FieldValueRequired",
    ),
    Rule(
        "serve-exists",
        "spec",
        "!has(self.serve) || size(self.serve) == 0 || self.versions.exists(v, v.name == self.serve)",
        "must be the name of an entry of spec.versions",
        ".serve",
    ),
    Rule(
        "approved-version-exists",
        "spec",
        "!has(self.rollout) || !has(self.rollout.approvedVersion) || size(self.rollout.approvedVersion) == 0 || "
        "self.versions.exists(v, v.name == self.rollout.approvedVersion)",
        "must be empty or the name of an entry of spec.versions",
        ".rollout.approvedVersion",
    ),
    Rule(
        "experiment-versions-exist",
        "spec",
        "!has(self.traffic) || !has(self.traffic.experiments) || "
        "self.traffic.experiments.all(e, self.versions.exists(v, v.name == e.version))",
        "every experiment must name an entry of spec.versions",
        ".traffic.experiments",
    ),
    Rule(
        "experiment-not-served",
        "spec",
        "!has(self.serve) || !has(self.traffic) || !has(self.traffic.experiments) || "
        "self.traffic.experiments.all(e, e.version != self.serve)",
        "an experiment is another version than the one served; remove the experiment to serve its version",
        ".traffic.experiments",
    ),
    Rule(
        "shadow-percent",
        "spec.rollout",
        "!has(self.strategy) || self.strategy != 'Shadow' || "
        "(has(self.shadow) && has(self.shadow.percent) && self.shadow.percent > 0)",
        "strategy Shadow compares answers to repeated requests: it needs a share of them above 0",
        ".shadow.percent",
    ),
    Rule(
        "mirror-version-exists",
        "spec",
        "!has(self.traffic) || !has(self.traffic.mirror) || !has(self.traffic.mirror.version) || "
        "size(self.traffic.mirror.version) == 0 || self.versions.exists(v, v.name == self.traffic.mirror.version)",
        "must be empty or the name of an entry of spec.versions",
        ".traffic.mirror.version",
    ),
    Rule(
        "none-cannot-split",
        "spec",
        "!has(self.traffic) || !has(self.traffic.provider) || self.traffic.provider != 'none' || "
        "(has(self.rollout) && has(self.rollout.strategy) && self.rollout.strategy in ['BlueGreen', 'Recreate'])",
        "must be BlueGreen or Recreate with spec.traffic.provider none, which cannot split traffic",
        ".rollout.strategy",
    ),
    Rule(
        "signature-source",
        "spec.versions[].signature",
        "(has(self.value) && size(self.value) > 0) != (has(self.uri) && size(self.uri) > 0)",
        "give the signature either as value or as uri",
    ),
    Rule(
        "uri-required",
        "spec",
        "(has(self.runtime) && has(self.runtime.engine) && self.runtime.engine == 'custom') || "
        "self.versions.all(v, has(v.uri) && size(v.uri) > 0)",
        "spec.versions[].uri is required, except with engine custom, whose image may hold the model",
        ".versions",
        "FieldValueRequired",
    ),
    Rule(
        "artefact-to-check",
        "spec.versions[]",
        "(has(self.uri) && size(self.uri) > 0) || (!has(self.signature) && "
        "(!has(self.sha256) || size(self.sha256) == 0) && (!has(self.storageSecret) || size(self.storageSecret) == 0))",
        "sha256, signature and storageSecret are about the artefact at uri: give it, or leave them out",
    ),
    Rule(
        "uri-shape",
        "spec.versions[].uri",
        "(!self.startsWith('pvc:') || self.matches('^pvc://[a-z0-9][-.a-z0-9]*/.+$')) && "
        "(!self.startsWith('file:') || self.startsWith('file:///'))",
        "must be pvc://CLAIM/path/in/the/volume or file:///absolute/path",
    ),
    Rule(
        "timeout-positive",
        "spec.runtime.limits.timeout",
        "self.matches('[1-9]')",
        "must be at least 1ms",
    ),
    Rule(
        "version-timeout-positive",
        "spec.versions[].runtime.limits.timeout",
        "self.matches('[1-9]')",
        "must be at least 1ms",
    ),
    Rule(
        "request-bytes-positive",
        "spec.runtime.limits.maxRequestBytes",
        "type(self) == int ? self > 0 : self.matches('[1-9]')",
        "must be at least one byte",
    ),
    Rule(
        "version-request-bytes-positive",
        "spec.versions[].runtime.limits.maxRequestBytes",
        "type(self) == int ? self > 0 : self.matches('[1-9]')",
        "must be at least one byte",
    ),
    Rule(
        "host-shape",
        "spec.traffic.hosts[]",
        r"self.matches('^([*][.])?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        "must be a DNS name in lower case, such as model.example.com, or a wildcard, such as *.example.com",
    ),
    Rule(
        "gateway-shape",
        "spec.traffic.gateways[]",
        r"self.matches('^([a-z0-9][-a-z0-9]*/)?[a-z0-9][-.a-z0-9]*$')",
        "must be NAMESPACE/NAME or NAME of an Istio Gateway",
    ),
    Rule(
        "jwt-issuer",
        "spec.traffic.auth.jwt",
        "(has(self.issuer) && size(self.issuer) > 0) || "
        "((!has(self.jwksUri) || size(self.jwksUri) == 0) && (!has(self.audiences) || size(self.audiences) == 0))",
        "is required where jwksUri or audiences are set",
        ".issuer",
        "FieldValueRequired",
    ),
    Rule(
        "progress-deadline-positive",
        "spec.rollout.progressDeadline",
        "self.matches('[1-9]')",
        "must be at least 1ms, or every rollout would fail at once",
    ),
    Rule(
        "weights-ascending",
        "spec.rollout.steps",
        f"[{_STEP_INDEXES}].all(i, i + 1 >= size(self) || self[i].weight < self[i + 1].weight)",
        "weights must ascend from step to step",
    ),
    Rule(
        "check-metric-or-query",
        "spec.rollout.analysis.checks[]",
        "has(self.metric) != (has(self.query) && size(self.query) > 0)",
        "a check has exactly one of metric and query",
    ),
    Rule(
        "latency-threshold",
        "spec.rollout.analysis.checks[]",
        "!has(self.metric) || self.metric != 'latency' || has(self.threshold)",
        "a latency check needs the time above which a request is a bad one, such as 300ms",
        ".threshold",
        "FieldValueRequired",
    ),
    Rule(
        "threshold-positive",
        "spec.rollout.analysis.checks[].threshold",
        "self.matches('[1-9]')",
        "must be at least 1ms",
    ),
    Rule(
        "quantile-range",
        "spec.rollout.analysis.checks[].quantile",
        "double(self) > 0.0 && double(self) < 1.0",
        'must lie between 0 and 1, such as "0.99"',
    ),
    Rule(
        "max-value-range",
        "spec.rollout.analysis.checks[].maxValue",
        "double(self) > 0.0 && double(self) < 1.0",
        'must lie between 0 and 1, such as "0.001"',
    ),
    Rule(
        "min-value-range",
        "spec.rollout.analysis.checks[].minValue",
        "double(self) > 0.0 && double(self) < 1.0",
        'must lie between 0 and 1, such as "0.99"',
    ),
    Rule(
        "query-bounds",
        "spec.rollout.analysis.checks[]",
        "!has(self.query) || size(self.query) == 0 || has(self.min) || has(self.max)",
        "a check with a query needs min or max, or both",
    ),
    Rule(
        "query-bounds-order",
        "spec.rollout.analysis.checks[]",
        "!has(self.min) || !has(self.max) || double(self.min) <= double(self.max)",
        "min must not exceed max",
        ".min",
    ),
    Rule(
        "shadow-share",
        "spec.rollout",
        "!has(self.analysis) || !has(self.analysis.checks) || "
        "!self.analysis.checks.exists(c, has(c.metric) && c.metric == 'shadowAgreement') || "
        "(has(self.shadow) && has(self.shadow.percent) && self.shadow.percent > 0)",
        "a shadowAgreement check needs a share of requests to repeat, shadow.percent above 0",
        ".shadow.percent",
        "FieldValueRequired",
    ),
    Rule(
        "interval-positive",
        "spec.rollout.analysis.interval",
        "self.matches('[1-9]')",
        "must be greater than zero",
    ),
    Rule(
        "replica-bounds",
        "spec.autoscaling",
        "self.minReplicas <= self.maxReplicas",
        "minReplicas (default 1) must not exceed maxReplicas (default 8)",
        ".minReplicas",
    ),
    Rule(
        "fallback-bound",
        "spec.autoscaling",
        "self.fallbackReplicas <= self.maxReplicas",
        "fallbackReplicas must not exceed maxReplicas (default 8)",
        ".fallbackReplicas",
    ),
    Rule(
        "qps-band",
        "spec.autoscaling.qps",
        "self.lower < self.upper",
        "lower (default 40) must be less than upper (default 80)",
        ".lower",
    ),
    Rule(
        "gpu-band",
        "spec.autoscaling.gpuUtilization",
        "self.lower < self.upper",
        "lower (default 20) must be less than upper (default 70)",
        ".lower",
    ),
)

_PROVIDER = "(has({0}.spec.traffic) && has({0}.spec.traffic.provider) ? {0}.spec.traffic.provider : 'istio')"

TRANSITIONS: tuple[Rule, ...] = (
    Rule(
        "provider-between-splits",
        "",
        f"{_PROVIDER.format('self')} == {_PROVIDER.format('oldSelf')} || "
        "!has(self.status) || !has(self.status.versions) || "
        "size(self.status.versions.filter(v, has(v.weight) && has(v.weight.intended) && v.weight.intended > 0)) < 2",
        "cannot change while versions share the traffic: end or abort the rollout, and set experiments to weight 0",
        ".spec.traffic.provider",
        "FieldValueForbidden",
    ),
)
"""Rules over a change, which an API server alone can check: the operator sees what is, not what was."""
