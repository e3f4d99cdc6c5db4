"""Who owns the routes: a root VirtualService that stays the user's, a rival that keeps rewriting ours, GitOps."""

import asyncio
import contextlib
import json

import aiohttp
import pytest

from e2e.sandbox.controllers.client import MERGE_PATCH
from tests.integration.bench import VIRTUAL_SERVICES, condition

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

POLICIES = {
    "sessionAffinity": {"cookie": "user"},
    "auth": {"jwt": {"issuer": "https://issuer.invalid", "jwksUri": "https://issuer.invalid/keys"}},
}


def root(bench) -> dict:
    """A user's own VirtualService, which hands everything below /v2 to ours."""
    handed = {"match": [{"uri": {"prefix": "/v2"}}], "delegate": {"name": "m", "namespace": bench.namespace}}
    return {
        "apiVersion": VIRTUAL_SERVICES.api_version,
        "kind": VIRTUAL_SERVICES.kind,
        "metadata": {"name": "root", "namespace": bench.namespace},
        "spec": {"hosts": [public(bench)], "gateways": ["istio-ingress/public"], "http": [handed]},
    }


def public(bench) -> str:
    return f"{bench.namespace}.example.com"


async def ask(bench, path: str = "/v2/models/m") -> tuple[int, str]:
    """Status and cookie of an answer to the public host."""
    url = f"{bench.cluster.gateway_url}{path}"
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.get(url, headers={"Host": public(bench)}) as answer,
    ):
        return answer.status, answer.headers.get("set-cookie", "")


async def test_a_delegate_serves_under_the_users_root_and_takes_changes_without_a_restart(bench):
    await bench.client.request("POST", VIRTUAL_SERVICES.path(bench.namespace), root(bench))
    await bench.apply(bench.declare("m", traffic={"virtualService": {"delegate": True}}))
    status = await bench.serving("m")
    written = await bench.get(VIRTUAL_SERVICES, "m")
    assert set(written["spec"]) == {"http"}

    async def answered() -> bool:
        return await ask(bench) == (200, "")

    await bench.eventually("an answer through the root", answered)
    await bench.patch("m", {"traffic": POLICIES})

    async def guarded() -> bool:
        return (await ask(bench))[0] == 403

    # The issuer has no keys and nobody a token: everything but probes is shut.
    await bench.eventually("a token is asked for", guarded)

    async def remembered() -> bool:
        code, cookie = await ask(bench, "/v2/health/ready")
        return code == 200 and cookie.startswith("user=m-v1-")

    # Policies and affinity are two objects, of which either may be in effect first.
    await bench.eventually("a cookie for a probe without a token", remembered)
    await bench.patch("m", {"traffic": {"auth": None, "resilience": {"rateLimit": {"requestsPerSecond": 0.01}}}})

    async def limited() -> bool:
        return (await ask(bench))[0] == 429

    await bench.eventually("the rate is limited", limited)
    assert (await bench.status("m"))["versions"][0]["revision"] == status["versions"][0]["revision"]


async def test_a_rival_is_given_up_on_and_named_and_gitops_sees_no_difference(bench):
    declared = bench.declare("m")
    await bench.apply(declared)
    await bench.serving("m")
    code, difference = await bench.kubectl("diff", "--server-side", "-f", "-", stdin=json.dumps(declared))
    assert (code, difference) == (0, "")
    path = VIRTUAL_SERVICES.path(bench.namespace, "m")

    async def rewrite() -> None:
        """Undo every repair at once, as a second controller would."""
        while True:
            spec = (await bench.get(VIRTUAL_SERVICES, "m"))["spec"]
            if spec["http"][-1].get("timeout") != "7s":
                spec["http"][-1]["timeout"] = "7s"
                params = {"fieldManager": "rival"}
                await bench.client.request("PATCH", path, {"spec": spec}, params=params, content_type=MERGE_PATCH)
            await asyncio.sleep(0.05)

    fighting = asyncio.create_task(rewrite())
    status = await bench.until(
        "m", "the rival is named", lambda s: "rival" in condition(s, "TrafficApplied").get("message", "")
    )
    assert condition(status, "TrafficApplied")["status"] == "False"
    assert fighting.done() is False
    fighting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await fighting
    # It goes on serving all the while.
    assert await bench.infer("m") == (200, "v1")

    async def told() -> bool:
        """Events are posted beside the work."""
        _, events = await bench.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}")
        return {"DriftRepaired", "DriftFight"} <= set(events.split())

    await bench.eventually("the events of the fight", told)
