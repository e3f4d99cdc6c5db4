"""What the mesh does with requests beyond the recorded scenes, each case through a real Envoy."""

import asyncio
import copy
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from e2e.sandbox.mesh.discovery import RefusedError
from tests.istio_wire.mesh_bench import HOST, Bench, Pod, scene, service

pytestmark = pytest.mark.asyncio(loop_scope="module")

V1, V2 = "v1-aaaa", "v2-bbbb"
SLOW = 0.6


def destination(subset: str = V1, **more: Any) -> dict[str, Any]:
    return {"destination": {"host": HOST, "subset": subset, "port": {"number": 80}}, **more}


def virtual_service(*http: dict[str, Any], name: str = "sentiment", **spec: Any) -> dict[str, Any]:
    fields = {"hosts": [HOST], "gateways": ["mesh", "istio-system/public"], "http": list(http), **spec}
    return {"kind": "VirtualService", "metadata": {"name": name, "namespace": "nlp"}, "spec": fields}


def destination_rule(*subsets: str, **policy: Any) -> dict[str, Any]:
    listed = [{"name": subset, "labels": {"rev": subset}} for subset in subsets or (V1, V2)]
    spec = {"host": HOST, "subsets": listed, "trafficPolicy": policy}
    return {"kind": "DestinationRule", "metadata": {"name": "sentiment", "namespace": "nlp"}, "spec": spec}


async def show(bench: Bench, *http: dict[str, Any], **spec: Any) -> None:
    await bench.show([destination_rule(), virtual_service(*http, **spec)])


# ---------------------------------------------------------------- retries and time


@pytest.mark.parametrize(("retries", "tries"), [(None, 3), ({"attempts": 0}, 1), ({"attempts": 4}, 5)])
async def test_retries_double_the_load_unless_turned_off(
    bench: Bench, retries: dict[str, Any] | None, tries: int
) -> None:
    bench.pods[0].status = 503
    await show(bench, {"route": [destination()], **({"retries": retries} if retries else {})})
    assert await bench.send() == Counter({"503": 1})
    assert len(bench.pods[0].requests) == tries


async def test_an_error_of_the_server_is_not_retried_by_default(bench: Bench) -> None:
    bench.pods[0].status = 500
    await show(bench, {"route": [destination()]})
    assert await bench.send() == Counter({"500": 1})
    assert len(bench.pods[0].requests) == 1


async def test_status_codes_may_stand_among_the_retry_conditions(bench: Bench) -> None:
    bench.pods[0].status = 429
    await show(bench, {"route": [destination()], "retries": {"attempts": 1, "retryOn": "connect-failure,429"}})
    assert await bench.send() == Counter({"429": 1})
    assert len(bench.pods[0].requests) == 2


async def test_timeout_ends_a_request(bench: Bench) -> None:
    bench.pods[0].delay = SLOW
    await show(bench, {"route": [destination()], "timeout": "100ms"})
    assert await bench.send() == Counter({"504": 1})


async def test_each_try_has_its_own_timeout(bench: Bench) -> None:
    bench.pods[0].delay = SLOW
    retries = {"attempts": 2, "perTryTimeout": "200ms", "retryOn": "gateway-error"}
    await show(bench, {"route": [destination()], "timeout": "10s", "retries": retries})
    assert await bench.send() == Counter({"504": 1})
    await bench.pods[0].received(3)
    assert len(bench.pods[0].requests) == 3


# ---------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    ("match", "hit", "missed"),
    [
        ({"uri": {"exact": "/a"}}, {"path": "/a"}, {"path": "/a/b"}),
        ({"uri": {"prefix": "/v2/"}}, {"path": "/v2/x"}, {"path": "/v1/x"}),
        ({"uri": {"regex": "/m/[0-9]+"}}, {"path": "/m/12"}, {"path": "/m/12x"}),
        ({"uri": {"prefix": "/A"}, "ignoreUriCase": True}, {"path": "/abc"}, {"path": "/bcd"}),
        ({"method": {"exact": "POST"}}, {"method": "POST"}, {"method": "GET"}),
        ({"headers": {"x-g": {"exact": "beta"}}}, {"x_g": "beta"}, {"x_g": "beta2"}),
        ({"headers": {"x-g": {"prefix": "be"}}}, {"x_g": "beta"}, {"x_g": "alpha"}),
        ({"headers": {"x-g": {"regex": "b.t."}}}, {"x_g": "beta"}, {"x_g": "betas"}),
        ({"headers": {"x-g": {}}}, {"x_g": "any"}, {}),
        ({"withoutHeaders": {"x-g": {"exact": "beta"}}}, {"x_g": "alpha"}, {"x_g": "beta"}),
        ({"queryParams": {"q": {"exact": "1"}}}, {"path": "/?q=1"}, {"path": "/?q=2"}),
        ({"headers": {"x-g": {"exact": "b"}}, "uri": {"prefix": "/b"}}, {"x_g": "b", "path": "/b"}, {"x_g": "b"}),
    ],
)
async def test_match(bench: Bench, match: dict[str, Any], hit: dict[str, str], missed: dict[str, str]) -> None:
    await show(bench, {"match": [match], "route": [destination(V2)]}, {"route": [destination(V1)]})
    assert set(await bench.send(3, **hit)) == {"200 10.244.0.2"}
    assert set(await bench.send(3, **missed)) == {"200 10.244.0.1"}


async def test_one_of_several_matches_is_enough(bench: Bench) -> None:
    matches = [{"uri": {"prefix": "/a"}}, {"uri": {"prefix": "/b"}}]
    await show(bench, {"match": matches, "route": [destination(V2)]}, {"route": [destination(V1)]})
    assert set(await bench.send(path="/b")) == {"200 10.244.0.2"}


async def test_no_route_answers_404(bench: Bench) -> None:
    await show(bench, {"match": [{"uri": {"prefix": "/a"}}], "route": [destination(V2)]})
    assert await bench.send(path="/b") == Counter({"404": 1})


# ---------------------------------------------------------------- headers, mirrors, other actions


async def test_headers_are_set_added_and_removed_per_route_and_destination(bench: Bench) -> None:
    operations = {
        "request": {"set": {"x-set": "new"}, "add": {"x-add": "more"}, "remove": ["x-gone"]},
        "response": {"set": {"x-model-version": "v1"}, "remove": ["server-timing"]},
    }
    both = [destination(V1, weight=100, headers=operations), destination(V2, weight=100, headers=operations)]
    await show(bench, {"route": both, "headers": {"request": {"set": {"x-route": "r"}}}})
    sent = {"Host": HOST, "x-set": "old", "x-add": "first", "x-gone": "bye"}
    async with bench.session.get(bench.proxy.url, headers=sent) as response:
        assert response.headers["x-model-version"] == "v1"
    (received,) = [request.headers for pod in bench.pods for request in pod.requests]
    assert received.getall("x-set") == ["new"]
    # Header lists may arrive as one line or as several.
    assert ",".join(received.getall("x-add")).replace(" ", "") == "first,more"
    assert "x-gone" not in received
    assert received["x-route"] == "r"


async def test_a_mirrored_request_carries_the_originals_id(bench: Bench) -> None:
    await show(bench, {"route": [destination(V1)], "mirror": destination(V2)["destination"]})
    await bench.send(5)
    await bench.pods[1].received(5)
    originals = [request.headers["x-request-id"] for request in bench.pods[0].requests]
    copies = [request.headers["x-request-id"] for request in bench.pods[1].requests]
    assert sorted(originals) == sorted(copies)
    assert {request.headers["host"] for request in bench.pods[1].requests} == {f"{HOST}-shadow"}


async def test_mirror_percentage_zero_and_the_list_form(bench: Bench) -> None:
    mirror = destination(V2)["destination"]
    await show(bench, {"route": [destination(V1)], "mirror": mirror, "mirrorPercentage": {"value": 0}})
    await bench.send(20)
    assert not bench.pods[1].requests
    await show(
        bench, {"route": [destination(V1)], "mirrors": [{"destination": mirror, "percentage": {"value": 100.0}}]}
    )
    await bench.send(5)
    await bench.pods[1].received(5)


async def test_fault_injection(bench: Bench) -> None:
    always = {"percentage": {"value": 100}}
    await show(bench, {"route": [destination()], "fault": {"abort": {"httpStatus": 418, **always}}})
    assert await bench.send() == Counter({"418": 1})
    await show(
        bench, {"route": [destination()], "fault": {"delay": {"fixedDelay": "200ms", "percentage": {"value": 100}}}}
    )
    started = time.monotonic()
    assert await bench.send() == Counter({"200 10.244.0.1": 1})
    assert time.monotonic() - started >= 0.19  # Envoy's timers count whole milliseconds


async def test_redirect_direct_response_and_rewrite(bench: Bench) -> None:
    await show(
        bench,
        {"match": [{"uri": {"exact": "/moved"}}], "redirect": {"uri": "/new", "redirectCode": 308}},
        {"match": [{"uri": {"exact": "/said"}}], "directResponse": {"status": 451, "body": {"string": "no"}}},
        {"match": [{"uri": {"prefix": "/api/"}}], "rewrite": {"uri": "/"}, "route": [destination()]},
    )
    async with bench.session.get(f"{bench.proxy.url}/moved", headers={"Host": HOST}, allow_redirects=False) as response:
        assert (response.status, response.headers["location"]) == (308, f"http://{HOST}/new")
    assert await bench.send(path="/said") == Counter({"451": 1})
    await bench.send(path="/api/v2/models")
    assert bench.pods[0].requests[-1].path == "/v2/models"


# ---------------------------------------------------------------- owners, delegates, hosts


async def test_the_older_owner_of_a_host_wins_whatever_its_name(bench: Bench) -> None:
    objects = copy.deepcopy(scene("two-owners-one-host")["objects"])
    created = {"aaa": "2026-01-02T00:00:00Z", "bbb": "2026-01-01T00:00:00Z"}
    for item in objects:
        if item["metadata"]["name"] in created:
            item["metadata"]["creationTimestamp"] = created[item["metadata"]["name"]]
    await bench.show(objects)
    assert set(await bench.send(20)) == {"200 10.244.0.2"}


async def test_delegate_is_narrowed_by_its_root(bench: Bench) -> None:
    root = virtual_service({"match": [{"uri": {"prefix": "/nlp"}}], "delegate": {"name": "inner"}}, name="root")
    inner = virtual_service(
        {"match": [{"uri": {"prefix": "/nlp/v2"}}], "route": [destination(V2)]},
        {"match": [{"uri": {"prefix": "/vision"}}], "route": [destination(V2)]},
        {"route": [destination(V1)], "timeout": "100ms"},
        name="inner",
    )
    del inner["spec"]["hosts"], inner["spec"]["gateways"]
    await bench.show([destination_rule(), root, inner])
    assert set(await bench.send(path="/nlp/v2/x")) == {"200 10.244.0.2"}
    assert set(await bench.send(path="/nlp/v1")) == {"200 10.244.0.1"}
    assert set(await bench.send(path="/vision")) == {"404"}


async def test_missing_delegate_leaves_the_other_routes(bench: Bench) -> None:
    absent = {"match": [{"uri": {"prefix": "/a"}}], "delegate": {"name": "nobody"}}
    await show(bench, absent, {"route": [destination(V1)]})
    assert set(await bench.send(path="/a")) == {"200 10.244.0.1"}


async def test_a_service_without_virtual_service_is_reached_by_its_mesh_names(bench: Bench) -> None:
    await bench.show([])
    for host in (HOST, "sentiment.nlp", "sentiment.nlp.svc", f"{HOST}:80"):
        assert set(await bench.send(20, host)) == {"200 10.244.0.1", "200 10.244.0.2"}
    assert set(await bench.send(host="sentiment")) == {"404"}
    assert set(await bench.send(host=f"{HOST}:81")) == {"404"}


async def test_a_mesh_only_virtual_service_governs_the_service(bench: Bench) -> None:
    await bench.show([destination_rule(), virtual_service({"route": [destination(V2)]}, gateways=["mesh"])])
    assert set(await bench.send(10)) == {"200 10.244.0.2"}


async def test_a_gateway_only_virtual_service_leaves_mesh_clients_alone(bench: Bench) -> None:
    await bench.show([destination_rule(), virtual_service({"route": [destination(V2)]}, gateways=["gw"])])
    assert set(await bench.send(10)) == {"200 10.244.0.2"}
    assert set(await bench.send(40, f"{HOST}:80")) == {"200 10.244.0.1", "200 10.244.0.2"}


async def test_a_missing_port_is_the_only_one_of_a_service_with_one(bench: Bench) -> None:
    single = service("sentiment", {"http": 80})
    await bench.show([single, destination_rule(), virtual_service({"route": [{"destination": {"host": "sentiment"}}]})])
    assert set(await bench.send(20)) == {"200 10.244.0.1", "200 10.244.0.2"}


async def test_port_condition_tells_mesh_ports_apart(bench: Bench) -> None:
    await show(bench, {"match": [{"port": 9000}], "directResponse": {"status": 418}}, {"route": [destination(V1)]})
    assert set(await bench.send(host=f"{HOST}:9000")) == {"418"}
    assert set(await bench.send(host=f"{HOST}:80")) == {"200 10.244.0.1"}


# ---------------------------------------------------------------- pods


async def test_a_pod_that_is_not_ready_gets_nothing(bench: Bench) -> None:
    bench.pods[0].ready = False
    await show(bench, {"route": [{"destination": {"host": HOST, "port": {"number": 80}}}]})
    assert set(await bench.send(20)) == {"200 10.244.0.2"}


async def test_a_cookie_keeps_a_pod_only_within_its_subset(bench: Bench) -> None:
    rule = destination_rule(loadBalancer={"consistentHash": {"httpCookie": {"name": "session", "ttl": "60s"}}})
    rule["spec"]["subsets"].append({"name": "both", "labels": {}})
    await bench.show([rule, virtual_service({"route": [destination("both")]})])
    async with bench.session.get(bench.proxy.url, headers={"Host": HOST}) as response:
        cookie = response.headers["set-cookie"].split(";")[0]
        first = await response.text()
    assert await bench.send(20, cookie=cookie) == Counter({f"200 {first}": 20})
    await bench.show([rule, virtual_service({"route": [destination(V1, weight=50), destination(V2, weight=50)]})])
    assert set(await bench.send(60, cookie=cookie)) == {"200 10.244.0.1", "200 10.244.0.2"}


async def test_outlier_detection_ejects_a_failing_pod(bench: Bench) -> None:
    detection = {"consecutive5xxErrors": 3, "interval": "100ms", "baseEjectionTime": "30s", "maxEjectionPercent": 100}
    anywhere = {"destination": {"host": HOST, "port": {"number": 80}}}
    bench.pods[0].status = 500
    rule = destination_rule(outlierDetection=detection)
    await bench.show([rule, virtual_service({"route": [anywhere], "retries": {"attempts": 0}})])
    await bench.send(40)
    # Each of Envoy's threads may send one more before it hears of the ejection.
    assert 3 <= len(bench.pods[0].requests) <= 5
    assert set(await bench.send(20)) == {"200 10.244.0.2"}


async def test_connection_pool_limits_reach_the_cluster(bench: Bench) -> None:
    pool = {"tcp": {"maxConnections": 1}, "http": {"http1MaxPendingRequests": 1}}
    bench.pods[0].delay = 0.3
    rule = destination_rule(connectionPool=pool)
    await bench.show([rule, virtual_service({"route": [destination()], "retries": {"attempts": 0}})])
    answers = sum(await asyncio.gather(*(bench.send() for _ in range(6))), Counter())
    # How many come through depends on who finds the one connection open already; without limits all would.
    assert answers["503"] >= 1
    assert answers["200 10.244.0.1"] >= 1


async def test_a_share_without_pods_fails_at_once_and_goes_nowhere_else(bench: Bench) -> None:
    nobody = {"name": "v9-none", "labels": {"rev": "v9-none"}}
    rule = destination_rule()
    rule["spec"]["subsets"].append(nobody)
    await bench.show(
        [rule, virtual_service({"route": [destination(V1, weight=50), destination("v9-none", weight=50)]})]
    )
    answers = await bench.send(100)
    assert answers["503"] > 0
    assert len(bench.pods[0].requests) == answers["200 10.244.0.1"]


async def test_a_grpc_port_is_spoken_to_in_http2(bench: Bench) -> None:
    """The listener itself stands for the gRPC server: it tells how many HTTP/2 connections it had."""
    port = int(bench.proxy.url.rsplit(":", 1)[1])
    itself = Pod("itself", "10.0.0.1", {"rev": V1}, port=port)
    hop = {"headers": {"x-hop": {"exact": "1"}}}
    second = {"match": [hop], "directResponse": {"status": 200, "body": {"string": "second"}}}
    onward = destination(V1, headers={"request": {"set": {"x-hop": "1"}}})
    onward["destination"]["port"]["number"] = 9000
    await bench.show([destination_rule(), virtual_service(second, {"route": [onward]})], [itself])
    before = await counter(bench, "http.mesh.downstream_cx_http2_total")
    assert set(await bench.send()) == {"200 second"}
    assert await counter(bench, "http.mesh.downstream_cx_http2_total") == before + 1


async def counter(bench: Bench, name: str) -> int:
    url = f"{bench.proxy.envoy_admin_url}/stats?filter=^{name}$"
    async with bench.session.get(url) as answer:
        return int((await answer.text()).split(":")[1])


# ---------------------------------------------------------------- changes


@asynccontextmanager
async def steady_load(bench: Bench) -> AsyncIterator[Counter[str]]:
    """Requests one after another, on several connections, while the body runs."""
    answers: Counter[str] = Counter()
    running = True

    async def load() -> None:
        while running:
            answers.update(await bench.send())

    tasks = [asyncio.create_task(load()) for _ in range(4)]
    try:
        yield answers
    finally:
        running = False
        await asyncio.gather(*tasks)


async def test_no_request_fails_while_subsets_come_and_go(bench: Bench) -> None:
    await bench.show([destination_rule(V1), virtual_service({"route": [destination(V1)]})], bench.pods[:1])
    async with steady_load(bench) as answers:
        for _ in range(5):
            both = virtual_service({"route": [destination(V1, weight=50), destination(V2, weight=50)]})
            await bench.show([destination_rule(V1, V2), both])
            await bench.show([destination_rule(V2), virtual_service({"route": [destination(V2)]})], bench.pods[1:])
            await bench.show([destination_rule(V1), virtual_service({"route": [destination(V1)]})], bench.pods[:1])
    assert set(answers) == {"200 10.244.0.1", "200 10.244.0.2"}


async def test_a_request_under_way_survives_the_end_of_its_subset(bench: Bench) -> None:
    bench.pods[0].delay = SLOW
    await bench.show([destination_rule(V1, V2), virtual_service({"route": [destination(V1)]})])
    request = asyncio.create_task(bench.send())
    await bench.pods[0].received(1)
    await bench.show([destination_rule(V2), virtual_service({"route": [destination(V2)]})], bench.pods[1:])
    assert await request == Counter({"200 10.244.0.1": 1})


async def test_envoys_refusal_keeps_what_was_before(bench: Bench) -> None:
    await show(bench, {"route": [destination(V1)]})
    # Python knows lookahead, RE2 does not.
    bad = {"match": [{"uri": {"regex": "(?=a)b"}}], "route": [destination(V2)]}
    for _ in range(2):
        with pytest.raises(RefusedError):
            await show(bench, bad, {"route": [destination(V2)]})
    assert set(await bench.send(5)) == {"200 10.244.0.1"}
    await show(bench, {"route": [destination(V2)]})
    assert set(await bench.send(5)) == {"200 10.244.0.2"}


@pytest.mark.parametrize(
    ("http", "reason"),
    [
        ({"route": [destination(V1, weight=0), destination(V2)]}, "total destination weight = 0"),
        ({"route": [destination(V1, weight=-1)]}, "negative"),
        ({"timeout": "10s"}, "exactly one"),
        ({"route": [destination(V1)], "timeout": "soon"}, "not a duration"),
        ({"match": [{"uri": {"regex": "("}}], "route": [destination(V1)]}, "not a regular expression"),
    ],
)
async def test_what_istiods_admission_refuses_takes_no_part(bench: Bench, http: dict[str, Any], reason: str) -> None:
    good = virtual_service({"route": [destination(V1)]}, name="good")
    bad = virtual_service(http, name="bad")
    config = bench.translate([destination_rule(), good, bad])
    (rejection,) = config.rejections
    assert (rejection.namespace, rejection.name) == ("nlp", "bad")
    assert reason in rejection.reason
    assert list(config.sources) == ["nlp/good"]
