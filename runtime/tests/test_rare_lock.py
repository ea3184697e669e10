"""The lock that is nothing while nobody holds it."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from runtime.locks import RareLock
from runtime.testing.conditions import SECONDS_MAX


async def test_one_task_at_a_time_has_it_in_the_order_of_their_coming() -> None:
    lock, order, inside = RareLock(), [], 0

    async def use(number: int) -> None:
        nonlocal inside
        async with lock:
            inside += 1
            assert inside == 1
            order.append(number)
            await trio.lowlevel.checkpoint()
            inside -= 1

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(use, number)
            await wait_all_tasks_blocked()
    assert order == [0, 1, 2, 3, 4]


async def test_tasks_of_one_turn_exclude_each_other() -> None:
    lock, inside = RareLock(), 0

    async def use() -> None:
        nonlocal inside
        for _ in range(20):
            async with lock:
                inside += 1
                await trio.lowlevel.checkpoint()
                assert inside == 1
                inside -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(use)


async def test_a_waiting_task_may_be_cancelled() -> None:
    lock = RareLock()
    async with trio.open_nursery() as nursery, lock:
        nursery.start_soon(lock.__aenter__)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    with trio.fail_after(SECONDS_MAX):
        async with lock:
            pass


async def test_a_task_that_is_cancelled_before_it_waits_leaves_it_free() -> None:
    lock = RareLock()
    with trio.CancelScope() as scope:
        scope.cancel()
        async with lock:
            pytest.fail("a cancelled task must not get it")
    with trio.fail_after(SECONDS_MAX):
        async with lock:
            pass


async def test_an_error_inside_frees_it() -> None:
    lock = RareLock()
    with pytest.raises(ValueError, match="inside"):
        async with lock:
            raise ValueError("inside")
    with trio.fail_after(SECONDS_MAX):
        async with lock:
            pass
