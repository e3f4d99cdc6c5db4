import pytest
from slipway.kube.comparison import difference, projected


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ({"a": 1, "defaulted": True}, {"a": 1}),
        ({"spec": {}}, {"spec": {"env": [], "hostNetwork": False, "text": "", "labels": {}}}),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, {"limits": {"cpu": "1000m", "memory": "1024Mi"}}),
        ({"limits": {"nvidia.com/gpu": "1"}}, {"limits": {"nvidia.com/gpu": 1}}),
        ({"target": {"averageValue": "1k"}}, {"target": {"averageValue": "1000"}}),
        ({"scaleUp": {"tolerance": "50m"}}, {"scaleUp": {"tolerance": "0.05"}}),
        ({"emptyDir": {"sizeLimit": "1Gi"}}, {"emptyDir": {"sizeLimit": "1024Mi"}}),
        ({"containers": [{"name": "proxy"}, {"name": "server", "image": "i"}]}, {"containers": [{"name": "server"}]}),
        (
            {"ports": [{"containerPort": 8080, "protocol": "TCP", "name": "http"}]},
            {"ports": [{"name": "http", "containerPort": 8080}]},
        ),
        ({"ports": [{"port": 80, "protocol": "TCP", "nodePort": 3}]}, {"ports": [{"port": 80}]}),
    ],
)
def test_what_the_api_server_adds_or_normalises_is_no_difference(live, wanted):
    assert difference(live, wanted) == ""


@pytest.mark.parametrize(
    ("live", "wanted", "where"),
    [
        ({"a": 1}, {"a": 2}, "a"),
        ({}, {"weight": 0}, "weight"),
        ({"route": [{"weight": 100}]}, {"route": [{"weight": 90}, {"weight": 10}]}, "route"),
        ({"route": [{"weight": 90}, {"weight": 10}]}, {"route": [{"weight": 90}, {"weight": 20}]}, "route.1.weight"),
        ({"http": [{"name": "extra"}, {"name": "default"}]}, {"http": [{"name": "default"}]}, "http"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B", "value": "1"}]}, "env.B"),
        ({"limits": {"cpu": "2"}}, {"limits": {"cpu": "1"}}, "limits.cpu"),
        ({"cpu": "1"}, {"cpu": "1000m"}, "cpu"),
        ({"flag": 1}, {"flag": True}, "flag"),
        ({"a": "text"}, {"a": {"b": 1}}, "a"),
        ({"a": {"b": 1}}, {"a": [1]}, "a"),
        ({"containers": [{"name": "server"}]}, {"containers": [5, {"name": "server"}]}, "containers"),
        ({"env": [{"name": "A"}]}, {"env": [{"name": ["A"]}]}, "env.['A']"),
    ],
)
def test_names_the_first_difference(live, wanted, where):
    assert difference(live, wanted) == where


@pytest.mark.parametrize(
    ("live", "wanted", "content"),
    [
        ({"a": 2, "defaulted": True}, {"a": 1}, {"a": 2}),
        ({}, {"probe": {"initialDelaySeconds": 0}}, {"probe": None}),
        (
            {"probe": {"periodSeconds": 10}},
            {"probe": {"initialDelaySeconds": 0}},
            {"probe": {"initialDelaySeconds": None}},
        ),
        (
            {"containers": [{"name": "istio-proxy"}, {"name": "server", "image": "mirror/i", "stdin": False}]},
            {"containers": [{"name": "server", "image": "i"}]},
            {"containers": [{"name": "server", "image": "mirror/i"}]},
        ),
        ({"route": [{"weight": 5, "x": 1}]}, {"route": [{"weight": 4}]}, {"route": [{"weight": 5}]}),
        ({"route": [1, 2]}, {"route": [1]}, {"route": [1, 2]}),
        ({"a": "text"}, {"a": {"b": 1}}, {"a": "text"}),
    ],
)
def test_a_projection_is_what_is_said_about_what_is_wanted(live, wanted, content):
    assert projected(live, wanted) == content
    assert difference(live, content) == ""


ROUTE = {"name": "default", "route": [{"destination": {"host": "m", "subset": "a"}, "weight": 100}]}


def virtual_service(**added):
    return {"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "spec": {"http": [ROUTE | added]}}


@pytest.mark.parametrize(
    ("added", "where"),
    [
        ({"match": [{"uri": {"exact": "/never"}}]}, "spec.http.0.match"),
        ({"fault": {"abort": {"httpStatus": 503}}}, "spec.http.0.fault"),
        ({"mirror": {"host": "elsewhere"}}, "spec.http.0.mirror"),
        ({"directResponse": {"status": 503}}, "spec.http.0.directResponse"),
        (
            {"route": [{"destination": {"host": "m", "subset": "a", "port": {"number": 1}}, "weight": 100}]},
            "spec.http.0.route.0.destination.port",
        ),
        ({"corsPolicy": None}, ""),
    ],
)
def test_whatever_is_added_to_a_route_is_a_difference(added, where):
    assert difference(virtual_service(**added), virtual_service()) == where


@pytest.mark.parametrize(
    ("version", "kind", "spec", "added", "where"),
    [
        ("v1", "Service", {"selector": {"m": "a"}}, {"selector": {"m": "a", "x": "y"}}, "spec.selector.x"),
        (
            "security.istio.io/v1",
            "AuthorizationPolicy",
            {"selector": {"matchLabels": {"m": "a"}}},
            {"selector": {"matchLabels": {"m": "a", "x": "y"}}},
            "spec.selector.matchLabels.x",
        ),
        (
            "networking.istio.io/v1alpha3",
            "EnvoyFilter",
            {"workloadSelector": {"labels": {"m": "a"}}},
            {"workloadSelector": {"labels": {"m": "a", "x": "y"}}},
            "spec.workloadSelector.labels.x",
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            {"selector": {"matchLabels": {"m": "a"}}},
            {"selector": {"matchLabels": {"m": "a", "x": "y"}}},
            "spec.selector.matchLabels.x",
        ),
        (
            "networking.istio.io/v1",
            "DestinationRule",
            {"subsets": [{"name": "a", "labels": {"m": "a"}}]},
            {"subsets": [{"name": "a", "labels": {"m": "a", "x": "y"}}]},
            "spec.subsets.0.labels.x",
        ),
        (
            "gateway.networking.k8s.io/v1",
            "HTTPRoute",
            {"rules": [{"backendRefs": [{"name": "a", "weight": 1}]}]},
            {"rules": [{"backendRefs": [{"name": "a", "weight": 1}], "filters": [{"type": "RequestRedirect"}]}]},
            "spec.rules.0.filters",
        ),
        ("networking.istio.io/v1", "DestinationRule", {"host": "m"}, {"host": "m", "exportTo": ["*"]}, ""),
        ("v1", "Service", {"selector": {"m": "a"}}, {"selector": {"m": "a"}, "clusterIP": "10.0.0.1"}, ""),
        ("apps/v1", "Deployment", {"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "a", "effect": ""}]}, ""),
    ],
)
def test_what_is_ours_as_a_whole_holds_nothing_else(version, kind, spec, added, where):
    wanted = {"apiVersion": version, "kind": kind, "spec": spec}
    assert difference(wanted | {"spec": added}, wanted) == where
    kept = projected(wanted | {"spec": added}, wanted)
    assert difference(wanted | {"spec": added}, kept) == ""
    assert (difference(wanted, kept) == "") is (where == "")


def test_metadata_is_shared_whatever_the_kind():
    owned = {"name": "m", "ownerReferences": [{"uid": "1", "kind": "ModelDeployment"}], "labels": {"a": "b"}}
    shared = {
        "ownerReferences": [{"uid": "2", "kind": "Other"}, *owned["ownerReferences"]],
        "labels": {"a": "b", "c": "d"},
    }
    wanted = {**virtual_service(), "metadata": owned}
    assert difference(wanted | {"metadata": owned | shared}, wanted) == ""
