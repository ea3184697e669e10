"""KeyedLocks: one holder per key, and no memory of keys that nobody uses."""

from __future__ import annotations

import pytest
import trio

from runtime.locks import KeyedLocks


async def test_one_task_at_a_time_holds_a_key_and_other_keys_do_not_wait(nursery, autojump_clock):
    locks: KeyedLocks[str] = KeyedLocks()
    order = []

    async def hold(key, name):
        async with locks.hold(key):
            order.append(name)
            await trio.sleep(1)
            order.append(name)

    for key, name in (("a", "first"), ("a", "second"), ("b", "other")):
        nursery.start_soon(hold, key, name)
        await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(3)
    assert [name for name in order if name != "other"] == ["first", "first", "second", "second"]
    assert order.index("other") == 1
    assert len(locks) == 0


async def test_a_wait_that_is_given_up_leaves_the_lock_to_its_holder(nursery, autojump_clock):
    locks: KeyedLocks[str] = KeyedLocks()

    async def hold(task_status=trio.TASK_STATUS_IGNORED):
        async with locks.hold("a"):
            task_status.started()
            await trio.sleep(2)

    await nursery.start(hold)
    with pytest.raises(trio.TooSlowError):
        async with locks.hold("a", 1.0):
            pytest.fail("held twice")
    assert len(locks) == 1
    await trio.sleep(2)
    assert len(locks) == 0


async def test_a_task_that_is_cancelled_on_its_way_to_a_lock_leaves_later_ones_alone(nursery):
    locks: KeyedLocks[str] = KeyedLocks()
    on_its_way = []

    async def cancelled():
        with trio.CancelScope() as scope:
            scope.cancel()
            on_its_way.append(True)
            async with locks.hold("a"):
                pytest.fail("held by a task that is cancelled")

    async with locks.hold("a"):
        nursery.start_soon(cancelled)
        while not on_its_way:
            await trio.lowlevel.checkpoint()
    async with locks.hold("a"):
        await trio.testing.wait_all_tasks_blocked()
        assert len(locks) == 1  # another task would wait for it
    assert len(locks) == 0
