from typing import Any

import pytest
from slipway.api.errors import ConflictError, NotFoundError
from slipway.api.status import Verb
from slipway.cli.act import TRIES, Request, answer_to, submit
from slipway.cli.cluster import in_users_terms
from slipway.kube.client import Client
from slipway.kube.transport import Answer, Call

from tests.api.cases import model_deployment
from tests.kube.memory_api import MemoryApi, status

PLACE = ("modeldeployments", "default", "sentiment")


@pytest.fixture
def api() -> MemoryApi:
    api = MemoryApi()
    api.put(model_deployment() | {"status": {"phase": "Paused", "lastAction": {"id": "old"}}})
    return api


def request(verb: Verb = Verb.PROMOTE, **details: Any) -> Request:
    return Request(verb, "sentiment", "default", **details)


async def test_a_request_is_written_beside_the_rest_of_the_status(api: MemoryApi) -> None:
    wanted = request(by="ann", reason="looks good")
    await submit(Client(api), wanted, "default")
    written = api.get(*PLACE)
    assert written["status"]["action"] == {"id": wanted.id, "verb": "Promote", "by": "ann", "reason": "looks good"}
    assert written["status"]["phase"] == "Paused"
    assert written["spec"] == model_deployment()["spec"]
    [call] = api.mutations()
    assert call.path.endswith("/sentiment/status")
    assert "resourceVersion" in call.body["metadata"]


async def test_every_request_has_an_identity_of_its_own() -> None:
    assert request().id != request().id


async def test_a_change_in_between_leads_to_another_try(api: MemoryApi) -> None:
    changes = 3

    def interfere(call: Call) -> Answer | None:
        nonlocal changes
        if call.method == "PATCH" and changes:
            changes -= 1
            api.put(api.get(*PLACE) | {"status": {"phase": "Paused", "weight": changes}})
        return None

    api.faults.append(interfere)
    await submit(Client(api), request(), "default")
    assert api.get(*PLACE)["status"]["action"]["verb"] == "Promote"
    assert len(api.mutations()) == 4


async def test_an_object_that_never_holds_still_is_given_up(api: MemoryApi) -> None:
    api.faults.append(lambda call: status(409, "Conflict", "changed") if call.method == "PATCH" else None)
    with pytest.raises(ConflictError):
        await submit(Client(api), request(), "default")
    assert len(api.mutations()) == TRIES


async def test_an_object_that_does_not_exist_is_told_with_a_remedy(api: MemoryApi) -> None:
    with pytest.raises(NotFoundError) as caught, in_users_terms():
        await submit(Client(api), Request(Verb.ABORT, "other", "default"), "default")
    assert caught.value.remedy


async def test_the_answer_to_this_request_is_waited_for(api: MemoryApi) -> None:
    wanted = request()
    waits = 0

    async def sleep(seconds: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 3:
            answer = {"id": wanted.id, "verb": "Promote", "result": "Accepted", "message": "step 2 begins"}
            api.put(api.get(*PLACE) | {"status": {"lastAction": answer}})

    answer = await answer_to(Client(api), wanted, "default", 60, sleep)
    assert answer is not None
    assert (answer.result, answer.message, waits) == ("Accepted", "step 2 begins", 3)


async def test_a_silent_operator_is_not_waited_for_for_ever(api: MemoryApi) -> None:
    waited = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal waited
        waited += seconds

    assert await answer_to(Client(api), request(), "default", 5, sleep) is None
    assert waited == 5
