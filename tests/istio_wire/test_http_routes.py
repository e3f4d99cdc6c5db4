"""HTTPRoutes in the sandbox's mesh: precedence, prefixes, defaults and parents as Gateway API says, through Envoy."""

from collections import Counter
from typing import Any

import pytest

from e2e.sandbox.mesh.translation import MeshObjects, translate
from tests.istio_wire.mesh_bench import HOST, Bench, endpoint_slice, service

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONE, TWO = "200 10.244.0.1", "200 10.244.0.2"
PUBLIC = "public.example.com"
GATEWAY = {"name": "public", "namespace": "edge"}
PARENT = {"group": "", "kind": "Service", "name": "sentiment"}


def backend(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "port": 80, **more}


def to(name: str, *matches: dict[str, Any], **more: Any) -> dict[str, Any]:
    rule: dict[str, Any] = {"backendRefs": [backend(name)], **more}
    return rule | ({"matches": list(matches)} if matches else {})


def path(value: str, kind: str = "PathPrefix", **more: Any) -> dict[str, Any]:
    return {"path": {"type": kind, "value": value}, **more}


def http_route(*rules: dict[str, Any], name: str = "r", created: str = "1", **spec: Any) -> dict[str, Any]:
    fields = {"parentRefs": [GATEWAY], "hostnames": [PUBLIC], "rules": list(rules), **spec}
    metadata = {"name": name, "namespace": "nlp", "creationTimestamp": f"2026-01-0{created}T00:00:00Z"}
    return {"kind": "HTTPRoute", "metadata": metadata, "spec": fields}


async def show(bench: Bench, *routes: dict[str, Any]) -> None:
    """Two Services with one pod each, a third over both, and these routes."""
    first, second = bench.pods
    objects = MeshObjects(
        services=tuple(service(name, {"http": 80, "grpc": 9000}) for name in ("sentiment", "one", "two")),
        endpoint_slices=(
            endpoint_slice("sentiment", first),
            endpoint_slice("sentiment", second),
            endpoint_slice("one", first),
            endpoint_slice("two", second),
        ),
        http_routes=routes,
    )
    config = translate(objects)
    assert config.rejections == ()
    await bench.proxy.apply(config)


async def ask(bench: Bench, **request: Any) -> set[str]:
    return set(await bench.send(6, **{"host": PUBLIC, **request}))


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (path("/a/b", "Exact"), path("/a/b")),
        (path("/a/b"), path("/a")),
        (path("/a", method="GET"), path("/a", headers=[{"name": "x", "value": "1"}])),
        (
            path("/a", headers=[{"name": "x", "value": "1"}, {"name": "y", "value": "2"}]),
            path("/a", headers=[{"name": "x", "value": "1"}]),
        ),
        (path("/a", headers=[{"name": "x", "value": "1"}]), path("/a", queryParams=[{"name": "q", "value": "1"}])),
        (path("/a", queryParams=[{"name": "q", "value": "1"}]), path("/a")),
    ],
)
async def test_what_says_more_is_tried_first(bench: Bench, better: dict[str, Any], worse: dict[str, Any]) -> None:
    request = {"path": "/a/b?q=1", "x": "1", "y": "2"}
    await show(bench, http_route(to("one", worse), to("two", better)))
    assert await ask(bench, **request) == {TWO}
    await show(bench, http_route(to("one", worse), name="a"), http_route(to("two", better), name="b", created="9"))
    assert await ask(bench, **request) == {TWO}


async def test_ties_go_to_the_older_route_and_the_first_rule(bench: Bench) -> None:
    await show(bench, http_route(to("one", path("/"))), http_route(to("two", path("/")), name="a", created="2"))
    assert await ask(bench) == {ONE}
    await show(bench, http_route(to("two", path("/a")), to("one", path("/a"))))
    assert await ask(bench, path="/a") == {TWO}


async def test_a_prefix_ends_at_a_slash(bench: Bench) -> None:
    await show(bench, http_route(to("two", path("/a")), to("one")))
    assert await ask(bench, path="/a") == {TWO}
    assert await ask(bench, path="/a/b") == {TWO}
    assert await ask(bench, path="/ab") == {ONE}


async def test_a_backend_without_a_weight_weighs_one_and_nothing_is_500(bench: Bench) -> None:
    both = {"backendRefs": [backend("one"), backend("two", weight=3)]}
    await show(bench, http_route(both))
    answers = await bench.send(200, host=PUBLIC)
    assert abs(answers[TWO] - 150) < 30
    await show(bench, http_route({"matches": [path("/")]}))
    assert await ask(bench) == {"500"}


async def test_no_rule_answers_404(bench: Bench) -> None:
    await show(bench, http_route(to("one", path("/a"))))
    assert await ask(bench, path="/b") == {"404"}


async def test_parents_say_where_a_route_holds(bench: Bench) -> None:
    await show(bench, http_route(to("two"), parentRefs=[PARENT | {"port": 80}]))
    assert await ask(bench, host=HOST) == {TWO}
    assert await ask(bench) == {"404"}
    await show(bench, http_route(to("two"), parentRefs=[PARENT | {"port": 81}]))
    assert await ask(bench, host=HOST) == {ONE, TWO}
    await show(bench, http_route(to("two"), parentRefs=[PARENT, GATEWAY]))
    assert await ask(bench) == await ask(bench, host=HOST) == {TWO}


async def test_headers_are_changed_per_rule_and_per_backend(bench: Bench) -> None:
    def changed(name: str, direction: str) -> list[dict[str, Any]]:
        changes = {"set": [{"name": name, "value": "1"}]}
        return [{"type": f"{direction.capitalize()}HeaderModifier", f"{direction}HeaderModifier": changes}]

    rule = {
        "filters": changed("x-rule", "request"),
        "backendRefs": [backend("one", filters=changed("x-backend", "response"))],
    }
    await show(bench, http_route(rule))
    async with bench.session.get(bench.proxy.url, headers={"Host": PUBLIC}) as answer:
        assert answer.headers["x-backend"] == "1"
    assert bench.pods[0].requests[0].headers["x-rule"] == "1"


async def test_an_unknown_filter_takes_the_route_out_and_says_so(bench: Bench) -> None:
    redirect = {"type": "RequestRedirect", "requestRedirect": {"statusCode": 301}}
    config = translate(MeshObjects(http_routes=(http_route({"filters": [redirect]}),)))
    (rejection,) = config.rejections
    assert "RequestRedirect" in rejection.reason


async def test_a_timeout_ends_a_request(bench: Bench) -> None:
    bench.pods[0].delay = 0.6
    await show(bench, http_route(to("one", timeouts={"request": "100ms"})))
    assert await bench.send(host=PUBLIC) == Counter({"504": 1})
