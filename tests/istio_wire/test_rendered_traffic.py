"""What the operator renders, through a real Envoy: the same promises hold with every provider."""

import re
from collections import Counter
from typing import Any

import pytest
from slipway.api.status import Role, VersionStatus

from e2e.sandbox.mesh.translation import MeshObjects, translate
from tests.istio_wire.mesh_bench import HOST, Bench, Pod, endpoint_slice
from tests.resources.rendering import canary, entry_of, raw_spec, render, revisions_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROVIDERS = ("istio", "gateway-api")
PUBLIC = "sentiment.example.com"
ROUTED = {"hosts": [PUBLIC], "gateways": ["istio-ingress/public"]}
V1, V2 = "200 10.244.0.1", "200 10.244.0.2"

Object = dict[str, Any]


def matches(labels: dict[str, str], selector: dict[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in selector.items())


def in_cluster(rendered: tuple[Object, ...], pods: list[Pod], *others: Object) -> MeshObjects:
    """The objects as a cluster would hold them: pods carry their Deployments' labels, Services have endpoints."""
    objects = [*rendered, *others]

    def of(kind: str) -> tuple[Object, ...]:
        return tuple(item for item in objects if item["kind"] == kind)

    deployments = sorted(of("Deployment"), key=lambda item: item["metadata"]["name"])
    for pod, deployment in zip(pods, deployments, strict=False):
        pod.labels = deployment["spec"]["template"]["metadata"]["labels"]
    slices = []
    for service in of("Service"):
        for pod in pods:
            if matches(pod.labels, service["spec"]["selector"]):
                slices.append(endpoint_slice(service["metadata"]["name"], pod))
    return MeshObjects(
        virtual_services=of("VirtualService"),
        destination_rules=of("DestinationRule"),
        services=of("Service"),
        endpoint_slices=tuple(slices),
        pods=tuple({"metadata": {"name": pod.name, "namespace": "nlp", "labels": pod.labels}} for pod in pods),
        http_routes=of("HTTPRoute"),
    )


async def show(bench: Bench, spec: Object, entries: tuple[VersionStatus, ...], *others: Object) -> None:
    config = translate(in_cluster(render(spec, entries), bench.pods, *others))
    assert config.rejections == ()
    await bench.proxy.apply(config)


def split(spec: Object, stable: int) -> tuple[VersionStatus, ...]:
    return canary(spec, stable=stable)


def spec_with(provider: str, **traffic: Any) -> Object:
    return raw_spec(traffic={"provider": provider, **traffic})


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("host", [HOST, f"{HOST}:80", PUBLIC])
async def test_weights_hold_for_the_gateway_and_in_the_mesh(bench: Bench, provider: str, host: str) -> None:
    spec = spec_with(provider, **ROUTED)
    await show(bench, spec, split(spec, 100))
    assert set(await bench.send(20, host=host)) == {V1}
    await show(bench, spec, split(spec, 0))
    assert set(await bench.send(20, host=host)) == {V2}
    await show(bench, spec, split(spec, 75))
    answers = await bench.send(400, host=host)
    assert set(answers) == {V1, V2}
    # Four standard deviations of a binomial with 400 draws at 25 %.
    assert abs(answers[V2] - 100) < 35


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_pin_goes_before_weights_and_answers_tell_their_version(bench: Bench, provider: str) -> None:
    spec = spec_with(provider)
    await show(bench, spec, split(spec, 100))
    assert set(await bench.send(10, x_model_version="v2")) == {V2}
    for sent, told in (({}, "v1"), ({"x-model-version": "v2"}, "v2"), ({"x-model-version": "v9"}, "v1")):
        async with bench.session.get(bench.proxy.url, headers={"Host": HOST, **sent}) as answer:
            assert answer.headers["x-model-version"] == told


async def cookie_of(bench: Bench, **headers: str) -> tuple[str, str]:
    """The cookie that an answer sets (empty: none) and the version that answered."""
    async with bench.session.get(bench.proxy.url, headers={"Host": HOST, **headers}) as answer:
        assert answer.status == 200
        set_cookie = answer.headers.get("set-cookie", "")
        return set_cookie.partition(";")[0], answer.headers["x-model-version"]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_user_stays_with_the_version_drawn_first(bench: Bench, provider: str) -> None:
    spec = spec_with(provider, sessionAffinity={"cookie": "slipway-user", "ttl": "2h"})
    await show(bench, spec, split(spec, 50))
    drawn = dict([await cookie_of(bench) for _ in range(40)])
    assert set(drawn.values()) == {"v1", "v2"}
    for cookie, version in drawn.items():
        assert cookie.startswith(f"slipway-user=sentiment-{version}-")
        for sent in (cookie, f"a=b; {cookie}", f"{cookie}; c=d", f"a=b;{cookie};c=d"):
            kept = {await cookie_of(bench, cookie=sent) for _ in range(8)}
            assert kept == {("", version)}
    # Neither another cookie nor a longer name or value is taken for it.
    candidates = [cookie for cookie, version in drawn.items() if version == "v2"]
    await show(bench, spec, split(spec, 99))
    for other in (f"x{candidates[0]}", f"{candidates[0]}x", "slipway-user=v2"):
        assert (await cookie_of(bench, cookie=other))[0] != ""
    # The pin of a request goes before the user's cookie.
    assert await cookie_of(bench, cookie=candidates[0], **{"x-model-version": "v1"}) == ("", "v1")


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_user_follows_when_the_version_goes(bench: Bench, provider: str) -> None:
    spec = spec_with(provider, sessionAffinity={"cookie": "u", "ttl": "1h"})
    stable, candidate = split(spec, 0)
    await show(bench, spec, (stable, candidate))
    cookie, version = await cookie_of(bench)
    assert version == "v2"
    await show(bench, spec, split(spec, 100))
    again, version = await cookie_of(bench, cookie=cookie)
    assert version == "v1"
    assert re.fullmatch(r"u=sentiment-v1-[0-9a-f]{8}", again)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_copies_reach_the_mirrored_version_and_nobody_waits_for_them(bench: Bench, provider: str) -> None:
    spec = spec_with(provider, mirror={"version": "v2", "percent": 100}) | {"serve": "v2"}
    await show(bench, spec, split(spec, 100))
    bench.pods[1].status = 500
    assert await bench.send(10) == Counter({V1: 10})
    await bench.pods[1].received(10)
    assert len(bench.pods[0].requests) == 10
    # A version that serves alone gets no copies of its own requests.
    bench.pods[1].reset()
    first, second = revisions_of(spec).values()
    await show(bench, spec, (entry_of(first, role=Role.RETIRING), entry_of(second, weight=100)))
    assert await bench.send(10) == Counter({V2: 10})
    assert len(bench.pods[1].requests) == 10


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_request_is_given_up_after_the_timeout(bench: Bench, provider: str) -> None:
    spec = spec_with(provider, resilience={"timeout": "100ms"})
    await show(bench, spec, split(spec, 100))
    bench.pods[0].delay = 0.6
    assert await bench.send() == Counter({"504": 1})


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_experiment_gets_what_its_matches_describe_whole(bench: Bench, provider: str) -> None:
    matches = [{"headers": {"x-group": {"exact": "beta"}}}, {"uri": {"prefix": "/beta"}}]
    spec = spec_with(provider, experiments=[{"version": "v2", "weight": 20, "match": matches}])
    first, second = revisions_of(spec).values()
    taking = entry_of(second, weight=20, role=Role.EXPERIMENT, matched=True)
    await show(bench, spec, (entry_of(first, weight=80), taking))
    assert set(await bench.send(10, x_group="beta")) == {V2}
    assert set(await bench.send(10, path="/beta/a")) == {V2}
    answers = await bench.send(300, x_group="alpha")
    assert set(answers) == {V1, V2}
    assert abs(answers[V2] - 60) < 28
    assert set(await bench.send(10, x_group="beta", x_model_version="v1")) == {V1}


async def test_a_delegate_serves_under_its_roots_hosts(bench: Bench) -> None:
    """Research case T59: the root stays the user's, with routes of its own."""
    spec = spec_with("istio", virtualService={"delegate": True})
    first = next(iter(revisions_of(spec)))
    root = {
        "kind": "VirtualService",
        "metadata": {"name": "root", "namespace": "edge"},
        "spec": {
            "hosts": [PUBLIC],
            "gateways": ["istio-ingress/public"],
            "http": [
                {"match": [{"uri": {"prefix": "/docs"}}], "directResponse": {"status": 418}},
                {"match": [{"uri": {"prefix": "/"}}], "delegate": {"name": "sentiment", "namespace": "nlp"}},
            ],
        },
    }
    await show(bench, spec, split(spec, 75), root)
    answers = await bench.send(200, host=PUBLIC)
    assert set(answers) == {V1, V2}
    assert await bench.send(host=PUBLIC, path="/docs") == Counter({"418": 1})
    assert set(await bench.send(10, host=PUBLIC, x_model_version="v2")) == {V2}
    assert first.startswith("sentiment-v1-")


async def test_without_a_provider_the_service_leads_to_one_revision(bench: Bench) -> None:
    spec = spec_with("none", versionHeader="") | {"rollout": {"strategy": "BlueGreen"}}
    await show(bench, spec, split(spec, 100))
    assert set(await bench.send(20)) == {V1}
    await show(bench, spec, split(spec, 0))
    assert set(await bench.send(20)) == {V2}
    # Each revision can be looked at under a name of its own before it serves.
    first, _ = revisions_of(spec)
    assert set(await bench.send(5, host=f"{first}.nlp.svc.cluster.local:80")) == {V1}


@pytest.mark.parametrize("provider", [*PROVIDERS, "none"])
async def test_no_request_fails_while_a_revision_comes_and_goes(bench: Bench, provider: str) -> None:
    """Subset before weight, weight before subset, as the status says; Service and routes change in one step here."""
    spec = spec_with(provider)
    stable, candidate = split(spec, 100)
    hidden = candidate.model_copy(update={"subset": False})
    course = [
        (stable, hidden),
        (stable, candidate),
        split(spec, 50),
        split(spec, 0),
        split(spec, 100),
        (stable, hidden),
    ]
    for entries in course:
        await show(bench, spec, entries)
        assert {answer.split()[0] for answer in await bench.send(20)} == {"200"}


@pytest.mark.parametrize(("before", "after"), [("istio", "gateway-api"), ("gateway-api", "istio")])
async def test_changing_the_provider_fails_no_request(bench: Bench, before: str, after: str) -> None:
    """At rest: what is new is applied before what is old is deleted, so for a moment both exist."""
    old, new = spec_with(before), spec_with(after)
    stable = (split(old, 100)[0],)
    objects_before, objects_after = render(old, stable), render(new, stable)
    kept = [item for item in objects_before if item["kind"] in {"VirtualService", "DestinationRule", "HTTPRoute"}]
    await show(bench, old, stable)
    for state in (in_cluster(objects_after, bench.pods, *kept), in_cluster(objects_after, bench.pods)):
        await bench.proxy.apply(translate(state))
        assert set(await bench.send(60)) == {V1}
