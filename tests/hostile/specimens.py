"""ModelDeployments made from the CRD's own schema: of every shape that it allows, with contents that mean harm."""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from slipway.api.schema import crd

from e2e.sandbox.apiserver import customs, values
from e2e.sandbox.apiserver.cel.rules import compile_schema
from e2e.sandbox.apiserver.definitions import object_meta
from e2e.sandbox.apiserver.failures import Cause
from e2e.sandbox.apiserver.schema import from_custom

SCHEMA: dict[str, Any] = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC: dict[str, Any] = SCHEMA["properties"]["spec"]
STATUS: dict[str, Any] = SCHEMA["properties"]["status"]

HOSTILE: tuple[str, ...] = (
    "", " ", "a\nb", "a\r\nSet-Cookie: x=1", "\x00", "\x1b[31m", "\u202e", "\u200b", "e\u0301", "\u00e9", "\ufeff",
    "\U0001f600", "\x85", "\u2028", '"', '"} or vector(1) #', "{{version}}", "{{ namespace }}", "{{revision}}{{name}}",
    "$(id)", "$(POD_IP)", "`id`", "; rm -rf /", "../../etc/passwd", "{__name__=~'.+'}", "%00", "%(x)s", "{x!r}",
    "' or 1=1 --", "<script>", "true", "null", "1e999", "-0", "yes", "a" * 300, "\\", "*", ".*", "-", "--privileged",
    "http://169.254.169.254/latest", "kubernetes.io/x", "slipway.dev/version", "__proto__", "x-slipway-shadow",
)  # fmt: skip
"""Texts that end up in labels, headers, queries, paths, terminals and YAML where somebody was careless."""

PLAUSIBLE: dict[str, tuple[Any, ...]] = {
    "uri": ("file:///m", "pvc://claim/a/b", "s3://bucket/key", "models:/m/1", "file:///../../etc", "hf://org/model"),
    "cron": ("0 8 * * 1-5", "*/5 * * * *", "61 * * * *", "* * * *"),
    "timezone": ("UTC", "Europe/Berlin", "../../etc/passwd", "Mars/Olympus"),
    "hosts": ("m.example.com", "*.example.com", "a..b", "xn--e1afmkfd.example", "münchen.example"),
    "gateways": ("gw", "istio-system/gw", "a/b/c"),
    "image": ("img:1", "img@sha256:" + "0" * 64),
    "configMap": ("goldens", "Goldens"),
    "resources": (
        {"limits": {"nvidia.com/gpu": 1}},
        {"limits": {"cpu": "1", "memory": "1Gi"}},
        {"limits": {"cpu": -1}},
        {"limits": {"nvidia.com/gpu": "all"}},
        {"limits": 5},
        {"limits": {"nvidia.com/gpu": "²"}},
        {"limits": {"nvidia.com/gpu": "9" * 5000}},
        {"limits": None},
        {"requests": {"cpu": {}}},
        {"limits": {"nvidia.com/gpu": 10**30}},
    ),
    "podTemplate": (
        {"spec": {"tolerations": [{"operator": "Exists"}]}},
        {"spec": {"containers": [{"name": "log", "image": "log:1"}]}},
        {"spec": {"containers": 5}},
        {"spec": "x"},
        {"spec": {"containers": "x"}},
        {"spec": {"containers": [{"name": "server", "ports": 5}]}},
        {"spec": {"containers": [5]}},
        {"spec": {"containers": [{"name": "server", "env": [{"name": ["x"]}]}]}},
        {"spec": {"containers": [{"name": {"a": 1}}]}},
        {"spec": {"volumes": [{"name": None}]}},
        {"spec": None},
        {"metadata": None},
        {"metadata": {"labels": None}},
        {"metadata": {"labels": {"slipway.dev/version": "other"}}},
        {"metadata": {"annotations": 5}},
        {"metadata": [], "spec": "x"},
    ),
    "valueFrom": ({"secretKeyRef": {"name": "s", "key": "k"}}, {}, {"fieldRef": 5}),
    "match": (
        {"headers": {"x-user": {"exact": "a"}}},
        {"headers": {"x-user": {"regex": "(" * 20}}},
        {"headers": {"a\nb": {"exact": "x"}}},
        {"headers": 5},
        {"uri": {"prefix": "/"}},
        {"port": 9000},
        {"port": "x"},
        {"name": "other"},
        {},
    ),
}
"""By the name of a field: values somebody may write there, good and bad."""
MOMENTS = (
    "", "2025-12-31T23:00:00Z", "2026-01-01T00:00:00.5Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00", "9999-12-31T23:59:59-14:00", "1970-01-01", "now",
)  # fmt: skip
MOMENT = re.compile("^at$|(At|Time|evidenceFrom|window|deadline)$")
"""Names of fields of status that hold times."""


_DIGITS = "9" * 31
MATCHING: dict[str, tuple[str, ...]] = {
    r"^(True|False|Unknown)$": ("True", "False", "Unknown"),
    r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$": (
        "0s",
        "0.0001ms",
        "30s",
        "1h30m",
        "8784h",
        "9999d",
        "1m" * 16,
        f"{_DIGITS}d",
    ),
    r"^([0-9a-f]{64})?$": ("", "0" * 64, "ab" * 32),
    r"^((file|pvc|s3|gs|https|hf|oci|models)://?.+)?$": (
        "",
        "https://a/b c?d#e",
        "s3:/x",
        "file:///\u202e",
        "oci://[::1]:1/x",
    ),
    r"^(https?://[^/?#@\s][^?#@\s]*)?$": ("", "http://c:4318", "https://$(id)", "http://[::1", 'http://"'),
    r"^-?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?$": ("0", "-0", "0.5", "1e999", "1e-999", "-1e308", _DIGITS, "007"),
    r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E|m)?$": ("0", "1m", "0.1Mi", "64Mi", f"{_DIGITS}E", "1.5Ki"),
    r"^[A-Za-z0-9_-]*$": ("", "-", "_", "a" * 128, "__Host-x", "0"),
    r"^[a-z0-9-]*$": ("", "-", "x-model-version", "host", "a" * 128, "cookie", "content-length"),
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": ("v1", "v2", "0", "1-2", "a--b", "default", "x" * 40, "true", "null"),
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$": ("", "a", "a..b", "x.y-z", "0", "a" * 253),
    r"^[-._a-zA-Z0-9]*$": ("", "..", "key.pem", "-", "a" * 253),
    r"^\S*$": ("", "a:b", "\x1b[31m", "\u202e", "--privileged", "a" * 1024),
    r"^[a-z0-9][a-z0-9-]*$": ("5xx", "reset", "503", "a-", "x" * 64),
    r"^[a-zA-Z0-9-]*$": ("", "-", "Host", "X-Tenant", "a" * 128, "Content-Length"),
}
"""By pattern of the schema: texts that match it, as far from the usual as it lets them be. A new pattern needs some."""


@dataclass
class Author:
    """Writes values that a schema allows, by chance; equal seeds write the same."""

    dice: Random
    fill: float = 0.25
    """Share of the optional fields that are written."""
    readable: bool = False
    """Whether times are times and numbers finite."""

    def anything(self, schema: Mapping[str, Any], name: str = "") -> Any:
        """A value for the field called ``name``."""
        if "enum" in schema:
            return self.dice.choice(schema["enum"])
        if "x-kubernetes-int-or-string" in schema:
            return self.dice.randint(0, 2**40) if self.dice.random() < 0.3 else self._text(schema, name)
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            known = copy.deepcopy(self.dice.choice(PLAUSIBLE.get(name, ({},))))
            return known if self.dice.random() < 0.7 else {self.dice.choice(HOSTILE): self.junk(2)}
        match schema.get("type"):
            case "object":
                return self.object(schema)
            case "array":
                return self._list(schema, name)
            case "string":
                return self._text(schema, name)
            case "integer" | "number":
                return self._number(schema)
        return self.dice.random() < 0.5

    def object(self, schema: Mapping[str, Any], fill: float | None = None) -> dict[str, Any]:
        """An object with its required fields and some of the others."""
        required, share = schema.get("required", ()), self.fill if fill is None else fill
        return {
            name: self.anything(below, name)
            for name, below in schema["properties"].items()
            if name in required or self.dice.random() < share
        }

    def junk(self, depth: int) -> Any:
        """JSON of no shape."""
        below = (lambda: [self.junk(depth - 1)], lambda: {self.dice.choice(HOSTILE): self.junk(depth - 1)})
        flat = (lambda: None, lambda: True, lambda: self.dice.randint(-(2**40), 2**40), lambda: self.hostile())
        return self.dice.choice((*flat, *below) if depth else flat)()

    def hostile(self) -> str:
        """A text that means harm."""
        return self.dice.choice(HOSTILE)

    def _number(self, schema: Mapping[str, Any]) -> float:
        whole = schema["type"] == "integer"
        low = schema.get("minimum", -(2**31) if whole else -1e300)
        high = schema.get("maximum", (2**31 - 1 if schema.get("format") == "int32" else 2**53) if whole else 1e300)
        if schema.get("exclusiveMinimum"):
            low += 1 if whole else 1e-9
        if self.dice.random() < 0.3:
            return float(self.dice.choice((low, high))) if not whole else int(self.dice.choice((low, high)))
        near = min(high, max(low, 0) + 100)
        return self.dice.randint(int(low), int(near)) if whole else self.dice.uniform(low, near)

    def _list(self, schema: Mapping[str, Any], name: str) -> list[Any]:
        most = min(schema.get("maxItems", 3), 3)
        items = [self.anything(schema["items"], name) for _ in range(self.dice.randint(min(most, 1), most))]
        keys = schema.get("x-kubernetes-list-map-keys")
        if keys:
            return list({tuple(item[key] for key in keys): item for item in items}.values())
        return list(dict.fromkeys(items)) if schema.get("x-kubernetes-list-type") == "set" else items

    def _text(self, schema: Mapping[str, Any], name: str) -> str:
        longest, least = schema.get("maxLength", 64), schema.get("minLength", 0)
        if name == "uri" and self.dice.random() < 0.8:
            return str(self.dice.choice(PLAUSIBLE["uri"]))
        if "pattern" in schema:
            texts = [text for text in MATCHING[schema["pattern"]] if least <= len(text) <= longest]
            return self.dice.choice([text for text in texts if not self.readable or text != "1e999"])
        chance = self.dice.random()
        if MOMENT.search(name) and (self.readable or chance < 0.95):
            return self.dice.choice(MOMENTS[:-1] if self.readable else MOMENTS)
        if name in PLAUSIBLE and chance < 0.7:
            return str(self.dice.choice(PLAUSIBLE[name]))
        text = self.dice.choice(("a", "x" * longest)) if chance < 0.2 else self.hostile()[:longest]
        return text if len(text) >= least else "a"


def spec_of(seed: int) -> dict[str, Any]:
    """A spec by the schema. Most are made to keep the rules across fields, so that they are accepted."""
    author = Author(Random(seed))
    spec = author.object(SPEC, fill=0.4)
    if author.dice.random() < 0.9:
        _mend(author, spec)
    return spec


def _mend(author: Author, spec: dict[str, Any]) -> None:
    """Make the parts fit each other."""
    names = [version["name"] for version in spec["versions"]]
    spec["serve"] = author.dice.choice(names)
    others = [name for name in names if name != spec["serve"]]
    rollout, traffic = spec.get("rollout", {}), spec.get("traffic", {})
    if traffic.get("experiments"):
        fitting = zip(traffic["experiments"], others, strict=False)
        traffic["experiments"] = [item | {"version": name} for item, name in fitting]
    if "mirror" in traffic:
        traffic["mirror"]["version"] = author.dice.choice(names)
    if traffic.get("provider") == "none":
        rollout = spec.setdefault("rollout", {})
        rollout["strategy"] = author.dice.choice(["BlueGreen", "Recreate"])
    for name in ("hosts", "gateways"):
        if name in traffic and author.dice.random() < 0.8:
            traffic[name] = [PLAUSIBLE[name][0]]
    _mend_rollout(author, rollout, names)
    for version in spec["versions"]:
        _mend_artefact(version, spec.get("runtime", {}).get("engine") == "custom")
        if "signature" in version:
            version["signature"] = version["signature"] | {"value": "c2ln", "uri": ""}
    _mend_bounds(spec.get("autoscaling", {}))
    _mend_zeros(spec)


def _mend_artefact(version: dict[str, Any], custom: bool) -> None:
    """Custom servers alone do without one, and then there is nothing to check."""
    if not version.get("uri") and not custom:
        version["uri"] = PLAUSIBLE["uri"][0]
    if not version.get("uri"):
        for name in ("sha256", "signature", "storageSecret"):
            version.pop(name, None)


def _mend_zeros(spec: dict[str, Any]) -> None:
    """Nothing is nothing where something is needed."""
    for runtime in (spec.get("runtime", {}), *(version.get("runtime", {}) for version in spec["versions"])):
        runtime.get("limits", {}).pop("timeout", None)
        runtime.get("limits", {}).pop("maxRequestBytes", None)
    spec.get("rollout", {}).pop("progressDeadline", None)
    jwt = spec.get("traffic", {}).get("auth", {}).get("jwt", {})
    if jwt:
        jwt["issuer"] = jwt.get("issuer") or "https://issuer.example.com"


def _mend_rollout(author: Author, rollout: dict[str, Any], names: list[str]) -> None:
    steps = {step["weight"]: step for step in rollout.get("steps", ())}
    if steps:
        rollout["steps"] = [steps[weight] for weight in sorted(steps)]
    if rollout.get("approvedVersion"):
        rollout["approvedVersion"] = author.dice.choice(names)
    for check in rollout.get("analysis", {}).get("checks", ()):
        _mend_check(author, check)
    checks = rollout.get("analysis", {}).get("checks", ())
    compares = any(check.get("metric") == "shadowAgreement" for check in checks)
    if rollout.get("strategy") == "Shadow" or compares:
        rollout["shadow"] = rollout.get("shadow", {}) | {"percent": 10}


def _mend_check(author: Author, check: dict[str, Any]) -> None:
    if check.get("query"):
        check.pop("metric", None)
        check.pop("threshold", None)
        check |= {"min": "-1", "max": "1"}
    else:
        check["metric"] = check.get("metric", "errorRate")
        check.pop("query", None)
        check["threshold"] = "300ms"
        check.pop("min", None)
    for name in ("quantile", "maxValue", "minValue"):
        if name in check:
            check[name] = author.dice.choice(["0.5", "0.0000001", "9e-3", "0.9999999999999"])


def _mend_bounds(scaling: dict[str, Any]) -> None:
    low, high = scaling.get("minReplicas", 1), scaling.get("maxReplicas", 8)
    if low > high:
        scaling["minReplicas"], scaling["maxReplicas"] = high, low
    if scaling.get("fallbackReplicas", 0) > max(low, high):
        scaling["fallbackReplicas"] = 0
    for name in ("qps", "gpuUtilization"):
        if name in scaling:
            scaling[name].pop("lower", None)
            scaling[name].pop("upper", None)


def model_deployment(spec: Mapping[str, Any], name: str = "sentiment", **more: Any) -> dict[str, Any]:
    """An object with that spec, as a user sends it."""
    metadata = {"namespace": "nlp", "name": name, "uid": "u-1", "resourceVersion": "7", "generation": 1}
    head = {"apiVersion": "slipway.dev/v1alpha1", "kind": "ModelDeployment", "metadata": metadata}
    return {**head, "spec": dict(spec), **more}


class Gate:
    """What the API server makes of an object: schema, defaults, pruning and CEL rules, in this process."""

    def __init__(self) -> None:
        self._schema = from_custom(SCHEMA, object_meta())
        self._rules = compile_schema(self._schema)

    def admit(self, sent: Mapping[str, Any]) -> tuple[dict[str, Any], list[Cause]]:
        """The object as it would be stored, and what is wrong with it."""
        stored, _ = customs.decode(self._schema, dict(sent), "ModelDeployment")
        causes = values.validate(self._schema, stored) + values.duplicates(self._schema, stored)
        return stored, causes or self._rules.check(stored, None)
