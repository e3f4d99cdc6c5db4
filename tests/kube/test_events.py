import asyncio

import pytest
from slipway.api.events import EventRecord
from slipway.kube.client import Client, RetryPolicy
from slipway.kube.events import EventRecorder, TokenBucket

from tests.kube.memory_api import MemoryApi, status

MDEP = {
    "apiVersion": "slipway.dev/v1alpha1",
    "kind": "ModelDeployment",
    "metadata": {"namespace": "ns", "name": "m", "uid": "uid-m", "resourceVersion": "7"},
}
NEWS = EventRecord("RolloutStarted", "v1 to v2")


class Desk:
    def __init__(self) -> None:
        self.api = MemoryApi()
        self.now = 1_750_000_000.0
        self.dropped = 0

    def recorder(self, **options) -> EventRecorder:
        def drop() -> None:
            self.dropped += 1

        client = Client(self.api, retry=RetryPolicy(attempts=1))
        return EventRecorder(client, wall=lambda: self.now, instance="pod-0", on_drop=drop, **options)

    async def post(self, recorder, *records) -> None:
        for record in records:
            recorder.record(MDEP, record)
        task = asyncio.ensure_future(recorder.run())
        await recorder.drain(5.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def events(self) -> list[dict]:
        return [obj for (plural, _, _), obj in self.api.objects.items() if plural == "events"]


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_posts_an_event_on_the_object(desk):
    await desk.post(desk.recorder(), NEWS)
    (event,) = desk.events()
    assert event["involvedObject"]["uid"] == "uid-m"
    assert event["involvedObject"]["namespace"] == event["metadata"]["namespace"] == "ns"
    assert (event["type"], event["reason"], event["message"]) == ("Normal", "RolloutStarted", "v1 to v2")
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2025-06-15T15:06:40Z"
    assert (event["reportingComponent"], event["reportingInstance"]) == ("slipway", "pod-0")


async def test_the_same_news_is_counted(desk):
    recorder = desk.recorder()
    await desk.post(recorder, NEWS)
    desk.now += 60
    await desk.post(recorder, NEWS, EventRecord("RolloutStarted", "v2 to v3"))
    counted = {event["message"]: event["count"] for event in desk.events()}
    assert counted == {"v1 to v2": 2, "v2 to v3": 1}
    assert desk.events()[0]["lastTimestamp"] == "2025-06-15T15:07:40Z"


async def test_a_restarted_operator_goes_on_counting(desk):
    await desk.post(desk.recorder(), NEWS, NEWS)
    await desk.post(desk.recorder(), NEWS)
    assert [event["count"] for event in desk.events()] == [3]


async def test_an_expired_event_is_made_anew(desk):
    recorder = desk.recorder()
    await desk.post(recorder, NEWS)
    desk.api.drop("events", "ns", desk.events()[0]["metadata"]["name"])
    await desk.post(recorder, NEWS)
    assert [event["count"] for event in desk.events()] == [1]


async def test_a_flood_is_cut_off(desk):
    recorder = desk.recorder()
    await desk.post(recorder, *(EventRecord("Noise", str(number)) for number in range(40)))
    assert len(desk.events()) == 25
    assert desk.dropped == 15
    desk.now += 60
    await desk.post(recorder, EventRecord("Noise", "later"))
    assert len(desk.events()) == 26


async def test_a_refused_event_harms_nobody(desk):
    desk.api.faults.append(lambda call: status(403, "Forbidden", "no events here"))
    await desk.post(desk.recorder(), NEWS, NEWS)
    assert desk.events() == []


async def test_a_full_queue_drops(desk):
    recorder = desk.recorder(capacity=1)
    recorder.record(MDEP, NEWS)
    recorder.record(MDEP, NEWS)
    assert desk.dropped == 1


async def test_long_messages_are_cut(desk):
    await desk.post(desk.recorder(), EventRecord("Long", "x" * 5000))
    assert len(desk.events()[0]["message"]) == 1024


def test_a_bucket_refills_to_its_brim():
    bucket = TokenBucket(burst=2, period=10, tokens=2)
    assert [bucket.take(0.0) for _ in range(3)] == [True, True, False]
    assert bucket.take(10.0)
    assert not bucket.take(10.0)
    assert [bucket.take(1000.0) for _ in range(3)] == [True, True, False]
