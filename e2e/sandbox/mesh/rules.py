"""DestinationRules: which subsets a host has and how its pods are reached."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from e2e.sandbox.mesh.names import Json, full_host, object_key

ROOT_NAMESPACE = "istio-system"


@dataclass(frozen=True)
class Subset:
    """A named share of a host's pods; `policy` overrides the rule's."""

    name: str
    labels: Mapping[str, str]
    policy: Json


@dataclass(frozen=True)
class Rule:
    """What all DestinationRules of one host say together."""

    policy: Json = field(default_factory=dict)
    subsets: tuple[Subset, ...] = ()

    def policy_for(self, subset: str, port: int) -> Json:
        """The traffic policy of a subset (empty: of the host) at a port.

        A subset overrides the rule by whole sections; a port's own settings replace all of them.
        """
        overrides = next((item.policy for item in self.subsets if item.name == subset), {})
        merged = {**self.policy, **overrides}
        for setting in merged.get("portLevelSettings", []):
            if setting.get("port", {}).get("number") == port:
                return dict(setting)
        return merged


def creation_order(item: Json) -> tuple[str, str]:
    """Sort key that puts the older object first, as istiod orders rules for one host."""
    namespace, name = object_key(item)
    return item["metadata"].get("creationTimestamp") or "", f"{name}.{namespace}"


class Rules:
    """The DestinationRules of the cluster, to be asked by host."""

    def __init__(self, destination_rules: Iterable[Json]) -> None:
        self._by_host: dict[tuple[str, str], Rule] = {}
        for item in sorted(destination_rules, key=creation_order):
            namespace, _ = object_key(item)
            spec = item.get("spec", {})
            key = namespace, full_host(spec.get("host", ""), namespace)
            self._by_host[key] = _merge(self._by_host.get(key), spec)

    def for_host(self, host: str, namespace: str) -> Rule:
        """The rule of a host whose Service lives in `namespace`: that namespace's own, else the root namespace's."""
        for owner in (namespace, ROOT_NAMESPACE):
            exact = self._by_host.get((owner, host))
            if exact is not None:
                return exact
            wildcards = [
                (len(pattern), rule)
                for (rule_namespace, pattern), rule in self._by_host.items()
                if rule_namespace == owner and pattern.startswith("*") and host.endswith(pattern[1:])
            ]
            if wildcards:
                return max(wildcards, key=lambda found: found[0])[1]
        return Rule()


def _merge(older: Rule | None, spec: Json) -> Rule:
    """Several rules for one host: the first says the policy, the others may only add subsets."""
    subsets = tuple(
        Subset(item["name"], item.get("labels") or {}, item.get("trafficPolicy") or {})
        for item in spec.get("subsets", [])
    )
    policy = spec.get("trafficPolicy") or {}
    if older is None:
        return Rule(policy, subsets)
    known = {subset.name for subset in older.subsets}
    added = tuple(subset for subset in subsets if subset.name not in known)
    return Rule(older.policy or policy, older.subsets + added)
