"""Of two pods the one that is at work outlives a scale-down."""

import asyncio
import itertools

import aiohttp
import pytest

from e2e.sandbox.controllers.client import PODS
from tests.integration.bench import PATIENCE, Bench, Status

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

COST = "controller.kubernetes.io/pod-deletion-cost"
ALONE = {"maxSize": 2, "maxDelay": "10m", "adaptive": False}
"""A request is in flight until another one comes to the same pod."""


def measured(status: Status) -> float:
    """Requests per second as the operator last saw them."""
    return float(status["versions"][0].get("qps", 0))


async def scraped(bench: Bench) -> int:
    """How many pods of the namespace Prometheus knows to be idle."""
    query = {"query": f'count(slipway_requests_in_flight{{namespace="{bench.namespace}"}} == 0)'}
    url = f"{bench.cluster.prometheus_url}/api/v1/query"
    async with aiohttp.ClientSession() as session, session.get(url, params=query) as response:
        found = (await response.json())["data"]["result"]
    return int(found[0]["value"][1]) if found else 0


async def test_the_pod_that_is_at_work_stays(bench: Bench) -> None:
    await bench.apply(
        bench.declare(
            "m", replicas=2, autoscaling={"mode": "None"}, runtime={"batching": ALONE, "limits": {"timeout": "10m"}}
        )
    )
    await bench.serving("m")

    async def both_scraped() -> bool:
        return await scraped(bench) == 2

    await bench.eventually("both pods are scraped", both_scraped)
    waiting = asyncio.create_task(bench.infer("m"))
    seconds = itertools.count(3)

    async def seen() -> bool:
        # What rests is looked at now and then only, but at once when it is edited.
        await bench.patch("m", {"rollout": {"keepPrevious": f"{next(seconds)}s"}})
        return measured(await bench.status("m")) > 0

    await bench.eventually("the operator sees the request", seen)
    assert not waiting.done(), "what is seen of it is that it is in flight"
    await bench.patch("m", {"replicas": 1})

    async def one_is_left() -> bool:
        # Whole: one that is going still gets requests for a moment, and there the next one would wait in vain.
        return len(await bench.items(PODS)) == 1

    await bench.eventually("one is left", one_is_left)
    assert not waiting.done()
    (left,) = await bench.items(PODS)
    assert int(left["metadata"]["annotations"][COST]) > 0
    async with asyncio.timeout(PATIENCE):
        assert await bench.infer("m") == await waiting == (200, "v1")
