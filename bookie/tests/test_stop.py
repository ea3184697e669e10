"""The end of a bookie: every waiter gets an answer, and nothing begins after the end."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from bookie.api import BookieError, Status
from bookie.errors import DiskFailed
from bookie.tests.conftest import KEY, RecordingSink, entry, wait_until, whole
from runtime.testing.conditions import SECONDS_MAX


async def test_a_barrier_handed_to_a_stopped_journal_is_refused(machine):
    bookie = await machine.open()
    sink = RecordingSink()
    bookie.add_entry(1, 0, entry(1, 0), KEY, 0, sink)
    await sink.wait_for(1)
    for journal in bookie._journals:
        journal.stop()
    with trio.fail_after(SECONDS_MAX):
        with pytest.raises(BookieError) as caught:
            await bookie.force_ledger(1)
        assert caught.value.status == Status.IO_ERROR
        await bookie.aclose()
    async with machine.running() as bookie:
        assert await bookie.read_entry(1, 0) == whole(1, 0)


async def test_an_add_handed_to_a_stopped_journal_is_refused(machine):
    bookie = await machine.open()
    sink = RecordingSink()
    bookie.add_entry(1, 0, entry(1, 0), KEY, 0, sink)
    await sink.wait_for(1)
    for journal in bookie._journals:
        journal.stop()
    bookie.add_entries(1, 1, [entry(1, 1), entry(1, 2)], KEY, 0, sink)
    bookie.kick()
    await sink.wait_for(3)
    assert sink.replies[1:] == [(Status.IO_ERROR, 1, 1), (Status.IO_ERROR, 1, 2)]
    await bookie.aclose()


async def test_a_checkpoint_whose_turn_comes_after_the_end_ends_too(machine):
    """With a short flushInterval the last checkpoint of `run` came after the journals' end."""
    bookie = await machine.open()
    sink = RecordingSink()
    bookie.add_entry(1, 0, entry(1, 0), KEY, 0, sink)
    await sink.wait_for(1)
    await bookie.aclose()
    checkpoints = bookie.statistics().checkpoints
    with trio.fail_after(SECONDS_MAX):
        await bookie._checkpointer.checkpoint()
    assert bookie.statistics().checkpoints == checkpoints


async def test_closing_while_checkpoints_run_all_the_time_always_ends(machine):
    for _round in range(20):
        bookie = await machine.open(flushInterval=1)
        with trio.fail_after(SECONDS_MAX):
            async with trio.open_nursery() as nursery:
                await nursery.start(bookie.run)
                for _ in range(3):
                    nursery.start_soon(bookie._checkpointer.checkpoint)
                await bookie.aclose()
                await bookie._checkpointer.checkpoint()
                nursery.cancel_scope.cancel()


async def test_a_compaction_under_way_writes_nothing_after_the_end(machine):
    """It runs beside the end of its bookie, and must not append to a log that is being sealed."""
    sink = RecordingSink()
    bookie = await machine.open(compactionRateByEntries=1000)
    async with trio.open_nursery() as nursery:
        await nursery.start(bookie.run)
        for first in range(0, 600, 100):
            for entry_id in range(first, first + 100):
                for ledger_id in (1, 2, 3):
                    body = entry(ledger_id, entry_id, bytes(500))
                    bookie.add_entry(ledger_id, entry_id, body, KEY, 0, sink)
            await sink.wait_for(3 * first + 300)
            await bookie.checkpoint()
        for ledger_id in (1, 3):
            await bookie.delete_ledger(ledger_id)
        async with trio.open_nursery() as compaction:
            before = machine.power.operations
            compaction.start_soon(partial(bookie.collect_garbage, major=True))
            await wait_until(lambda: machine.power.operations > before)
            await bookie.aclose()
            operations = machine.power.operations
        assert machine.power.operations == operations
        nursery.cancel_scope.cancel()
    async with machine.running() as bookie:
        for entry_id in range(600):
            assert await bookie.read_entry(2, entry_id) == whole(2, entry_id, bytes(500))


@pytest.mark.parametrize("is_direct", [False, True])
async def test_a_log_whose_sync_failed_is_not_completed_at_the_end(machine, is_direct):
    """A second sync may succeed although the bytes of the first one are lost. The next start reads
    the log from its indexed end, as after a crash."""
    sink, log = RecordingSink(), "/l/current/1.log"
    with pytest.RaisesGroup(pytest.RaisesExc(DiskFailed, match="fdatasync")):
        async with machine.running() as bookie:
            if is_direct:
                bookie._layout.storages[0].direct_flush_bytes_min = 1
            bookie.add_entry(1, 0, entry(1, 0), KEY, 0, sink)
            await sink.wait_for(1)
            await bookie.checkpoint()
            bookie.add_entry(1, 1, entry(1, 1), KEY, 0, sink)
            await sink.wait_for(2)
            machine.disk.sync_fails = True
            await bookie.checkpoint()
            machine.disk.sync_fails = False
            file = machine.disk.open(log)
            before = file.read_at(0, 1 << 20)
            await trio.sleep_forever()
    assert machine.disk.open(log).read_at(0, 1 << 20) == before
    async with machine.running() as bookie:
        for entry_id in (0, 1):
            assert await bookie.read_entry(1, entry_id) == whole(1, entry_id)
