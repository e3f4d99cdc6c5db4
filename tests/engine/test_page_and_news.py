"""The page and the notifications of a whole operator with its watches, against an API server."""

import dataclasses
import json
import re
from typing import Any

import aiohttp
import pytest
from slipway.kube.kinds import LEASE, MODEL_DEPLOYMENT
from slipway.kube.metadata import uid_of
from slipway.notifications import Receiver
from slipway.notifications.receivers import ReceiverType

from e2e.sandbox.ports import free_port
from tests.engine.test_operator import declare, environment, running, settings, until
from tests.notifications.receiver import LocalReceiver

__all__ = ["environment"]

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


async def fetched(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200
        found: dict[str, Any] = await response.json()
        return found


async def test_the_page_shows_what_the_operator_does_and_receivers_are_told_once(cluster_client, namespace):
    port = free_port()
    api = f"http://127.0.0.1:{port}/api/modeldeployments"
    async with LocalReceiver([503]).open() as receiver:
        told = Receiver("pipeline", ReceiverType.WEBHOOK, receiver.url, namespaces=frozenset({namespace}))
        chosen = settings(namespace, web_port=port, receivers=(told,), cluster_name="test")
        async with running(chosen):
            raw = await declare(cluster_client, namespace)
            await receiver.have(2)

            async def recorded() -> dict[str, Any] | None:
                found = await fetched(f"{api}/{namespace}/m")
                return found if found["recording"]["samples"] and found["versions"] else None

            shown = await until(recorded)
            listed = await fetched(api)
        news = [json.loads(body) for body in receiver.bodies]
        assert news[0] == news[1]
        assert re.fullmatch(rf"{uid_of(raw)}/r-000001-[0-9]{{8}}T[0-9]{{6}}/started", news[0]["id"])
        assert news[0]["source"].startswith("//test/apis/slipway.dev/")
        assert (shown["phase"], shown["versions"][0]["name"], shown["rollout"]["to"]) == ("Pending", "v1", "v1")
        assert (namespace, "m") in {(item["namespace"], item["name"]) for item in listed["items"]}
        with pytest.raises(aiohttp.ClientConnectorError):
            await fetched(api)

        # A new process tells again what has just happened, under the same identity.
        async with running(dataclasses.replace(chosen, web_port=None)):
            await receiver.have(3)
        assert json.loads(receiver.bodies[2])["id"] == news[0]["id"]


async def test_a_standby_shows_the_same_and_tells_nobody(cluster_client, namespace):
    port = free_port()
    held = {"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": "2999-01-01T00:00:00.000000Z"}
    head = {"apiVersion": LEASE.api_version, "kind": LEASE.name}
    await cluster_client.create(LEASE, head | {"metadata": {"namespace": namespace, "name": "leader"}, "spec": held})
    raw = await declare(cluster_client, namespace)
    status = {
        "phase": "Paused",
        "rollout": {"id": "r-000001", "to": "v1"},
        "versions": [{"name": "v1", "revision": "m-v1-0", "weight": {"intended": 40}}],
    }
    async with LocalReceiver().open() as receiver:
        told = Receiver("pipeline", ReceiverType.WEBHOOK, receiver.url)
        async with running(settings(namespace, web_port=port, receivers=(told,))):
            await cluster_client.patch(MODEL_DEPLOYMENT, namespace, "m", {"status": status}, subresource="status")

            async def recorded() -> dict[str, Any] | None:
                try:
                    found = await fetched(f"http://127.0.0.1:{port}/api/modeldeployments/{namespace}/m")
                except (aiohttp.ClientError, AssertionError):
                    return None
                return found if found["recording"]["samples"] and found["versions"] else None

            shown = await until(recorded)
        assert (shown["leading"], shown["phase"], shown["uid"]) == (False, "Paused", uid_of(raw))
        assert shown["recording"]["samples"][-1]["versions"]["m-v1-0"]["intended"] == 40
        assert receiver.bodies == []
