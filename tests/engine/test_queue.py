import asyncio

from hypothesis import given
from hypothesis import strategies as st
from slipway.engine.queue import PATIENCE, Backoff, Schedule, WorkQueue


def test_keys_come_in_their_order_and_once():
    schedule = Schedule[str]()
    for key in ("a", "b", "a"):
        schedule.add(key, 0.0)
    assert [schedule.take(1.0), schedule.take(2.0), schedule.take(3.0)] == [("a", 1.0), ("b", 2.0), None]


def test_a_key_added_while_worked_on_runs_once_more_afterwards():
    schedule = Schedule[str]()
    schedule.add("a", 0.0)
    schedule.take(0.0)
    schedule.add("a", 1.0)
    schedule.add("a", 2.0)
    assert schedule.take(2.0) is None
    schedule.done("a")
    assert schedule.take(3.0) == ("a", 2.0)
    schedule.done("a")
    assert schedule.take(4.0) is None


def test_the_earlier_moment_wins():
    schedule = Schedule[str]()
    schedule.add_at("a", 10.0)
    schedule.add_at("a", 5.0)
    schedule.add_at("a", 20.0)
    assert schedule.next_due() == 5.0
    assert schedule.take(4.9) is None
    assert schedule.take(5.0) == ("a", 0.0)
    schedule.done("a")
    assert schedule.next_due() is None


def test_adding_now_cancels_a_later_moment():
    schedule = Schedule[str]()
    schedule.add_at("a", 10.0)
    schedule.add("a", 1.0)
    schedule.take(1.0)
    schedule.done("a")
    assert schedule.take(11.0) is None
    assert schedule.waiting == 0


def test_a_later_moment_asked_for_while_working_survives():
    schedule = Schedule[str]()
    schedule.add("a", 0.0)
    schedule.take(0.0)
    schedule.add_at("a", 5.0)
    schedule.done("a")
    assert schedule.take(1.0) is None
    assert schedule.take(5.0) == ("a", 0.0)


def test_ages():
    schedule = Schedule[str]()
    schedule.add("a", 0.0)
    schedule.add("b", 2.0)
    assert schedule.oldest(10.0) == 10.0
    schedule.take(10.0)
    assert (schedule.oldest(11.0), schedule.longest_run(14.0)) == (9.0, 4.0)
    # A key that is worked on and dirty is not being neglected.
    schedule.take(11.0)
    schedule.add("a", 11.0)
    assert schedule.oldest(500.0) == 0.0


@given(st.lists(st.tuples(st.sampled_from(["add", "later", "take", "done"]), st.sampled_from("abc")), max_size=60))
def test_no_key_is_worked_on_twice_at_once_and_none_is_lost(operations):
    schedule = Schedule[str]()
    working: set[str] = set()
    wanted: set[str] = set()
    for moment, (operation, key) in enumerate(operations):
        now = float(moment)
        if operation == "add":
            schedule.add(key, now)
            wanted.add(key)
        elif operation == "later":
            schedule.add_at(key, now + 3)
            wanted.add(key)
        elif operation == "take":
            taken = schedule.take(now)
            if taken is not None:
                assert taken[0] not in working
                working.add(taken[0])
                wanted.discard(taken[0])
        elif key in working:
            schedule.done(key)
            working.discard(key)
    for key in working:
        schedule.done(key)
    rest = set()
    while (taken := schedule.take(1000.0)) is not None:
        rest.add(taken[0])
    assert wanted <= rest


def test_waits_grow_to_their_limit_with_jitter():
    backoff = Backoff(first=1.0, longest=30.0)
    assert [backoff.wait(n, 1.0) for n in (1, 2, 3, 6, 100)] == [1.0, 2.0, 4.0, 30.0, 30.0]
    assert backoff.wait(1, 0.0) == 0.5


async def test_take_waits_for_a_key_and_ends_when_closed():
    queue = WorkQueue[str]()
    first = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    assert not first.done()
    queue.add("a")
    taken = await first
    assert taken is not None
    assert taken[0] == "a"
    queue.done("a")
    second = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.close()
    assert await second is None


async def test_take_wakes_for_a_later_moment():
    queue = WorkQueue[str]()
    queue.add_after("later", 0.02)
    queue.add_after("sooner", 0.01)
    taken = [await queue.take(), await queue.take()]
    assert [item[0] for item in taken if item] == ["sooner", "later"]


async def test_an_earlier_moment_wakes_a_sleeper():
    queue = WorkQueue[str]()
    queue.add_after("far", 3600)
    waiting = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.add_after("near", 0.01)
    taken = await waiting
    assert taken is not None
    assert taken[0] == "near"


async def test_failures_are_counted_until_forgotten():
    queue = WorkQueue[str](draw=lambda: 1.0)
    assert [queue.retry("a"), queue.retry("a")] == [0.5, 1.0]
    queue.forget("a")
    assert queue.retry("a") == 0.5


async def test_workers_share_keys():
    queue = WorkQueue[int]()
    seen: list[int] = []

    async def work() -> None:
        while (taken := await queue.take()) is not None:
            seen.append(taken[0])
            await asyncio.sleep(0)
            queue.done(taken[0])
            if len(seen) == 50:
                queue.close()

    workers = [asyncio.ensure_future(work()) for _ in range(4)]
    for number in range(50):
        queue.add(number)
    await asyncio.gather(*workers)
    assert sorted(seen) == list(range(50))


def test_patient_keys_let_others_pass():
    schedule = Schedule[str]()
    schedule.add_patiently("rests", 0.0)
    schedule.add("edited", 1.0)
    assert schedule.take(2.0) == ("edited", 1.0)
    assert schedule.take(3.0) == ("rests", 3.0)
    assert schedule.take(3.0) is None


def test_a_patient_key_is_not_passed_for_ever():
    schedule = Schedule[str]()
    schedule.add_patiently("rests", 0.0)
    for number in range(8):
        schedule.add(f"k{number}", 0.0)
    first = [schedule.take(1.0), schedule.take(1.0)]
    assert [taken[0] for taken in first if taken] == ["k0", "k1"]
    late = [schedule.take(PATIENCE + 1.0) for _ in range(3)]
    assert [taken[0] for taken in late if taken] == ["k2", "rests", "k3"]


def test_a_patient_key_is_patient_no_more_when_something_happens_to_it():
    schedule = Schedule[str]()
    schedule.add_patiently("a", 0.0)
    schedule.add_patiently("b", 0.0)
    schedule.add_at("b", 5.0)
    schedule.add("a", 1.0)
    schedule.add("c", 1.0)
    assert schedule.take(2.0) == ("a", 1.0)
    assert len(schedule) == 2
    schedule.add_patiently("a", 2.0)
    schedule.add_patiently("c", 2.0)
    assert schedule.take(2.0) == ("c", 1.0)
    # Its moment has come while it waited; the look that it asked for is the same.
    assert schedule.take(6.0) == ("b", 0.0)
    for key in "abc":
        schedule.done(key)
    assert schedule.take(100.0) is None


def test_a_patient_look_comes_instead_of_a_later_one():
    schedule = Schedule[str]()
    schedule.add_at("a", 10.0)
    schedule.add_patiently("a", 1.0)
    assert schedule.oldest(4.0) == 0.0
    assert schedule.take(4.0) == ("a", 3.0)
    schedule.done("a")
    assert schedule.take(11.0) is None
