"""Routes: pins, weights and everything that Istio must not be left to guess (see tests/istio_wire)."""

from typing import Any

from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Role
from slipway.resources import desired

from tests.resources.rendering import (
    HOST,
    IDENTITY,
    OPTIONS,
    canary,
    entry_of,
    of_kind,
    only,
    raw_spec,
    render,
    revisions_of,
)


def route(objects: tuple[dict[str, Any], ...], name: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = (item for item in only(objects, "VirtualService")["spec"]["http"] if item["name"] == name)
    return found


def split(item: dict[str, Any]) -> dict[str, int]:
    return {share["destination"]["subset"]: share["weight"] for share in item["route"]}


def names(objects: tuple[dict[str, Any], ...]) -> list[str]:
    return [item["name"] for item in only(objects, "VirtualService")["spec"]["http"]]


def test_default_route_is_weighted_complete_and_last() -> None:
    spec = raw_spec()
    stable, candidate = canary(spec)
    objects = render(spec, (stable, candidate))
    assert names(objects) == [
        "grpc-pin-v1", "grpc-pin-v2", "grpc-default", "pin-v1", "pin-v2", "default",
    ]  # fmt: skip
    assert route(objects, "default") == {
        "name": "default",
        "route": [
            {
                "destination": {"host": HOST, "subset": stable.revision, "port": {"number": 80}},
                "weight": 75,
                "headers": {
                    "request": {"remove": ["x-slipway-shadow"]},
                    "response": {"set": {"x-model-version": "v1"}},
                },
            },
            {
                "destination": {"host": HOST, "subset": candidate.revision, "port": {"number": 80}},
                "weight": 25,
                "headers": {
                    "request": {"remove": ["x-slipway-shadow"]},
                    "response": {"set": {"x-model-version": "v2"}},
                },
            },
        ],
        "timeout": "30s",
        "retries": {"attempts": 0},
    }


def test_grpc_has_routes_to_its_own_port_with_the_same_shares() -> None:
    spec = raw_spec()
    objects = render(spec, canary(spec, stable=95))
    grpc = route(objects, "grpc-default")
    assert grpc["match"] == [{"port": 9000}]
    assert split(grpc) == split(route(objects, "default"))
    assert {share["destination"]["port"]["number"] for share in grpc["route"]} == {9000}
    assert route(objects, "grpc-pin-v2")["match"] == [{"port": 9000, "headers": {"x-model-version": {"exact": "v2"}}}]


def test_weight_zero_is_written() -> None:
    spec = raw_spec()
    stable, candidate = canary(spec, stable=100)
    assert split(route(render(spec, (stable, candidate)), "default")) == {stable.revision: 100, candidate.revision: 0}


def test_retries_when_asked_for() -> None:
    spec = raw_spec(traffic={"resilience": {"retries": {"attempts": 2, "on": ["connect-failure", "unavailable"]}}})
    expected = {"attempts": 2, "perTryTimeout": "10s", "retryOn": "connect-failure,unavailable"}
    for item in only(render(spec, canary(spec)), "VirtualService")["spec"]["http"]:
        assert item["retries"] == expected


def test_hosts_and_gateways() -> None:
    spec = raw_spec()
    virtual_service = only(render(spec, canary(spec)), "VirtualService")
    assert virtual_service["spec"]["hosts"] == [HOST]
    assert virtual_service["spec"]["gateways"] == ["mesh"]
    spec = raw_spec(traffic={"hosts": ["a.example.com", HOST], "gateways": ["ingress/public", "mesh"]})
    virtual_service = only(render(spec, canary(spec)), "VirtualService")
    assert virtual_service["spec"]["hosts"] == [HOST, "a.example.com"]
    assert virtual_service["spec"]["gateways"] == ["mesh", "ingress/public"]


def test_pins_follow_the_version_header() -> None:
    spec = raw_spec(traffic={"versionHeader": "x-variant"})
    objects = render(spec, canary(spec))
    assert route(objects, "pin-v2")["match"] == [{"headers": {"x-variant": {"exact": "v2"}}}]
    spec = raw_spec(traffic={"versionHeader": ""})
    assert names(render(spec, canary(spec))) == ["grpc-default", "default"]


def test_no_pin_to_a_revision_without_ready_pods_or_about_to_leave() -> None:
    """Research case T64: header routes that point to an empty canary."""
    spec = raw_spec()
    stable, candidate = canary(spec)
    for gone in (
        candidate.model_copy(update={"ready_replicas": 0}),
        candidate.model_copy(update={"role": Role.RETIRING}),
    ):
        assert names(render(spec, (stable, gone))) == ["grpc-pin-v1", "grpc-default", "pin-v1", "default"]


def test_two_revisions_of_one_version_pin_the_candidate() -> None:
    old = raw_spec()
    new = raw_spec(runtime={"env": [{"name": "A", "value": "1"}]})
    first, second = next(iter(revisions_of(old).values())), next(iter(revisions_of(new).values()))
    entries = (entry_of(first, weight=90), entry_of(second, weight=10, role=Role.CANDIDATE))
    objects = desired(
        IDENTITY,
        ModelDeploymentSpec.from_wire(new),
        ModelDeploymentStatus(versions=entries),
        {first.name: first, second.name: second},
        OPTIONS,
    )
    assert split(route(objects, "pin-v1")) == {second.name: 100}
    assert split(route(objects, "default")) == {first.name: 90, second.name: 10}


def test_first_deployment_gets_everything_once_its_subset_exists() -> None:
    spec = raw_spec()
    revision = next(iter(revisions_of(spec).values()))
    hidden = render(spec, (entry_of(revision, subset=False, ready_replicas=0),))
    assert of_kind(hidden, "VirtualService") == []
    assert only(hidden, "DestinationRule")["spec"]["subsets"] == []
    shown = render(spec, (entry_of(revision),))
    assert split(route(shown, "default")) == {revision.name: 100}


def test_nothing_live_means_no_routes() -> None:
    spec = raw_spec()
    assert {item["kind"] for item in render(spec, ())} == {"ControllerRevision", "Service"}


def test_weight_of_a_revision_without_subset_goes_to_the_others() -> None:
    """A route to a subset that the rule lacks would answer 503 for its share."""
    spec = raw_spec()
    stable, candidate = canary(spec)
    hidden = candidate.model_copy(update={"subset": False})
    assert split(route(render(spec, (stable, hidden)), "default")) == {stable.revision: 100}


def test_subsets_select_by_revision() -> None:
    spec = raw_spec()
    stable, candidate = canary(spec)
    rule = only(render(spec, (stable, candidate)), "DestinationRule")
    assert rule["spec"]["host"] == HOST
    assert rule["spec"]["subsets"] == [
        {
            "name": entry.revision,
            "labels": {"slipway.dev/model-deployment": "sentiment", "slipway.dev/revision": entry.revision},
        }
        for entry in (stable, candidate)
    ]


def test_ejection_never_empties_a_subset_and_can_be_turned_off() -> None:
    spec = raw_spec()
    policy = only(render(spec, canary(spec)), "DestinationRule")["spec"]["trafficPolicy"]
    assert policy["outlierDetection"] == {
        "consecutive5xxErrors": 5,
        "interval": "10s",
        "baseEjectionTime": "30s",
        "maxEjectionPercent": 50,
        "minHealthPercent": 50,
    }
    spec = raw_spec(traffic={"resilience": {"outlierDetection": {"consecutiveErrors": 0}}})
    assert "outlierDetection" not in only(render(spec, canary(spec)), "DestinationRule")["spec"]["trafficPolicy"]


def test_ejection_does_not_bind_clients_to_the_pods_of_their_own_zone() -> None:
    spec = raw_spec()
    policy = only(render(spec, canary(spec)), "DestinationRule")["spec"]["trafficPolicy"]
    assert policy["loadBalancer"] == {"simple": "LEAST_REQUEST", "localityLbSetting": {"enabled": False}}
    spec = raw_spec(traffic={"resilience": {"outlierDetection": {"consecutiveErrors": 0}}})
    policy = only(render(spec, canary(spec)), "DestinationRule")["spec"]["trafficPolicy"]
    assert policy["loadBalancer"] == {"simple": "LEAST_REQUEST"}


def test_an_experiments_matches_go_to_it_whole_before_the_weighted_route() -> None:
    match = [{"headers": {"x-group": {"exact": "beta"}}}, {"uri": {"prefix": "/beta"}}]
    spec = raw_spec(traffic={"experiments": [{"version": "v2", "weight": 10, "match": match}]})
    first, second = revisions_of(spec).values()
    beside = entry_of(second, weight=10, role=Role.EXPERIMENT, matched=True)
    routes = only(render(spec, (entry_of(first, weight=90), beside)), "VirtualService")["spec"]["http"]
    names = [route["name"] for route in routes]
    assert names.index("pin-v2") < names.index("experiment-v2") < names.index("default")
    route = routes[names.index("experiment-v2")]
    assert route["match"] == match
    assert [(item["destination"]["subset"], item["weight"]) for item in route["route"]] == [(second.name, 100)]
    grpc = routes[names.index("grpc-experiment-v2")]
    assert all(item["port"] == 9000 for item in grpc["match"])
    shares = {item["destination"]["subset"]: item["weight"] for item in routes[-1]["route"]}
    assert shares == {first.name: 90, second.name: 10}


def test_an_experiment_without_ready_pods_has_no_route_of_its_own() -> None:
    spec = raw_spec(traffic={"experiments": [{"version": "v2", "match": [{"uri": {"prefix": "/beta"}}]}]})
    first, second = revisions_of(spec).values()
    beside = entry_of(second, role=Role.EXPERIMENT, ready_replicas=0)
    routes = only(render(spec, (entry_of(first, weight=100), beside)), "VirtualService")["spec"]["http"]
    assert not [route for route in routes if "experiment" in route["name"]]
