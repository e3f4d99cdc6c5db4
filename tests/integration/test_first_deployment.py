"""From ``apply`` to the first answer, and what a ModelDeployment leaves behind when it goes."""

import pytest

from e2e.sandbox.controllers.client import DEPLOYMENTS, DISRUPTION_BUDGETS, EVENTS, PODS, SERVICES
from tests.integration.bench import (
    CONTROLLER_REVISIONS,
    DESTINATION_RULES,
    MODEL_DEPLOYMENTS,
    VIRTUAL_SERVICES,
    condition,
)

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

CHILDREN = (DEPLOYMENTS, SERVICES, CONTROLLER_REVISIONS, VIRTUAL_SERVICES, DESTINATION_RULES, DISRUPTION_BUDGETS)


async def test_a_first_version_is_served_and_everything_goes_with_the_object(bench):
    await bench.apply(bench.declare("m"))
    status = await bench.serving("m")
    assert await bench.infer("m") == (200, "v1")

    (entry,) = status["versions"]
    assert (entry["role"], entry["readyReplicas"], entry["weight"]["applied"]) == ("Stable", 1, 100)
    assert entry["loadedDigest"] == f"sha256:{bench.models['good-1'].sha256}"
    assert status["url"] == f"http://{bench.host('m')}"
    assert {kind: condition(status, kind)["status"] for kind in ("Ready", "Available", "Progressing", "Stalled")} == {
        "Ready": "True",
        "Available": "True",
        "Progressing": "False",
        "Stalled": "False",
    }
    found = await bench.get(MODEL_DEPLOYMENTS, "m")
    assert "finalizers" not in found["metadata"]
    assert "annotations" not in found["metadata"]

    async def told() -> bool:
        """Events are posted beside the work, not before it."""
        events = [event for event in await bench.items(EVENTS) if event["involvedObject"]["name"] == "m"]
        return {event["reason"] for event in events} >= {"FirstDeployment", "Promoted"}

    await bench.eventually("the events of a first deployment", told)

    children = {kind.plural: await bench.items(kind) for kind in CHILDREN}
    for plural, items in children.items():
        for item in items:
            assert [owner["uid"] for owner in item["metadata"]["ownerReferences"]] == [found["metadata"]["uid"]], plural
            assert item["metadata"]["labels"]["slipway.dev/model-deployment"] == "m", plural
    assert {plural: len(items) for plural, items in children.items()} == {kind.plural: 1 for kind in CHILDREN}

    await bench.delete(MODEL_DEPLOYMENTS, "m")

    async def gone() -> bool:
        return not any([await bench.items(kind) for kind in (*CHILDREN, PODS)])

    await bench.eventually("the children go", gone)
