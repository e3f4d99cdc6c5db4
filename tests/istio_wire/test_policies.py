"""Tokens, authorization and rate limits as the operator renders them, each through a real Envoy."""

import asyncio
import base64
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from slipway.api.spec import ModelDeploymentSpec
from slipway.resources import Identity, RenderOptions
from slipway.resources.policies import policies
from slipway_runtime.serving.tenants import read_rules

from e2e.sandbox.mesh.keys import KeyStore
from e2e.sandbox.mesh.policies import PolicyObjects, key_addresses
from e2e.sandbox.mesh.translation import translate
from tests.istio_wire.mesh_bench import HOST, Bench, mesh_objects

pytestmark = pytest.mark.asyncio(loop_scope="module")

IDENTITY = Identity("sentiment", "nlp", "1")
ISSUER = "https://issuer.example.com"
V1, V2 = "v1-aaaa", "v2-bbbb"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class Issuer:
    """Signs tokens; its public key is served as a JWKS."""

    key: rsa.RSAPrivateKey
    address: str = ""

    @property
    def jwks(self) -> str:
        numbers = self.key.public_key().public_numbers()
        parts = {"n": numbers.n, "e": numbers.e}
        key = {name: encoded(value.to_bytes((value.bit_length() + 7) // 8)) for name, value in parts.items()}
        return json.dumps({"keys": [{"kty": "RSA", "alg": "RS256", "kid": "1", **key}]})

    def token(self, **claims: Any) -> str:
        said = {"iss": ISSUER, "sub": "somebody", "exp": int(time.time()) + 600, **claims}
        head = encoded(json.dumps({"alg": "RS256", "kid": "1"}).encode())
        text = f"{head}.{encoded(json.dumps(said).encode())}"
        return f"{text}.{encoded(self.key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer(rsa.generate_private_key(public_exponent=65537, key_size=2048))

    async def keys(_: web.Request) -> web.Response:
        return web.json_response(text=made.jwks)

    async def discovery(_: web.Request) -> web.Response:
        return web.json_response({"issuer": ISSUER, "jwks_uri": f"{made.address}/keys"})

    application = web.Application()
    application.router.add_get("/keys", keys)
    application.router.add_get("/.well-known/openid-configuration", discovery)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def rendered(more: dict[str, Any] | None = None, **traffic: Any) -> dict[str, tuple[dict[str, Any], ...]]:
    """The policies that the operator renders, by kind, for pods with the bench's labels."""
    written = {"versions": [{"name": "v1", "uri": "file:///m"}], "traffic": traffic, **(more or {})}
    spec = ModelDeploymentSpec.from_wire(written)
    objects = policies(IDENTITY, spec, RenderOptions(runtime_image="r:1"))
    return {item["kind"]: (item,) for item in objects}


async def show(bench: Bench, objects: dict[str, tuple[dict[str, Any], ...]], keys: dict[str, str]) -> None:
    for pod in bench.pods:
        pod.labels["slipway.dev/model-deployment"] = "sentiment"
    shown = mesh_objects([], bench.pods)
    found = PolicyObjects(
        objects.get("RequestAuthentication", ()),
        objects.get("AuthorizationPolicy", ()),
        objects.get("EnvoyFilter", ()),
        keys,
    )
    await bench.proxy.apply(translate(type(shown)(**{**vars(shown), "policies": found})))


def codes(answers: Counter[str]) -> set[str]:
    return {answer.split()[0] for answer in answers}


def jwt(issuer: Issuer, **more: Any) -> dict[str, Any]:
    return {"jwt": {"issuer": ISSUER, "jwksUri": f"{issuer.address}/keys", **more}}


async def test_only_valid_tokens_of_the_issuer_are_let_in(bench: Bench, issuer: Issuer) -> None:
    objects = rendered(auth=jwt(issuer))
    await show(bench, objects, {f"{issuer.address}/keys": issuer.jwks})
    path = "/v2/models/m/infer"
    assert codes(await bench.send(path=path)) == {"403"}
    assert codes(await bench.send(path=path, authorization=f"Bearer {issuer.token()}")) == {"200"}
    expired = issuer.token(exp=int(time.time()) - 600)
    stranger = Issuer(rsa.generate_private_key(public_exponent=65537, key_size=2048)).token()
    for bad in (expired, stranger, issuer.token(iss="https://other.example.com"), "no-token"):
        assert codes(await bench.send(path=path, authorization=f"Bearer {bad}")) == {"401"}


async def test_servers_learn_the_tenant_from_the_verified_token_only(bench: Bench, issuer: Issuer) -> None:
    tenants = {"header": "x-claims", "claim": "org"}
    objects = rendered({"runtime": {"tenants": tenants}}, auth=jwt(issuer))
    await show(bench, objects, {f"{issuer.address}/keys": issuer.jwks})
    spoofed = encoded(json.dumps({"org": "gold"}).encode())
    token = issuer.token(org="iron")
    path = "/v2/models/m/infer"
    assert codes(await bench.send(path=path, authorization=f"Bearer {token}", x_claims=spoofed)) == {"200"}
    (request,) = [one for pod in bench.pods for one in pod.requests if one.path == path][-1:]
    (value,) = request.headers.getall("x-claims")
    read = read_rules(json.dumps(tenants))
    assert read.name_in(value) == "iron"
    assert codes(await bench.send(path=path, x_claims=spoofed)) == {"403"}
    # Where no token is asked for, nothing of the client's gets through either.
    assert codes(await bench.send(path="/v2/health/ready", x_claims=spoofed)) == {"200"}
    (probe,) = [one for pod in bench.pods for one in pod.requests if one.path == "/v2/health/ready"][-1:]
    assert "x-claims" not in probe.headers


async def test_probes_and_scrapes_need_no_token(bench: Bench, issuer: Issuer) -> None:
    await show(bench, rendered(auth=jwt(issuer)), {f"{issuer.address}/keys": issuer.jwks})
    for path in ("/v2/health/ready", "/v2/health/live", "/metrics"):
        assert codes(await bench.send(path=path)) == {"200"}
    for path in ("/v2/models/m", "/metricsx", "/v2/health"):
        assert codes(await bench.send(path=path)) == {"403"}


async def test_the_token_reaches_the_server_and_must_name_the_audience(bench: Bench, issuer: Issuer) -> None:
    await show(bench, rendered(auth=jwt(issuer, audiences=["us"])), {f"{issuer.address}/keys": issuer.jwks})
    assert codes(await bench.send(authorization=f"Bearer {issuer.token()}")) == {"403"}
    right = f"Bearer {issuer.token(aud='us')}"
    assert codes(await bench.send(authorization=right)) == {"200"}
    (received,) = [request.headers["authorization"] for pod in bench.pods for request in pod.requests]
    assert received == right


async def test_without_keys_no_token_is_valid(bench: Bench, issuer: Issuer) -> None:
    await show(bench, rendered(auth=jwt(issuer)), {})
    assert codes(await bench.send(authorization=f"Bearer {issuer.token()}")) == {"401"}


async def test_policies_come_and_go_without_a_failed_request(bench: Bench, issuer: Issuer) -> None:
    bearer = f"Bearer {issuer.token()}"
    keys = {f"{issuer.address}/keys": issuer.jwks}
    for objects in (rendered(auth=jwt(issuer)), {}, rendered(auth=jwt(issuer, audiences=[])), {}):
        await show(bench, objects, keys)
        assert codes(await bench.send(20, authorization=bearer)) == {"200"}


@pytest.mark.parametrize("named", ["/keys", ""])
async def test_keys_are_fetched_directly_or_by_discovery(issuer: Issuer, named: str) -> None:
    come = asyncio.Event()
    store = KeyStore(come.set)
    address = f"{issuer.address}{named}"
    objects = rendered(auth={"jwt": {"issuer": address} if not named else {"issuer": ISSUER, "jwksUri": address}})
    store.want(key_addresses(objects["RequestAuthentication"]))
    async with asyncio.timeout(60):
        await come.wait()
    assert json.loads(store.keys[address]) == json.loads(issuer.jwks)
    await store.stop()
    assert store.keys == {}


async def test_a_rate_limit_holds_per_pod(bench: Bench) -> None:
    await show(bench, rendered(resilience={"rateLimit": {"requestsPerSecond": 0.2}}), {})
    # A bucket of one request for each of the two pods, which takes five seconds to fill again.
    assert await bench.send(6, path="/a") + Counter() == Counter({"429": 4, **await taken(bench)})


async def taken(bench: Bench) -> Counter[str]:
    return Counter(f"200 {pod.recorded_address}" for pod in bench.pods for _ in pod.requests)


async def test_a_generous_limit_lets_a_burst_through(bench: Bench) -> None:
    await show(bench, rendered(resilience={"rateLimit": {"requestsPerSecond": 200}}), {})
    assert codes(await bench.send(50, host=HOST)) == {"200"}
