import pytest
from slipway.kube.comparison import contains, difference, projected


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
    assert contains(live, wanted)


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
