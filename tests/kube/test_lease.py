import asyncio
from typing import Any

import pytest
from slipway.kube.client import Client, RetryPolicy
from slipway.kube.failures import UnavailableError
from slipway.kube.kinds import SERVICE
from slipway.kube.lease import Elector, LeaseLostError, LeaseTimes
from slipway.kube.metadata import Key

from tests.kube.memory_api import MemoryApi, status

LEASE = Key("sys", "slipway")


class Clock:
    """Two electors sleep on one clock; whoever sleeps longest waits longest."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future]] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, future))
        await future

    async def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            await settle()
            due = sorted((at, number) for number, (at, _) in enumerate(self._sleepers) if at <= end)
            if not due:
                break
            at, number = due[0]
            _, future = self._sleepers.pop(number)
            self.now = max(self.now, at)
            if not future.done():
                future.set_result(None)
        self.now = end
        await settle()


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


class Election:
    def __init__(self) -> None:
        self.api = MemoryApi()
        self.clock = Clock()
        self.tasks: list[asyncio.Task[Any]] = []

    def elector(self, identity: str) -> Elector:
        client = Client(self.api, clock=self.clock, retry=RetryPolicy(attempts=1))
        return Elector(
            client, LEASE, identity, clock=self.clock, wall=self.clock, sleep=self.clock.sleep, draw=lambda: 0.0
        )

    def start(self, awaitable):
        task = asyncio.ensure_future(awaitable)
        self.tasks.append(task)
        return task

    def lease(self):
        return self.api.get("leases", "sys", "slipway")["spec"]


@pytest.fixture
async def election():
    made = Election()
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


async def test_the_first_leads_and_the_second_waits(election):
    one, two = election.elector("one"), election.elector("two")
    await one.acquire()
    election.start(one.hold())
    waiting = election.start(two.acquire())
    await election.clock.advance(120)
    assert one.leading
    assert not two.leading
    assert not waiting.done()
    assert election.lease()["holderIdentity"] == "one"
    assert election.lease()["leaseTransitions"] == 0


async def test_a_dead_leader_is_followed_after_the_duration(election):
    await election.elector("one").acquire()
    two = election.elector("two")
    waiting = election.start(two.acquire())
    await election.clock.advance(14)
    assert not waiting.done()
    await election.clock.advance(4)
    assert waiting.done()
    assert election.lease()["holderIdentity"] == "two"
    assert election.lease()["leaseTransitions"] == 1


async def test_a_released_lease_is_taken_at_once(election):
    one, two = election.elector("one"), election.elector("two")
    await one.acquire()
    waiting = election.start(two.acquire())
    await election.clock.advance(0.5)
    await one.release()
    assert election.lease()["holderIdentity"] == ""
    await election.clock.advance(2.1)
    assert waiting.done()


async def test_an_unreachable_server_ends_leadership_before_others_may_lead(election):
    one = election.elector("one")
    await one.acquire()
    holding = election.start(one.hold())
    election.api.faults.append(lambda call: status(503, "ServiceUnavailable", "down"))
    await election.clock.advance(9.9)
    assert not holding.done()
    await election.clock.advance(2.2)
    assert isinstance(holding.exception(), LeaseLostError)
    assert not one.leading


async def test_a_short_outage_is_survived(election):
    one = election.elector("one")
    await one.acquire()
    holding = election.start(one.hold())
    election.api.faults.append(lambda call: status(503, "ServiceUnavailable", "down"))
    await election.clock.advance(7)
    election.api.faults.clear()
    await election.clock.advance(60)
    assert not holding.done()
    assert one.leading


async def test_a_stolen_lease_is_noticed_at_once(election):
    one = election.elector("one")
    await one.acquire()
    holding = election.start(one.hold())
    stolen = election.api.get("leases", "sys", "slipway")
    election.api.put({**stolen, "spec": {**stolen["spec"], "holderIdentity": "thief"}})
    await election.clock.advance(2.1)
    assert isinstance(holding.exception(), LeaseLostError)


async def test_two_cannot_take_the_same_expired_lease(election):
    await election.elector("dead").acquire()
    one, two = election.elector("one"), election.elector("two")
    tasks = [election.start(one.acquire()), election.start(two.acquire())]
    await election.clock.advance(30)
    assert sum(task.done() for task in tasks) == 1
    assert one.leading != two.leading


async def test_other_clocks_are_not_trusted(election):
    one = election.elector("one")
    await one.acquire()
    lease = election.api.get("leases", "sys", "slipway")
    election.api.put({**lease, "spec": {**lease["spec"], "renewTime": "1999-01-01T00:00:00.000000Z"}})
    two = election.elector("two")
    waiting = election.start(two.acquire())
    await election.clock.advance(10)
    assert not waiting.done()


async def test_a_restarted_process_of_the_same_identity_leads_on(election):
    await election.elector("pod-0").acquire()
    again = election.elector("pod-0")
    await again.acquire()
    assert again.leading
    assert election.lease()["leaseTransitions"] == 0


async def test_release_never_raises(election):
    one = election.elector("one")
    await one.release()
    await one.acquire()
    election.api.faults.append(lambda call: status(500, "InternalError", "down"))
    await one.release()
    assert not one.leading


async def test_a_renewal_that_hangs_ends_leadership_in_time():
    """Whoever waits for an answer for ever must not lead for ever. Real time: what hangs is a request."""
    api = MemoryApi()
    client = Client(api, retry=RetryPolicy(attempts=5))
    loop = asyncio.get_running_loop()
    times = LeaseTimes(duration=30.0, renew_deadline=0.3, retry=0.05)
    one = Elector(client, LEASE, "one", times=times, clock=loop.time, wall=loop.time)
    await one.acquire()
    begun = loop.time()

    async def hang(call: Any) -> Any:
        await asyncio.Event().wait()

    api.send = hang  # type: ignore[method-assign]
    with pytest.raises(LeaseLostError):
        await one.hold()
    assert loop.time() - begun < times.duration


async def test_a_lease_is_renewed_while_everything_else_is_asked_to_wait():
    """A 429 with Retry-After holds all calls back, but not the sign of life."""
    api = MemoryApi()
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    client = Client(api, clock=lambda: 0.0, sleep=sleep, draw=lambda: 0.0)
    busy = [status(429, "TooManyRequests", "busy", Retry_After="9")]
    api.faults.append(lambda call: busy.pop() if busy and "/services" in call.path else None)
    await client.list(SERVICE)
    assert max(waits) == 9.0
    waits.clear()
    elector = Elector(client, LEASE, "one", clock=lambda: 0.0, wall=lambda: 0.0)
    await elector.acquire()
    assert waits == []


async def test_a_process_that_slept_for_longer_than_its_lease_writes_nothing_when_it_wakes(election):
    """As after SIGSTOP and SIGCONT: another may lead by then, and only the clock can tell before the lease is read."""
    one = election.elector("one")
    assert not one.fresh
    await one.acquire()
    client = Client(election.api, clock=election.clock, retry=RetryPolicy(attempts=1))
    client.may_write = lambda: one.fresh
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "ns", "name": "s"}}
    await client.apply(SERVICE, body)
    election.clock.now += 9.9
    await client.apply(SERVICE, body)
    election.clock.now += 0.2
    with pytest.raises(UnavailableError, match="lost its lease"):
        await client.apply(SERVICE, body)
    assert (await client.get(SERVICE, "ns", "s"))["metadata"]["name"] == "s"
    assert one.leading
