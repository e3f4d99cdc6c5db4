"""Affinity, mirror, delegate, policies and the providers beside Istio, as rendered; tests/istio_wire sends requests."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from slipway.api.scalars import Duration
from slipway.api.status import Role
from slipway.resources import RenderOptions, pods_host
from slipway.resources.durations import compound_duration

from tests.resources.rendering import HOST, canary, entry_of, of_kind, only, raw_spec, render, revisions_of
from tests.resources.test_resources_routing import names, route, split
from tests.resources.test_resources_schemas import assert_istio_knows_every_field

CRD = Path(__file__).parents[2] / "e2e/sandbox/mesh/crds/httproutes.yaml"
PODS = {"slipway.dev/model-deployment": "sentiment"}


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without room for fields it does not name."""
    result = {name: value for name, value in schema.items() if not name.startswith("x-")}
    if "properties" in result:
        result["properties"] = {name: closed(below) for name, below in result["properties"].items()}
        result["additionalProperties"] = False
    if "items" in result:
        result["items"] = closed(result["items"])
    return result


_DEFINITION = yaml.load(CRD.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
HTTP_ROUTE_SPEC = jsonschema.Draft202012Validator(
    closed(_DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
)


def rendered(stable: int = 75, **traffic: Any) -> tuple[dict[str, Any], ...]:
    spec = raw_spec(traffic=traffic)
    return render(spec, canary(spec, stable=stable))


def http_route(objects: tuple[dict[str, Any], ...], name: str = "sentiment") -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = (item for item in of_kind(objects, "HTTPRoute") if item["metadata"]["name"] == name)
    return found


def backends(rule: dict[str, Any]) -> dict[str, int]:
    return {ref["name"]: ref["weight"] for ref in rule["backendRefs"]}


# ---------------------------------------------------------------- affinity


def test_the_weighted_route_binds_users_and_cookie_routes_keep_them() -> None:
    objects = rendered(sessionAffinity={"cookie": "user", "ttl": "90m"})
    first, second = revisions_of(raw_spec())
    assert names(objects)[-5:] == ["pin-v1", "pin-v2", f"user-{first}", f"user-{second}", "default"]
    cookies = [share["headers"]["response"]["add"]["set-cookie"] for share in route(objects, "default")["route"]]
    assert cookies == [f"user={revision}; Max-Age=5400; Path=/; HttpOnly; SameSite=Lax" for revision in (first, second)]
    kept = route(objects, f"user-{second}")
    assert split(kept) == {second: 100}
    assert kept["match"] == [
        {"headers": {"cookie": {"regex": rf"(.*;\s*)?user={second.replace('-', chr(92) + '-')}(\s*;.*)?"}}}
    ]
    assert "add" not in kept["route"][0]["headers"]["response"]


def test_no_user_is_kept_by_a_revision_without_weight_or_pods() -> None:
    first, second = revisions_of(raw_spec())
    objects = rendered(stable=100, sessionAffinity={"cookie": "user"})
    assert f"user-{second}" not in names(objects)
    spec = raw_spec(traffic={"sessionAffinity": {"cookie": "user"}})
    stable, candidate = canary(spec)
    objects = render(spec, (stable, candidate.model_copy(update={"ready_replicas": 0})))
    assert f"user-{second}" not in names(objects)
    assert f"user-{first}" in names(objects)


def test_no_cookie_unless_asked_for() -> None:
    for share in route(rendered(), "default")["route"]:
        assert set(share["headers"]["response"]) == {"set"}


def test_no_limit_is_said_as_each_provider_says_it() -> None:
    """Istio's schema refuses durations below a millisecond; Gateway API means no limit by 0s."""
    unlimited = {"timeout": "0s", "retries": {"attempts": 2, "perTryTimeout": "0s"}}
    for item in only(rendered(resilience=unlimited), "VirtualService")["spec"]["http"]:
        assert "timeout" not in item
        assert item["retries"] == {"attempts": 2, "retryOn": "connect-failure,refused-stream,unavailable"}
    objects = rendered(provider="gateway-api", resilience={"timeout": "0s"})
    assert all(rule["timeouts"] == {"request": "0s"} for rule in http_route(objects)["spec"]["rules"])


# ---------------------------------------------------------------- mirror and delegate


def test_copies_of_unpinned_requests() -> None:
    spec = raw_spec(serve="v2", traffic={"mirror": {"version": "v2", "percent": 30}})
    objects = render(spec, canary(spec))
    _, second = revisions_of(spec)
    for name, port in (("default", 80), ("grpc-default", 9000)):
        item = route(objects, name)
        assert item["mirror"] == {"host": HOST, "subset": second, "port": {"number": port}}
        assert item["mirrorPercentage"] == {"value": 30}
    assert "mirror" not in route(objects, "pin-v1")


@pytest.mark.parametrize("changes", [{"ready_replicas": 0}, {"role": Role.RETIRING}, {"subset": False}])
def test_no_copies_to_a_version_that_cannot_take_them(changes: dict[str, Any]) -> None:
    spec = raw_spec(serve="v2", traffic={"mirror": {"version": "v2", "percent": 30}})
    stable, candidate = canary(spec)
    assert "mirror" not in route(render(spec, (stable, candidate.model_copy(update=changes))), "default")


def test_stable_gets_no_copies_of_its_own_requests() -> None:
    spec = raw_spec(traffic={"mirror": {"version": "v1", "percent": 30}})
    assert "mirror" not in route(render(spec, canary(spec)), "default")


def test_a_delegate_names_neither_hosts_nor_gateways() -> None:
    objects = rendered(virtualService={"delegate": True})
    written = only(objects, "VirtualService")["spec"]
    assert set(written) == {"http"}
    assert written["http"] == only(rendered(), "VirtualService")["spec"]["http"]


# ---------------------------------------------------------------- experiments


def with_experiment(provider: str, *matches: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """v2 as an experiment of weight 0 that gets what the matches describe."""
    traffic = {"provider": provider, "experiments": [{"version": "v2", "weight": 0, "match": list(matches)}]}
    spec = raw_spec(traffic=traffic)
    first, second = revisions_of(spec).values()
    return render(spec, (entry_of(first, weight=100), entry_of(second, role=Role.EXPERIMENT, matched=True)))


def test_a_condition_on_a_port_stays_with_that_port() -> None:
    """A request to the gRPC port must never end at the HTTP port."""
    named = [name for name in names(with_experiment("istio", {"port": 9000})) if "experiment" in name]
    assert named == ["grpc-experiment-v2"]
    named = [name for name in names(with_experiment("istio", {"port": 443})) if "experiment" in name]
    assert named == ["experiment-v2"]
    objects = with_experiment("istio", {"uri": {"prefix": "/a"}}, {"port": 9000})
    assert route(objects, "experiment-v2")["match"] == [{"uri": {"prefix": "/a"}}]
    grpc = route(objects, "grpc-experiment-v2")
    assert grpc["match"] == [{"uri": {"prefix": "/a"}, "port": 9000}, {"port": 9000}]
    assert {share["destination"]["port"]["number"] for share in grpc["route"]} == {9000}


def test_an_experiments_path_does_not_draw_http_requests_to_the_grpc_port() -> None:
    objects = with_experiment(
        "gateway-api",
        {"uri": {"prefix": "/v2"}, "method": {"exact": "POST"}},
        {"headers": {"x-group": {"regex": "b.*"}}},
    )
    plain = http_route(objects)["spec"]["rules"][2]
    assert plain["matches"] == [
        {"path": {"type": "PathPrefix", "value": "/v2"}, "method": "POST"},
        {
            "path": {"type": "PathPrefix", "value": "/"},
            "headers": [{"type": "RegularExpression", "name": "x-group", "value": "b.*"}],
        },
    ]
    grpc = http_route(objects, "sentiment-grpc")["spec"]["rules"][2]
    assert {match["path"]["value"] for match in grpc["matches"]} == {
        "/inference.GRPCInferenceService",
        "/grpc.health.v1.Health",
    }
    assert all(match["headers"][0]["name"] == "x-group" for match in grpc["matches"])
    for item in of_kind(objects, "HTTPRoute"):
        HTTP_ROUTE_SPEC.validate(item["spec"])


# ---------------------------------------------------------------- policies


def test_no_policies_by_default() -> None:
    kinds = {item["kind"] for item in rendered()}
    assert not kinds & {"RequestAuthentication", "AuthorizationPolicy", "EnvoyFilter"}


def test_a_token_is_checked_and_asked_for_at_the_pods() -> None:
    jwt = {"issuer": "https://issuer", "jwksUri": "https://issuer/keys", "audiences": ["us"]}
    objects = rendered(auth={"jwt": jwt})
    checked = only(objects, "RequestAuthentication")
    assert checked["spec"] == {
        "selector": {"matchLabels": PODS},
        "jwtRules": [
            {
                "issuer": "https://issuer",
                "forwardOriginalToken": True,
                "jwksUri": "https://issuer/keys",
                "audiences": ["us"],
            }
        ],
    }
    asked = only(objects, "AuthorizationPolicy")["spec"]
    assert asked["selector"] == {"matchLabels": PODS}
    assert asked["action"] == "DENY"
    assert asked["rules"] == [
        {
            "from": [{"source": {"notRequestPrincipals": ["https://issuer/*"]}}],
            "to": [{"operation": {"notPaths": ["/v2/health/*", "/health", "/metrics"]}}],
        }
    ]
    for item in (checked, only(objects, "AuthorizationPolicy")):
        assert_istio_knows_every_field(item)


def test_the_mesh_hands_verified_claims_to_the_servers_where_one_names_the_tenant() -> None:
    tenants = {"header": "x-claims", "claim": "org"}
    spec = raw_spec(traffic={"auth": {"jwt": {"issuer": "me"}}}, runtime={"tenants": tenants})
    checked = only(render(spec, canary(spec)), "RequestAuthentication")
    assert checked["spec"]["jwtRules"] == [
        {"issuer": "me", "forwardOriginalToken": True, "outputPayloadToHeader": "x-claims"}
    ]
    assert_istio_knows_every_field(checked)


def test_the_operator_may_probe_without_a_token_where_it_has_an_identity() -> None:
    spec = raw_spec(traffic={"auth": {"jwt": {"issuer": "me"}}})
    principal = "cluster.local/ns/slipway-system/sa/slipway"
    options = RenderOptions(runtime_image="r:1", mesh_principal=principal)
    policy = only(render(spec, canary(spec), options=options), "AuthorizationPolicy")
    source = policy["spec"]["rules"][0]["from"][0]["source"]
    assert source == {"notRequestPrincipals": ["me/*"], "notPrincipals": [principal]}


def test_the_operators_proxy_is_told_of_single_pods_where_it_has_one() -> None:
    engines = [
        {"name": "v1", "uri": "s3://models/1"},
        {"name": "v2", "uri": "s3://models/2", "runtime": {"engine": "triton"}},
    ]
    spec = raw_spec(versions=engines)
    options = RenderOptions(runtime_image="r:1", mesh_principal="cluster.local/ns/slipway-system/sa/slipway")
    services = {
        item["metadata"]["name"]: item for item in of_kind(render(spec, canary(spec), options=options), "Service")
    }
    found = services["sentiment-pods"]
    assert pods_host("nlp", "sentiment", "cluster.local") == "sentiment-pods.nlp.svc.cluster.local"
    assert (found["spec"]["clusterIP"], found["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert found["spec"]["selector"] == PODS
    ports = [(port["name"], port["port"], port["targetPort"]) for port in found["spec"]["ports"]]
    assert ports == [("http-8000", 8000, 8000), ("http-8080", 8080, 8080)]
    assert "sentiment-pods" not in {item["metadata"]["name"] for item in render(spec, canary(spec))}


@pytest.mark.parametrize(
    ("rate", "bucket"),
    [
        (0.2, {"max_tokens": 1, "tokens_per_fill": 1, "fill_interval": "5.000000s"}),
        (2.5, {"max_tokens": 2, "tokens_per_fill": 1, "fill_interval": "0.400000s"}),
        (20, {"max_tokens": 20, "tokens_per_fill": 1, "fill_interval": "0.050000s"}),
        (150, {"max_tokens": 150, "tokens_per_fill": 150, "fill_interval": "1s"}),
    ],
)
def test_a_rate_limit_fills_no_faster_than_envoy_can(rate: float, bucket: dict[str, Any]) -> None:
    item = only(rendered(resilience={"rateLimit": {"requestsPerSecond": rate}}), "EnvoyFilter")
    assert item["spec"]["workloadSelector"] == {"labels": PODS}
    (patch,) = item["spec"]["configPatches"]
    assert patch["match"]["context"] == "SIDECAR_INBOUND"
    assert patch["patch"]["value"]["typed_config"]["value"]["token_bucket"] == bucket
    assert_istio_knows_every_field(item)


def test_policies_come_before_the_routes() -> None:
    objects = rendered(auth={"jwt": {"issuer": "me"}}, resilience={"rateLimit": {"requestsPerSecond": 5}})
    assert [item["kind"] for item in objects][-5:] == [
        "RequestAuthentication", "AuthorizationPolicy", "EnvoyFilter", "DestinationRule", "VirtualService",
    ]  # fmt: skip


# ---------------------------------------------------------------- Gateway API and no provider


def test_http_routes_split_over_one_service_per_revision() -> None:
    objects = rendered(provider="gateway-api", hosts=["a.example.com"], gateways=["edge/public", "local", "mesh"])
    first, second = revisions_of(raw_spec())
    assert not of_kind(objects, "VirtualService") + of_kind(objects, "DestinationRule")
    selectors = {item["metadata"]["name"]: item["spec"]["selector"] for item in of_kind(objects, "Service")}
    assert selectors == {
        "sentiment": PODS | {"slipway.dev/revision": first},
        first: PODS | {"slipway.dev/revision": first},
        second: PODS | {"slipway.dev/revision": second},
    }
    written = http_route(objects)["spec"]
    assert written["hostnames"] == ["a.example.com"]
    assert written["parentRefs"] == [
        {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "edge", "name": "public"},
        {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "nlp", "name": "local"},
        {"group": "", "kind": "Service", "name": "sentiment", "port": 80},
    ]
    *pins, default = written["rules"]
    assert backends(default) == {first: 75, second: 25}
    assert default["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]
    assert [backends(pin) for pin in pins] == [{first: 100}, {second: 100}]
    assert pins[1]["matches"][0]["headers"] == [{"type": "Exact", "name": "x-model-version", "value": "v2"}]
    for rule in written["rules"]:
        assert rule["timeouts"] == {"request": "30s"}
        for ref in rule["backendRefs"]:
            changes = next(item["responseHeaderModifier"] for item in ref["filters"] if "Response" in item["type"])
            assert changes["set"][0]["name"] == "x-model-version"


def test_grpc_has_a_route_of_its_own_told_by_its_paths() -> None:
    objects = rendered(provider="gateway-api", gateways=["edge/public"])
    grpc = http_route(objects, "sentiment-grpc")["spec"]
    assert grpc["parentRefs"][-1] == {"group": "", "kind": "Service", "name": "sentiment", "port": 9000}
    *_, default = grpc["rules"]
    assert [match["path"]["value"] for match in default["matches"]] == [
        "/inference.GRPCInferenceService",
        "/grpc.health.v1.Health",
    ]
    assert {ref["port"] for rule in grpc["rules"] for ref in rule["backendRefs"]} == {9000}
    *_, plain = http_route(objects)["spec"]["rules"]
    assert backends(default) == backends(plain)


def test_http_routes_keep_to_their_schema() -> None:
    spec = raw_spec(
        serve="v2",
        traffic={
            "provider": "gateway-api",
            "hosts": ["*.example.com"],
            "gateways": ["edge/public"],
            "sessionAffinity": {"cookie": "user"},
            "mirror": {"version": "v2", "percent": 7},
            "resilience": {"timeout": "8784h"},
        },
    )
    objects = render(spec, canary(spec))
    assert len(of_kind(objects, "HTTPRoute")) == 2
    for item in of_kind(objects, "HTTPRoute"):
        HTTP_ROUTE_SPEC.validate(item["spec"])
        mirror = {"group": "", "kind": "Service", "name": list(revisions_of(spec))[1]}
        (copied,) = item["spec"]["rules"][-1]["filters"]
        assert copied["requestMirror"]["percent"] == 7
        assert mirror.items() <= copied["requestMirror"]["backendRef"].items()


def test_the_service_leads_to_the_revision_with_most_weight() -> None:
    """A client that no route knows must not meet a candidate that has no weight."""
    spec = raw_spec(traffic={"provider": "none"}, rollout={"strategy": "BlueGreen"})
    first, second = revisions_of(spec)
    for stable, receiver in ((100, first), (0, second)):
        objects = render(spec, canary(spec, stable=stable))
        services = {item["metadata"]["name"]: item for item in of_kind(objects, "Service")}
        assert services["sentiment"]["spec"]["selector"]["slipway.dev/revision"] == receiver
        assert not of_kind(objects, "HTTPRoute") + of_kind(objects, "VirtualService")
    only_first = next(iter(revisions_of(spec).values()))
    objects = render(spec, (entry_of(only_first, subset=False, role=Role.CANDIDATE, ready_replicas=0),))
    assert [item["metadata"]["name"] for item in of_kind(objects, "Service")] == ["sentiment"]


@given(st.integers(0, 8784 * 3_600_000))
def test_compound_durations_say_the_same(milliseconds: int) -> None:
    duration = Duration(f"{milliseconds}ms")
    written = compound_duration(duration)
    jsonschema.validate(written, {"type": "string", "pattern": r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"})
    assert Duration(written).seconds == pytest.approx(milliseconds / 1000)


# ---------------------------------------------------------------- whatever the status and the section say

OPTIONS = {
    "sessionAffinity": {"cookie": "user"},
    "mirror": {"version": "v2", "percent": 10},
    "versionHeader": "",
    "hosts": ["a.example.com"],
    "gateways": ["edge/public"],
    "experiments": [{"version": "v3", "weight": 5, "match": [{"headers": {"x-group": {"exact": "beta"}}}]}],
}
LIVE = raw_spec(versions=[{"name": name, "uri": f"file:///m/{name}"} for name in ("v1", "v2", "v3")], serve="v2")


@st.composite
def moments(draw: st.DrawFn, provider: str) -> tuple[dict[str, Any], ...]:
    chosen = draw(st.lists(st.sampled_from(sorted(OPTIONS)), unique=True))
    traffic = {"provider": provider, **({name: OPTIONS[name] for name in chosen} if provider != "none" else {})}
    spec = LIVE | {"traffic": traffic, "rollout": {"strategy": "BlueGreen"}}
    entries = tuple(
        entry_of(
            revision,
            weight=draw(st.integers(0, 100)),
            role=draw(st.sampled_from(Role)),
            ready_replicas=draw(st.integers(0, 2)),
            subset=draw(st.booleans()),
            matched=draw(st.booleans()),
        )
        for revision in revisions_of(spec).values()
        if draw(st.booleans())
    )
    return render(spec, entries)


@given(moments("gateway-api"))
def test_http_routes_are_complete(objects: tuple[dict[str, Any], ...]) -> None:
    services = {item["metadata"]["name"] for item in of_kind(objects, "Service")} - {"sentiment"}
    for item in of_kind(objects, "HTTPRoute"):
        HTTP_ROUTE_SPEC.validate(item["spec"])
        assert len(item["spec"]["rules"]) <= 16
        for rule in item["spec"]["rules"]:
            assert sum(ref["weight"] for ref in rule["backendRefs"]) == 100
            assert {ref["name"] for ref in rule["backendRefs"]} <= services
            for copied in rule.get("filters", ()):
                assert copied["requestMirror"]["backendRef"]["name"] in services
        *_, default = item["spec"]["rules"]
        assert {ref["name"] for ref in default["backendRefs"]} == services
        assert all("headers" not in match for match in default["matches"])


@given(moments("istio"))
def test_virtual_services_are_complete(objects: tuple[dict[str, Any], ...]) -> None:
    for item in of_kind(objects, "VirtualService"):
        (rule,) = of_kind(objects, "DestinationRule")
        subsets = {subset["name"] for subset in rule["spec"]["subsets"]}
        assert_istio_knows_every_field(item)
        listed = [entry["name"] for entry in item["spec"]["http"]]
        assert len(listed) == len(set(listed))
        assert listed[-1] == "default"
        for entry in item["spec"]["http"]:
            assert sum(share["weight"] for share in entry["route"]) == 100
            places = [share["destination"] for share in entry["route"]]
            places += [entry["mirror"]] if "mirror" in entry else []
            assert {place["subset"] for place in places} <= subsets
            assert len({place["port"]["number"] for place in places}) == 1


@given(st.one_of(moments("none"), moments("gateway-api")))
def test_the_service_leads_to_one_live_revision(objects: tuple[dict[str, Any], ...]) -> None:
    services = {item["metadata"]["name"]: item for item in of_kind(objects, "Service")}
    selected = services["sentiment"]["spec"]["selector"].get("slipway.dev/revision")
    live = {item["metadata"]["name"] for item in of_kind(objects, "Deployment")}
    assert selected in live if live else selected is None
    assert services.keys() - {"sentiment"} <= live
