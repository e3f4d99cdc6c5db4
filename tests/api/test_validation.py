from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from slipway.api.provider_limits import untranslatable
from slipway.api.validation import validate

from .cases import V1, model_deployment, with_check, with_two


def fields(obj: dict[str, Any], reason: str = "InvalidSpec") -> list[str]:
    return [problem.field for problem in validate(obj).problems if problem.reason == reason]


def test_the_smallest_object_is_valid_without_a_warning() -> None:
    outcome = validate(model_deployment())
    assert outcome.spec is not None
    assert outcome.spec.served == "v1"
    assert (outcome.problems, outcome.warnings, outcome.reason, outcome.message) == ((), (), "", "")


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"versions": []}, "spec.versions", "at least 1"),
        ({"versions": [{"name": "v1"}]}, "spec.versions[0].uri", "is required"),
        ({"versions": [{**V1, "name": "V_1"}]}, "spec.versions[0].name", "V_1"),
        ({"versions": [{**V1, "format": "pickle"}]}, "spec.versions[0].format", "torchscript"),
        ({"runtime": {"batching": {"maxDelay": "5"}}}, "spec.runtime.batching.maxDelay", "a duration such as"),
        ({"runtime": {"limits": {"maxRequestBytes": "5 MB"}}}, "spec.runtime.limits.maxRequestBytes", "a quantity"),
        ({"autoscaling": {"maxReplicas": 0}}, "spec.autoscaling.maxReplicas", "at least 1, not 0"),
        ({"autoscaling": {"maxReplicas": "many"}}, "spec.autoscaling.maxReplicas", "a whole number"),
        ({"autoscaling": 3}, "spec.autoscaling", "an object"),
        ({"rollout": {"steps": [{"weight": 101}]}}, "spec.rollout.steps[0].weight", "at most 100"),
        ({"rollout": {"steps": {"weight": 5}}}, "spec.rollout.steps", "a list"),
        ({"traffic": {"provider": "linkerd"}}, "spec.traffic.provider", "gateway-api"),
    ],
)  # fmt: skip
def test_mistakes_are_told_by_the_names_of_the_api(spec: dict[str, Any], field: str, words: str) -> None:
    obj = model_deployment()
    obj["spec"] |= spec
    outcome = validate(obj)
    assert outcome.spec is None
    assert outcome.reason == "InvalidSpec"
    assert [problem.field for problem in outcome.problems] == [field]
    assert words in outcome.problems[0].message


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"runtime": {"pool": "Shared"}}, "spec.runtime.pool"),
    ],
)  # fmt: skip
def test_what_has_yet_to_come_is_refused_once(spec: dict[str, Any], field: str) -> None:
    obj = model_deployment()
    obj["spec"] |= spec
    outcome = validate(obj)
    assert outcome.spec is None
    assert outcome.reason == "NotYetSupported"
    assert [problem.field for problem in outcome.problems] == [field]
    assert "not supported yet" in outcome.problems[0].message


def test_every_kind_of_check_is_accepted() -> None:
    checks = [
        {"name": "agreement", "metric": "shadowAgreement", "minValue": "0.995"},
        {"name": "business", "query": 'sum(rate(clicks{version="{{version}}"}[5m]))', "min": "10", "minSamples": 100},
    ]
    obj = model_deployment(rollout={"shadow": {"percent": 10}, "analysis": {"checks": checks}})
    assert validate(obj).problems == ()


def test_defaults_written_out_are_accepted() -> None:
    obj = model_deployment(
        runtime={"engine": "slipway", "precision": "fp32", "cache": {"maxBytes": "0", "ttl": "60s"}},
        traffic={"provider": "istio", "mirror": {"percent": 0}, "virtualService": {"delegate": False}},
        rollout={"strategy": "Canary", "maxSurgeGPUs": -1, "analysis": {"onHarm": "Rollback"}},
        autoscaling={"mode": "None", "schedule": []},
    )
    obj["spec"]["versions"][0] |= {"runtime": {"precision": "fp32"}, "format": "torchscript"}
    assert validate(obj).problems == ()


def test_invalid_comes_before_unsupported() -> None:
    assert validate(with_two(serve="v9", runtime={"pool": "Shared"})).reason == "InvalidSpec"


@pytest.mark.parametrize(
    ("traffic", "field", "words"),
    [
        ({"provider": "none", "hosts": ["a.example.com"]}, "hosts", "a plain Service has no means for it"),
        ({"provider": "none", "resilience": {"timeout": "1s"}}, "resilience", "provider none"),
        ({"provider": "gateway-api", "resilience": {"retries": {"attempts": 2}}}, "resilience.retries", "Gateway API"),
        ({"provider": "gateway-api", "auth": {"jwt": {"issuer": "x"}}}, "auth.jwt", "set provider istio"),
        ({"provider": "gateway-api", "virtualService": {"delegate": True}}, "virtualService.delegate", "Gateway API"),
        ({"virtualService": {"delegate": True}, "hosts": ["a.example.com"]}, "hosts", "root VirtualService"),
        ({"virtualService": {"delegate": True}, "gateways": ["a/b"]}, "gateways", "root VirtualService"),
        ({"auth": {"jwt": {"jwksUri": "https://issuer.example.com/keys"}}}, "auth.jwt.issuer", "is required"),
        ({"mirror": {"version": "v2", "percent": 5}}, "mirror.version", "v2 has no pods"),
        (
            {"resilience": {"outlierDetection": {"interval": "0s"}}},
            "resilience.outlierDetection.interval",
            "consecutiveErrors 0 turns ejection off",
        ),
    ],
)
def test_what_a_provider_cannot_do_is_refused(traffic: dict[str, Any], field: str, words: str) -> None:
    """Nothing of the traffic section is accepted and then ignored."""
    strategy = {"strategy": "BlueGreen"} if traffic.get("provider") == "none" else {}
    outcome = validate(with_two(traffic=traffic, rollout=strategy))
    found = {problem.field: problem.message for problem in outcome.problems if problem.reason == "InvalidSpec"}
    assert words in found[f"spec.traffic.{field}"]


def test_what_a_provider_can_do_is_accepted() -> None:
    traffic = {
        "sessionAffinity": {"cookie": "user"},
        "mirror": {"version": "v1", "percent": 5},
        "resilience": {"timeout": "1s"},
        "gateways": ["a/b"],
        "hosts": ["a.example.com"],
    }
    assert validate(with_two(traffic={"provider": "gateway-api", **traffic})).problems == ()
    jwt = {"issuer": "me", "audiences": ["a"]}
    limited = {"retries": {"attempts": 1}, "rateLimit": {"requestsPerSecond": 5}}
    assert validate(with_two(traffic={**traffic, "resilience": limited, "auth": {"jwt": jwt}})).problems == ()
    assert validate(with_two(traffic={"virtualService": {"delegate": True}})).problems == ()


@pytest.mark.parametrize(
    ("match", "part"),
    [
        ({"uri": {"prefix": "/a"}, "headers": {"x": {"exact": "1"}}, "method": {"exact": "POST"}}, ""),
        ({"headers": {"x": {"prefix": "1"}}}, "headers.x"),
        ({"queryParams": {"x": {}}}, "queryParams.x"),
        ({"method": {"regex": "P.*"}}, "method"),
        ({"port": 80}, "port"),
        ({"uri": "/a"}, "uri"),
        ({"headers": ["x"]}, "headers"),
    ],
)
def test_conditions_that_an_http_route_cannot_say(match: dict[str, Any], part: str) -> None:
    assert untranslatable(match) == part


@pytest.mark.parametrize(
    ("match", "part", "words"),
    [
        ({"header": {"x-group": {"exact": "beta"}}}, ".header", "is no field of Istio's HTTPMatchRequest"),
        ({"header": {"x-group": {"exact": "beta"}}}, "", "every request would go to the experiment"),
        ({"name": "beta", "headers": {}}, "", "every request would go to the experiment"),
        ({}, "", "needs at least 1 entry"),
        ({"headers": {"x-group": "beta"}}, ".headers.x-group", "exactly one of exact, prefix, regex"),
        ({"headers": {"x-group": {"exact": 1}}}, ".headers.x-group", "exactly one of exact, prefix, regex"),
        ({"headers": ["x-group"]}, ".headers", "must be an object"),
        ({"uri": {"exact": "/a", "prefix": "/b"}}, ".uri", "exactly one of exact, prefix, regex"),
    ],
)
def test_a_condition_that_istio_would_read_wider_is_refused(match: dict[str, Any], part: str, words: str) -> None:
    """Fields that its schema does not know are dropped, and an empty condition is all of production."""
    for provider in ("istio", "gateway-api"):
        outcome = validate(
            with_two(traffic={"provider": provider, "experiments": [{"version": "v2", "match": [match]}]})
        )
        found = {problem.field: problem.message for problem in outcome.problems}
        assert words in found[f"spec.traffic.experiments[0].match[0]{part}"]


@pytest.mark.parametrize(
    "match",
    [
        {"headers": {"x-group": {}}},
        {"withoutHeaders": {"x-bot": {}}, "ignoreUriCase": True, "uri": {"prefix": "/v2"}},
        {"port": 9000},
        {"sourceLabels": {"app": "a"}, "gateways": ["mesh"]},
        {"queryParams": {"debug": {"exact": "1"}}, "authority": {"regex": "a.*"}},
    ],
)
def test_every_condition_of_istios_can_be_said(match: dict[str, Any]) -> None:
    assert validate(with_two(traffic={"experiments": [{"version": "v2", "match": [match]}]})).problems == ()


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"autoscaling": {"minReplicas": "2"}}, "autoscaling.minReplicas", "must be a whole number, not '2'"),
        ({"autoscaling": {"dryRun": "true"}}, "autoscaling.dryRun", "must be true or false, not 'true'"),
        ({"suspend": 1}, "suspend", "must be true or false, not 1"),
        ({"autoscaling": {"qps": {"target": "60"}}}, "autoscaling.qps.target", "must be a number, not '60'"),
        ({"runtime": {"limits": {"maxRequestBytes": -1}}}, "runtime.limits.maxRequestBytes", "at least 0, not -1"),
        ({"runtime": {"limits": {"maxRequestBytes": "500m"}}}, "runtime.limits.maxRequestBytes", "at least one byte"),
        ({"runtime": {"serviceAccountName": "a b"}}, "runtime.serviceAccountName", "the name of an object"),
        ({"runtime": {"image": "a b"}}, "runtime.image", "text without spaces"),
        ({"traffic": {"resilience": {"retries": {"on": []}}}}, "traffic.resilience.retries.on", "at least 1 entry"),
        ({"traffic": {"resilience": {"retries": {"on": ["a,b"]}}}}, "traffic.resilience.retries.on[0]", "not 'a,b'"),
        (
            {"traffic": {"resilience": {"rateLimit": {"requestsPerSecond": 1e308}}}},
            "traffic.resilience.rateLimit.requestsPerSecond",
            "at most 1000000",
        ),
        (
            {"traffic": {"resilience": {"rateLimit": {"requestsPerSecond": 1e-9}}}},
            "traffic.resilience.rateLimit.requestsPerSecond",
            "at least 0.001",
        ),
    ],
)
def test_what_the_api_server_or_others_would_refuse_is_refused(spec: dict[str, Any], field: str, words: str) -> None:
    [problem] = validate(model_deployment(**spec)).problems
    assert problem.field == f"spec.{field}"
    assert words in problem.message


def test_whole_numbers_may_have_a_point() -> None:
    assert validate(model_deployment(replicas=1.0, autoscaling={"tolerance": 0})).problems == ()


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"versions": [V1, V1], "serve": "v1"}, "spec.versions"),
        ({"traffic": {"hosts": ["a", "a"]}}, "spec.traffic.hosts"),
        ({"runtime": {"env": [{"name": "A"}, {"name": "A", "value": "1"}]}}, "spec.runtime.env"),
    ],
)
def test_duplicates_are_told(spec: dict[str, Any], field: str) -> None:
    obj = model_deployment()
    obj["spec"] |= spec
    assert fields(obj) == [field]


def test_numbers_that_no_calendar_or_float_can_hold_are_refused() -> None:
    assert fields(model_deployment(rollout={"progressDeadline": "999999999h"})) == ["spec.rollout.progressDeadline"]
    assert "spec.rollout.analysis.checks[0].maxValue" in fields(with_check(metric="errorRate", maxValue="1e999"))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"rollout": {"analysis": {"checks": []}}}, "spec.rollout.analysis.checks"),
        ({"rollout": {"approvedVersion": "v1"}}, "spec.rollout.approvedVersion"),
        ({"rollout": {"steps": [{"weight": 5, "hold": "10s"}]}}, "spec.rollout.steps[0].hold"),
        (
            {"rollout": {"analysis": {"checks": [{"name": "e", "metric": "errorRate", "maxValue": "0.02"}]}}},
            "spec.rollout.analysis.checks[0].maxValue",
        ),
        ({"autoscaling": {"onMissingMetrics": "AtLeast"}}, "spec.autoscaling.fallbackReplicas"),
        ({"replicas": 4}, "spec.replicas"),
        ({"rolout": {}}, "spec.rolout"),
        ({"traffic": {"resilience": {"retries": {True: ["reset"]}}}}, "spec.traffic.resilience.retries.True"),
    ],
)
def test_warnings_leave_the_spec_valid(spec: dict[str, Any], field: str) -> None:
    obj = model_deployment()
    obj["spec"] |= spec
    outcome = validate(obj)
    assert outcome.spec is not None
    assert [warning.field for warning in outcome.warnings] == [field]


def test_a_long_list_of_problems_is_cut_in_the_message() -> None:
    versions = [{"name": f"V{index}", "uri": "nowhere"} for index in range(16)]
    outcome = validate(model_deployment(versions=versions, serve="v1"))
    assert len(outcome.problems) == 32
    assert outcome.message.endswith("; and 22 more")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=8), below, max_size=3),
    max_leaves=8,
)
FULL = with_two(
    runtime={"limits": {"timeout": "30s"}, "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"cpu": 1}}},
    traffic={"hosts": ["a.b"], "resilience": {"retries": {"on": ["reset"]}}},
    rollout={"steps": [{"weight": 5}], "analysis": {"checks": [{"name": "c", "metric": "errorRate"}]}},
    autoscaling={"qps": {"target": 5}},
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [path, *(deeper for key in keys for deeper in _paths(value[key], (*path, key)))]


@given(path=st.sampled_from(_paths(FULL)[1:]), junk=JSON)
def test_no_junk_anywhere_makes_validation_raise(path: tuple[Any, ...], junk: Any) -> None:
    obj = deepcopy(FULL)
    here: Any = obj
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = junk
    outcome = validate(obj)
    assert (outcome.spec is None) == bool(outcome.problems)


def test_the_whole_contract_is_known_and_kept() -> None:
    contract = yaml.safe_load((Path(__file__).parent / "contract.yaml").read_text())
    outcome = validate(contract)
    assert outcome.problems == ()
    assert [warning.field for warning in outcome.warnings if warning.reason == "UnknownField"] == []


@pytest.mark.parametrize(
    "endpoint",
    ["collector:4318", "grpc://collector:4317", "http://", "http://u:p@collector", "http://c:1/?q=1", "http://c d"],
)
def test_a_collector_has_an_http_url(endpoint: str) -> None:
    obj = model_deployment()
    obj["spec"]["runtime"] = {"tracing": {"endpoint": endpoint}}
    outcome = validate(obj)
    assert [problem.field for problem in outcome.problems] == ["spec.runtime.tracing.endpoint"]
    obj["spec"]["runtime"] = {"tracing": {"endpoint": "https://collector.example:4318/v1/traces", "sampleRatio": 0.5}}
    assert not validate(obj).problems
