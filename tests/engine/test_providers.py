"""Reading back what providers beside Istio hold, and who else claims a host of an HTTPRoute."""

from typing import Any

import pytest
from slipway.api.traffic import Provider
from slipway.engine.claims import claimed_by_routes
from slipway.engine.routes import missing_kinds, provider_named, traffic_view
from slipway.kube.cache import Cache
from slipway.kube.drift import DriftLedger
from slipway.kube.kinds import (
    AUTHORIZATION_POLICY,
    ENVOY_FILTER,
    HTTP_ROUTE,
    REQUEST_AUTHENTICATION,
    SERVICE,
    VIRTUAL_SERVICE,
    Kind,
)
from slipway.kube.metadata import Key

KEY = Key("nlp", "sentiment")
HOST, GATEWAY = "sentiment.example.com", "edge/public"
OPEN = [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}]


class Held:
    """A cache with routes and Services in it."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.version = 0

    def add(self, kind: Kind, name: str, uid: str = "uid-m", created: str = "05", revision: str = "", **spec: Any):
        self.version += 1
        owner = {"apiVersion": "slipway.dev/v1alpha1", "kind": "ModelDeployment", "name": "other", "uid": uid}
        labels = {"app.kubernetes.io/managed-by": "slipway", "slipway.dev/model-deployment": "sentiment"}
        self.cache.put(
            kind,
            {
                "apiVersion": kind.api_version,
                "kind": kind.name,
                "metadata": {
                    "namespace": "nlp",
                    "name": name,
                    "uid": f"{kind.name}-{name}",
                    "resourceVersion": str(self.version),
                    "creationTimestamp": f"2026-01-{created}T00:00:00Z",
                    "ownerReferences": [owner | {"controller": True}],
                    "labels": labels | ({"slipway.dev/revision": revision} if revision else {}),
                },
                "spec": spec,
            },
        )

    def view(self, provider: Provider):
        return traffic_view(self.cache, DriftLedger(), KEY, "uid-m", provider)

    def claim(self) -> str:
        return claimed_by_routes(self.cache, KEY, "uid-m", [HOST], [GATEWAY])


@pytest.fixture
def held() -> Held:
    return Held()


def backend(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "Service", "name": name, **more}


def test_weights_of_an_http_route_are_those_of_the_rule_that_takes_everything(held):
    pin = {"matches": [{"headers": [{"name": "x-model-version", "value": "v2"}]}], "backendRefs": [backend("b")]}
    both = {**OPEN[0], "backendRefs": [backend("a", weight=75), backend("b", weight=25), backend("c", weight=0)]}
    held.add(HTTP_ROUTE, "sentiment", rules=[pin, both])
    for name in ("a", "b", "c"):
        held.add(SERVICE, name, revision=name)
    held.add(SERVICE, "sentiment", selector={"slipway.dev/revision": "a"})
    view = held.view(Provider.GATEWAY_API)
    assert view.exists
    assert view.weights == {"a": 75, "b": 25, "c": 0}
    assert view.subsets == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("backends", "weights"),
    [
        ([backend("a")], {"a": 100}),
        ([backend("a"), backend("b")], {"a": 50, "b": 50}),
        ([backend("a", weight=3000), backend("b", weight=1000)], {"a": 75, "b": 25}),
        ([backend("a", weight=0), backend("b", weight=0)], {"a": 0, "b": 0}),
        ([], {}),
    ],
)
def test_whatever_stands_there_is_a_share_of_a_hundred(held, backends, weights):
    """A weight above 100 in status would be refused, and the edit never repaired."""
    held.add(HTTP_ROUTE, "sentiment", rules=[{"backendRefs": backends}])
    assert held.view(Provider.GATEWAY_API).weights == weights


def test_foreign_weights_of_a_virtual_service_are_shares_as_well(held):
    shares = [{"destination": {"subset": "a"}, "weight": 300}, {"destination": {"subset": "b"}, "weight": 100}]
    held.add(VIRTUAL_SERVICE, "sentiment", http=[{"name": "default", "route": shares}])
    assert held.view(Provider.ISTIO).weights == {"a": 75, "b": 25}


def test_without_a_provider_the_selector_says_who_gets_everything(held):
    held.add(SERVICE, "sentiment", selector={"slipway.dev/model-deployment": "sentiment", "slipway.dev/revision": "a"})
    held.add(SERVICE, "a", revision="a")
    view = held.view(Provider.NONE)
    assert (view.exists, view.weights, view.subsets) == (True, {"a": 100}, {"a"})
    held.add(SERVICE, "sentiment", selector={"slipway.dev/model-deployment": "sentiment"})
    assert held.view(Provider.NONE).weights == {}


def test_a_gateway_that_does_not_take_the_route_is_quoted(held):
    def refused(generation: int) -> dict[str, Any]:
        text = {"reason": "NotAllowedByListeners", "message": "no listener takes routes of nlp"}
        condition = {"type": "Accepted", "status": "False", "observedGeneration": generation, **text}
        return {"parents": [{"parentRef": {"name": "public"}, "conditions": [condition]}]}

    held.add(HTTP_ROUTE, "sentiment", rules=OPEN)
    route = dict(held.cache.get(HTTP_ROUTE, KEY) or {})
    for version, generation, told in (
        ("10", 1, ""),
        ("11", 2, "a gateway does not take the route: public: NotAllowedByListeners: no listener"),
    ):
        metadata = {**route["metadata"], "resourceVersion": version, "generation": 2}
        held.cache.put(HTTP_ROUTE, {**route, "metadata": metadata, "status": refused(generation)})
        assert held.view(Provider.GATEWAY_API).refusal.startswith(told)
        assert bool(held.view(Provider.GATEWAY_API).refusal) is bool(told)


@pytest.mark.parametrize("provider", list(Provider))
def test_objects_of_others_are_not_read(held, provider):
    held.add(HTTP_ROUTE, "sentiment", uid="uid-else", rules=[{"backendRefs": [backend("a")]}])
    held.add(SERVICE, "sentiment", uid="uid-else", selector={"slipway.dev/revision": "a"})
    held.add(SERVICE, "a", uid="uid-else", revision="a")
    view = held.view(provider)
    assert (view.exists, view.weights, view.subsets) == (False, {}, frozenset())


@pytest.mark.parametrize(
    ("spec", "missing"),
    [
        ({}, ()),
        ({"traffic": {"provider": "gateway-api"}}, ("HTTPRoute",)),
        ({"traffic": {"provider": "none"}}, ()),
        ({"traffic": {"auth": {"jwt": {"issuer": "x"}}}}, ("RequestAuthentication", "AuthorizationPolicy")),
        ({"traffic": {"resilience": {"rateLimit": {"requestsPerSecond": 1}}}}, ("EnvoyFilter",)),
        ({"traffic": {"auth": "x", "resilience": []}}, ()),
    ],
)
def test_kinds_are_missed_only_where_they_are_needed(held, spec, missing):
    for kind in (HTTP_ROUTE, REQUEST_AUTHENTICATION, AUTHORIZATION_POLICY, ENVOY_FILTER):
        held.cache.unserved(kind)
    assert missing_kinds(held.cache, spec) == missing


@pytest.mark.parametrize("spec", [{}, {"traffic": None}, {"traffic": {"provider": "linkerd"}}, {"traffic": []}])
def test_an_invalid_provider_is_read_as_the_default(spec):
    assert provider_named(spec) is Provider.ISTIO


def claimant(held: Held, created: str = "01", rules: Any = OPEN, host: str = HOST, **parent: Any) -> None:
    ref = {"name": "public", "namespace": "edge", **parent}
    held.add(HTTP_ROUTE, "theirs", "uid-else", created, hostnames=[host], parentRefs=[ref], rules=rules)


def ours(held: Held, created: str = "05") -> None:
    ref = {"name": "public", "namespace": "edge"}
    held.add(HTTP_ROUTE, "sentiment", "uid-m", created, hostnames=[HOST], parentRefs=[ref], rules=OPEN)


def test_a_route_that_takes_the_whole_host_claims_it(held):
    claimant(held)
    assert held.claim() == (
        f"host {HOST} on gateway {GATEWAY} is claimed by HTTPRoute nlp/theirs of ModelDeployment other; "
        "remove the host there or here"
    )
    ours(held)
    assert "theirs" in held.claim()


@pytest.mark.parametrize(
    "different",
    [
        {"host": "other.example.com"},
        {"name": "private"},
        {"namespace": "other"},
        {"kind": "Service"},
        {"rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/docs"}}]}]},
        {"rules": [{"matches": [{"headers": [{"name": "a", "value": "b"}]}]}]},
    ],
)
def test_routes_may_share_a_host_path_by_path(held, different):
    claimant(held, **different)
    assert held.claim() == ""


def test_a_younger_route_is_not_in_our_way(held):
    ours(held)
    claimant(held, created="09")
    assert held.claim() == ""
