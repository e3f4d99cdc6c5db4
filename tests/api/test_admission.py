"""Tenants and the answer cache: what would do nothing, or not what it says, is refused."""

from typing import Any

import pytest
from slipway.api.revisions import revision_of
from slipway.api.validation import validate

from tests.api.cases import V1, model_deployment

OTLP = "http://collector:4318"
JWT = {"auth": {"jwt": {"issuer": "https://issuer"}}}


def problems(runtime: dict[str, Any], traffic: dict[str, Any] | None = None) -> dict[str, str]:
    outcome = validate(model_deployment(runtime=runtime, traffic=traffic or {}))
    return {problem.field: problem.message for problem in outcome.problems}


@pytest.mark.parametrize(
    ("runtime", "traffic"),
    [
        ({"tenants": {"header": "x-tenant"}}, {}),
        ({"tenants": {"header": "x", "overrides": [{"name": "gold", "priority": 100}, {"name": "iron"}]}}, {}),
        ({"tenants": {"header": "x-claims", "claim": "org"}}, JWT),
        ({"cache": {"maxBytes": "1Gi", "ttl": "1h"}}, {}),
        ({"cache": {"maxBytes": 0, "ttl": "0s"}}, {}),
        ({"limits": {"maxInflightBytes": "1Gi"}}, {}),
    ],
)
def test_what_the_server_keeps_is_accepted(runtime: dict[str, Any], traffic: dict[str, Any]) -> None:
    assert problems(runtime, traffic) == {}


@pytest.mark.parametrize(
    ("runtime", "field", "words"),
    [
        ({"tenants": {"default": {"requestsPerSecond": 5}}}, "tenants.header", "required"),
        ({"tenants": {"overrides": [{"name": "gold"}]}}, "tenants.header", "required"),
        ({"tenants": {"header": "x", "overrides": [{"name": "default"}]}}, "tenants.overrides[0].name", "default"),
        ({"tenants": {"header": "x", "overrides": [{"name": "a"}, {"name": "a"}]}}, "tenants.overrides", "a"),
        ({"tenants": {"header": "x", "default": {"priority": 101}}}, "tenants.default.priority", "at most 100"),
        ({"tenants": {"header": "x", "default": {"requestsPerSecond": -1}}}, "tenants.default.requestsPerSecond", "0"),
        ({"tenants": {"header": "x tenant"}}, "tenants.header", "must"),
        ({"tenants": {"header": "x-claims", "claim": "org"}}, "tenants.claim", "jwt.issuer"),
        ({"cache": {"maxBytes": "1Mi", "ttl": "0s"}}, "cache.ttl", "more than 0"),
        ({"engine": "triton", "cache": {"maxBytes": "1Mi"}}, "cache", "engine triton"),
        ({"engine": "vllm", "tenants": {"header": "x"}}, "tenants", "engine vllm"),
        ({"engine": "custom", "image": "i:1", "limits": {"maxInflightBytes": "1Mi"}}, "limits", "engine custom"),
    ],
)
def test_what_would_do_nothing_is_refused(runtime: dict[str, Any], field: str, words: str) -> None:
    found = problems(runtime)
    assert [one for one in found if one.startswith(f"spec.runtime.{field}")] == list(found)
    assert found and all(words in message for message in found.values())


@pytest.mark.parametrize(
    ("own", "refused"),
    [
        ({"maxBytes": "1Gi"}, []),
        ({"ttl": "0s"}, ["spec.versions[0].runtime.cache"]),  # for a cache whose size spec.runtime says
        ({"ttl": "0s", "maxBytes": 0}, []),
    ],
)
def test_a_versions_cache_is_what_it_says_merged_over_the_others(own: dict[str, Any], refused: list[str]) -> None:
    version = {**V1, "runtime": {"cache": own, "tracing": {"sampleRatio": 1}}}
    obj = model_deployment(versions=[version], runtime={"cache": {"maxBytes": "1Mi"}, "tracing": {"endpoint": OTLP}})
    assert [problem.field for problem in validate(obj).problems] == refused
    runtime = revision_of("sentiment", obj["spec"], "v1").runtime
    assert (runtime.tracing.endpoint, runtime.tracing.sample_ratio) == (OTLP, 1)
    assert runtime.cache.ttl == own.get("ttl", "60s")
