"""What a read checks in the event loop is little; the rest is checked in threads."""

import threading

import pytest
import trio

from ledgers.ledger_reader import CHECKED_AT_ONCE_MAX, CHECKED_BYTES_MAX
from ledgers.tests.test_ledgers import World, settle

COUNT = 4 * CHECKED_AT_ONCE_MAX


@pytest.fixture
def helped(monkeypatch):
    """The threads that helped the event loop."""
    run_sync = trio.to_thread.run_sync
    threads = []

    def noting(call):
        threads.append(threading.current_thread())
        return call()

    async def run_noting(call, limiter):
        return await run_sync(noting, call, limiter=limiter)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_noting)
    return threads


async def long_ledger(world, size_bytes=0):
    writer = await world.writer()
    for number in range(COUNT):
        writer.add(b"%0*d" % (size_bytes, number))
    await settle()
    await writer.close()
    return await world.client().reader(writer.ledger_id)


async def test_a_run_of_few_small_entries_is_checked_at_once(helped):
    reader = await long_ledger(World())
    found = await reader.read(0, CHECKED_AT_ONCE_MAX - 1)
    assert found == [b"%d" % number for number in range(CHECKED_AT_ONCE_MAX)]
    assert not helped


async def test_a_run_of_many_entries_is_checked_in_a_thread(helped):
    reader = await long_ledger(World())
    assert await reader.read(0, COUNT - 1) == [b"%d" % number for number in range(COUNT)]
    assert len(helped) == 1
    assert helped[0] is not threading.current_thread()


async def test_a_run_of_many_bytes_is_checked_in_a_thread(helped):
    size_bytes = CHECKED_BYTES_MAX // 4
    reader = await long_ledger(World(), size_bytes)
    read = await reader.read(0, 3, 2 * CHECKED_BYTES_MAX)
    assert len(read) == 4  # with their heads they are more
    assert len(helped) == 1
    assert await reader.read(7, 7) == [b"%0*d" % (size_bytes, 7)]
    assert len(helped) == 1


async def test_what_is_before_a_damaged_entry_of_a_long_run_is_read(helped):
    world = World()
    reader = await long_ledger(world)
    damaged = 2 * CHECKED_AT_ONCE_MAX + 1
    entries = world.bookie.ledgers[reader.ledger_id]
    entries[damaged] = entries[damaged][:-1] + b"?"
    assert await reader.read(1, COUNT - 1) == [b"%d" % number for number in range(1, damaged)]
    assert helped
