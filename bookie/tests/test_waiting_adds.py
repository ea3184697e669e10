"""Adds that wait for room in the write cache: in order, for a bounded time, and not for others."""

from __future__ import annotations

import trio

from bookie.api import (
    Status,
)
from bookie.tests.conftest import KEY, RecordingSink, entry, wait_until, whole


def add(bookie, ledger_id, entry_id, sink, payload=b"hello", key=KEY, flags=0):
    bookie.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id, payload), key, flags, sink)


async def test_full_write_cache_flushes_and_adds_wait_in_order(machine):
    async with machine.running() as bookie:
        sink = RecordingSink()
        with machine.power.lock:
            for entry_id in range(400):
                add(bookie, 1, entry_id, sink, b"x" * 5000)
            await trio.sleep(0.02)
            assert bookie.statistics().adds_waiting > 0
            assert bookie.statistics().write_cache_bytes < 1100 << 10
        await sink.wait_for(400)
        assert sink.replies == [(0, 1, entry_id) for entry_id in range(400)]
        assert await bookie.read_entry(1, 399) == whole(1, 399, b"x" * 5000)


async def test_a_ledger_that_brings_little_does_not_wait_for_room_behind_one_that_floods(machine):
    async with machine.running() as bookie:
        flood, little = RecordingSink(), RecordingSink()
        add(bookie, 2, 0, little)
        with machine.power.lock:
            for entry_id in range(400):
                add(bookie, 1, entry_id, flood, b"x" * 5000)
            await trio.sleep(0.02)
            waiting = bookie.statistics().adds_waiting
            assert waiting > 0
            add(bookie, 2, 1, little, b"x" * 3000)
            assert bookie.statistics().adds_waiting == waiting
            add(bookie, 2, 2, little, b"x" * 3000)  # more than a little
            add(bookie, 2, 3, little, b"x")  # must not overtake it
            assert bookie.statistics().adds_waiting == waiting + 2
        await little.wait_for(4)
        await flood.wait_for(400)
        assert little.replies == [(0, 2, entry_id) for entry_id in range(4)]
        assert flood.replies == [(0, 1, entry_id) for entry_id in range(400)]


async def test_adds_that_waited_too_long_or_are_too_many_are_refused(machine):
    async with machine.running(
        dbStorage_maxThrottleTimeMs=50, maxPendingAddRequestsPerThread=10
    ) as bookie:
        sink = RecordingSink()
        with machine.power.lock:
            for entry_id in range(400):
                add(bookie, 1, entry_id, sink, b"x" * 5000)
            await wait_until(lambda: not bookie.statistics().adds_waiting)
        await sink.wait_for(400)
        assert set(sink.statuses()) == {0, Status.TOO_MANY_REQUESTS}
        assert bookie.statistics().adds_refused > 10
        await bookie.checkpoint()  # then there is room
        add(bookie, 1, 400, sink)
        assert (await sink.wait_for(401))[-1] == (0, 1, 400)


async def test_adds_that_wait_again_later_are_refused_in_time_again(machine):
    async with machine.running(dbStorage_maxThrottleTimeMs=50) as bookie:
        for turn in range(2):
            sink = RecordingSink()
            with machine.power.lock:
                for entry_id in range(400):
                    add(bookie, 1, turn * 400 + entry_id, sink, b"x" * 5000)
                assert bookie.statistics().adds_waiting
                await wait_until(lambda: not bookie.statistics().adds_waiting)
            await sink.wait_for(400)
            assert Status.TOO_MANY_REQUESTS in sink.statuses()
