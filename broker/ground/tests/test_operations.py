"""Operations with one key run one after the other, in order; those with others do not wait."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from broker.ground.operations import CALLS_PER_TURN, Operations, run_owned
from protocol.errors import PersistenceError
from runtime.testing.conditions import SECONDS_MAX

KEY = "s"


async def test_what_needs_no_waiting_is_done_when_begin_returns(nursery):
    operations = Operations(lambda: nursery)
    done = []
    operations.begin(KEY, lambda: done.append(1))
    assert done == [1]
    assert len(operations) == 0


async def test_operations_of_one_key_run_in_order_and_those_of_another_do_not_wait(nursery):
    operations = Operations(lambda: nursery)
    done, gate, finished = [], trio.Event(), trio.Event()

    async def slow(number):
        await gate.wait()
        await trio.lowlevel.checkpoint()
        done.append(number)

    async def last():
        done.append("last")
        finished.set()

    operations.begin(KEY, lambda: slow(1))
    operations.begin(KEY, lambda: done.append(2))
    operations.begin(KEY, lambda: slow(3))
    operations.begin(KEY, last)
    operations.begin("other", lambda: done.append("other"))
    assert done == ["other"]
    gate.set()
    await finished.wait()
    assert done == ["other", 1, 2, 3, "last"]
    await trio.testing.wait_all_tasks_blocked()
    assert len(operations) == 0


async def test_what_an_operation_begins_itself_comes_after_it(nursery):
    operations = Operations(lambda: nursery)
    done = []

    async def rest():
        done.append("rest")

    def outer():
        operations.begin(KEY, lambda: done.append("inner"))
        return rest()

    operations.begin(KEY, outer)
    await trio.testing.wait_all_tasks_blocked()
    assert done == ["rest", "inner"]


async def test_those_who_waited_go_on_in_turns(nursery):
    operations = Operations(lambda: nursery)
    gate, called, others = trio.Event(), [], []
    operations.begin(KEY, gate.wait)
    for number in range(3 * CALLS_PER_TURN):
        operations.begin(KEY, lambda number=number: called.append(number))

    gate.set()
    while len(called) < 3 * CALLS_PER_TURN:
        others.append(len(called))
        await trio.lowlevel.checkpoint()
    assert called == list(range(3 * CALLS_PER_TURN))
    assert any(0 < count < 3 * CALLS_PER_TURN for count in others)


async def test_a_failure_is_told_to_the_one_who_asked_and_the_next_goes_on(nursery):
    operations = Operations(lambda: nursery)

    async def fails():
        await trio.lowlevel.checkpoint()
        raise PersistenceError("no space")

    def refuses():
        raise PersistenceError("not now")

    async def works():
        return 7

    with pytest.raises(PersistenceError, match="not now"):
        operations.start(KEY, refuses)
    first = operations.start(KEY, fails)
    second = operations.start(KEY, refuses)
    third = operations.start(KEY, works)
    with pytest.raises(PersistenceError, match="no space"):
        await first
    with pytest.raises(PersistenceError, match="not now"):
        await second
    assert await third == 7


async def test_an_operation_goes_on_when_the_one_who_waits_is_cancelled(nursery):
    operations = Operations(lambda: nursery)
    gate, done = trio.Event(), []

    async def slow():
        await gate.wait()
        done.append(1)

    with trio.move_on_after(0):
        await operations.run(KEY, slow)
    with trio.move_on_after(0):
        await run_owned(nursery, slow)
    gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert done == [1, 1]


async def test_an_operation_that_fails_ends_neither_its_queue_nor_the_others(nursery):
    operations = Operations(lambda: nursery)
    gate, done = trio.Event(), trio.Event()

    async def fails_late():
        await gate.wait()
        raise RuntimeError("late")

    def fails_at_once():
        raise RuntimeError("at once")

    operations.begin(KEY, fails_late)
    operations.begin(KEY, fails_at_once)
    operations.begin(KEY, lambda: done.set())
    with capture_logs() as lines:
        gate.set()
        with trio.fail_after(SECONDS_MAX):
            await done.wait()
            await trio.testing.wait_all_tasks_blocked()
    assert [line["log_level"] for line in lines] == ["error", "error"]
    assert KEY not in operations


async def test_an_operation_that_fails_at_once_tells_its_caller_and_leaves_its_place(nursery):
    operations = Operations(lambda: nursery)

    def fails():
        raise RuntimeError("at once")

    with pytest.raises(RuntimeError, match="at once"):
        operations.begin(KEY, fails)
    done = []
    operations.begin(KEY, lambda: done.append(1))
    assert done == [1]
