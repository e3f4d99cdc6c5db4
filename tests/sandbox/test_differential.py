"""Random requests to the sandbox's API server: compared with a real one where there is one, and with what holds on any.

Where ``KUBEBUILDER_ASSETS`` is set, the real server of that folder is asked the same, and the answers are compared by
kube-wire's rule. Everywhere, the answers are held to properties of every API server.
"""

import os
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from slipway.kube.transport import ApiTransport, Call, load_configuration

from e2e.faults.api import Api
from e2e.sandbox.children import Child
from e2e.sandbox.cluster import attach, install
from e2e.sandbox.control_plane import start_envtest
from e2e.sandbox.tokens import User, write_kubeconfig
from tests.sandbox.differential import APPLY, REASONS, Asker, Send, Step

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULE = import_module("tests.kube_wire.compare")
"""kube-wire's own script, which stays as it is."""
SEEDS = range(12)
TURNS = 40


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def simulated() -> Api:
    api = Api(lambda: 1_767_225_600.0)
    await api.start()
    return api


async def asked(send: Send, seed: int) -> Asker:
    """An asker with a namespace of its own."""
    namespace = f"random-{seed}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await send(Call("POST", "/api/v1/namespaces", (), body))
    return Asker(seed, send, namespace)


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_holds_on_every_api_server(simulated: Api, seed: int) -> None:
    asker = await asked(simulated.answer, seed)
    for _ in range(TURNS):
        before = {path: await current(asker, path) for path in asker.known}
        path, step = await asker.turn()
        says_why(step)
        after = await current(asker, path)
        if step.code >= 400:
            assert after == before.get(path), "what is refused changes nothing"
        elif step.call.method != "GET" and path in before and after is not None:
            moves_on(before[path], after)
        if step.code < 300 and step.call.content_type == APPLY:
            again = await asker.ask(step.call)
            assert again.body == after, "what is applied twice is applied once"


async def current(asker: Asker, path: str) -> Any:
    answer = await asker.ask(Call("GET", path))
    return answer.body if answer.code == 200 else None


def says_why(step: Step) -> None:
    """Refusals are Status objects whose reason fits the code."""
    if step.code == 500 and step.call.content_type == APPLY:
        # A real server, too, takes a configuration that it cannot type for a fault of its own.
        untyped = ("failed to create typed patch object", "failed to convert new object")
        assert step.body["message"].startswith(untyped)
        return
    assert step.code < 500, step
    if step.code >= 400:
        assert (step.body["kind"], step.body["status"], step.body["code"]) == ("Status", "Failure", step.code)
        assert step.body["reason"] in REASONS[step.code], step.body
        assert step.body["message"]


def moves_on(before: dict[str, Any], after: dict[str, Any]) -> None:
    """A resource version is new exactly when something is, a generation when the spec is."""
    old, new = before["metadata"], after["metadata"]
    if old["uid"] != new["uid"]:
        return
    grown = int(new["resourceVersion"]) - int(old["resourceVersion"])
    assert grown >= 0
    assert (grown > 0) == (bare(before) != bare(after))
    assert new["creationTimestamp"] == old["creationTimestamp"]
    if "spec" in before:
        assert new["generation"] == old["generation"] + (before["spec"] != after["spec"])


def bare(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}}


async def test_requests_are_of_all_sorts(simulated: Api) -> None:
    """The tests of this file would prove little if most requests were refused, or none."""
    asker = await asked(simulated.answer, 100)
    for _ in range(150):
        await asker.turn()
    codes = {step.code for step in asker.steps}
    assert {200, 201, 404, 409, 422} <= codes
    assert 0.2 < sum(step.code < 300 for step in asker.steps) / len(asker.steps) < 0.9


@pytest_asyncio.fixture(loop_scope="module")
async def real(tmp_path: Path) -> AsyncIterator[Send | None]:
    """The real API server of KUBEBUILDER_ASSETS; None where there is none."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        yield None
        return
    children: list[Child] = []
    user = User("tests", ("system:masters",))
    try:
        endpoint = await start_envtest(tmp_path, (user,), children, Path(assets))
        write_kubeconfig(tmp_path / "kubeconfig", endpoint.url, endpoint.ca_file, user)
        async with attach(tmp_path / "kubeconfig").client("tests") as client:
            await install(client)
        transport = ApiTransport(await load_configuration({"KUBECONFIG": str(tmp_path / "kubeconfig")}))
        yield transport.send
        await transport.close()
    finally:
        for child in reversed(children):
            await child.stop()


async def test_the_sandbox_answers_as_a_real_server_or_as_itself_again(simulated: Api, real: Send | None) -> None:
    """Without a real server a second sandbox is asked: then only that equal requests get equal answers is shown."""
    other = real or await second()
    for seed in range(200, 206):
        ours, theirs = await asked(simulated.answer, seed), await asked(other, seed)
        for _ in range(TURNS):
            await ours.turn()
            await theirs.turn()
        assert list(unequal(theirs.steps, ours.steps)) == [], f"seed {seed}"


async def second() -> Send:
    api = Api(lambda: 1_767_225_600.0)
    await api.start()
    return api.answer


def unequal(expected: list[Step], actual: list[Step]) -> list[str]:
    """Where two courses differ by kube-wire's rule."""
    one, two = [step.recorded for step in expected], [step.recorded for step in actual]
    found = []
    for number, (left, right) in enumerate(zip(one, two, strict=True)):
        code = left["response"]["code"]
        places = list(RULE.differences(RULE.canonical(left["response"], code), RULE.canonical(right["response"], code)))
        if places:
            found.append(f"{number} {expected[number].call.method} {expected[number].call.path}: {places}")
    kept = RULE.versions([{"response": {"body": step.body}} for step in expected])
    if kept != RULE.versions([{"response": {"body": step.body}} for step in actual]):
        found.append("resource versions are kept elsewhere")
    return found
