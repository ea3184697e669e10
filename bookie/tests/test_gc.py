"""Garbage collection: only what is gone goes, and compaction never loses a live entry."""

from __future__ import annotations

import random

import pytest

from bookie.api import BookieError, Status
from bookie.errors import DiskFailed
from bookie.tests.conftest import KEY, RecordingSink, entry, whole

PAYLOAD = b"y" * 2000


async def fill(bookie, ledgers=4, entries=60):
    """Interleaved ledgers over several logs."""
    sink = RecordingSink()
    for first in range(0, entries, 10):
        for entry_id in range(first, first + 10):
            for ledger_id in range(ledgers):
                bookie.add_entry(
                    ledger_id, entry_id, entry(ledger_id, entry_id, PAYLOAD), KEY, 0, sink
                )
        await sink.wait_for((first + 10) * ledgers)
        await bookie.checkpoint()


async def check(bookie, ledger_id, entries=60):
    found = []
    while len(found) < entries:
        found += await bookie.read_batch(ledger_id, len(found), 100, 1 << 20)
    assert found == [whole(ledger_id, entry_id, PAYLOAD) for entry_id in range(entries)]


async def test_ledgers_that_metadata_lost_are_deleted_and_others_are_not(machine):
    async with machine.running() as bookie:
        await fill(bookie)
        logs = len(machine.disk.paths(".log"))

        async def live():
            return {1, 99}

        bookie.set_live_ledgers(live)
        await bookie.collect_garbage()
        assert bookie.ledger_ids() == [1]
        with pytest.raises(BookieError) as caught:
            await bookie.read_entry(0, 0)
        assert caught.value.status == Status.NO_LEDGER
        await check(bookie, 1)
        await bookie.collect_garbage(major=True)
        assert len(machine.disk.paths(".log")) < logs
        assert bookie.statistics().reclaimed_compaction_bytes > 0
    machine.crash(random.Random(1))
    async with machine.running() as bookie:
        await check(bookie, 1)
        assert bookie.ledger_ids() == [1]
        bookie.set_live_ledgers(lambda: _set())
        await bookie.collect_garbage()
        assert bookie.statistics().reclaimed_deletion_bytes > 0
        assert bookie.statistics().entry_logs <= 1


async def _set():
    return set()


async def test_unreadable_metadata_deletes_nothing(machine):
    async with machine.running() as bookie:
        await fill(bookie, entries=10)

        async def broken():
            raise OSError("metadata is away")

        bookie.set_live_ledgers(broken)
        await bookie.collect_garbage()
        assert bookie.ledger_ids() == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(12))
async def test_power_loss_during_compaction_loses_nothing(machine, seed):
    rng = random.Random(seed)
    async with machine.running() as bookie:
        await fill(bookie)
        for ledger_id in (0, 2, 3):
            await bookie.delete_ledger(ledger_id)
        machine.power.crash_after = machine.power.operations + rng.randint(1, 40)
        try:
            await bookie.collect_garbage(major=True)
        except DiskFailed:
            pass
        machine.power.is_off = True
    machine.crash(rng)
    async with machine.running() as bookie:
        await check(bookie, 1)
        await bookie.collect_garbage(major=True)
        await check(bookie, 1)


async def test_garbage_in_a_ledgers_map_deletes_nothing(machine):
    async with machine.running() as bookie:
        await fill(bookie)
    for log in machine.disk.paths(".log"):
        machine.disk.corrupt(log, 16, (77).to_bytes(4, "big"))
    async with machine.running() as bookie:
        await bookie.collect_garbage(major=True)
        for ledger_id in range(4):
            await check(bookie, ledger_id)


async def test_a_log_that_cannot_be_read_through_is_kept(machine):
    async with machine.running() as bookie:
        await fill(bookie)
    victim = machine.disk.paths(".log")[0]
    machine.disk.corrupt(victim, 8, bytes(12))
    machine.disk.corrupt(victim, 1024, b"\xff" * 8)
    async with machine.running() as bookie:
        for ledger_id in range(3):
            await bookie.delete_ledger(ledger_id)
        await bookie.collect_garbage(major=True)
        assert machine.disk.exists(victim)


async def test_compaction_stops_when_the_disk_is_full(machine):
    async with machine.running() as bookie:
        await fill(bookie)
        for ledger_id in (0, 2, 3):
            await bookie.delete_ledger(ledger_id)
        machine.disk.free_bytes = 0
        await bookie.collect_garbage(major=True)
        machine.disk.free_bytes = None
        await check(bookie, 1)
        await bookie.collect_garbage(major=True)
        await check(bookie, 1)


@pytest.mark.parametrize("off", ["Interval", "Threshold"])
async def test_compaction_with_a_zero_is_off(machine, off):
    zeros = {f"minorCompaction{off}": 0, f"majorCompaction{off}": 0}
    async with machine.running(**zeros) as bookie:
        await fill(bookie)
        bookie.set_live_ledgers(lambda: _only(1))
        for _ in range(3):
            await bookie.collect_garbage()
        statistics = bookie.statistics()
        assert (statistics.minor_compactions, statistics.major_compactions) == (0, 0)
        assert statistics.reclaimed_compaction_bytes == 0


async def _only(ledger_id):
    return {ledger_id}


def flip(disk, path, offset, bit=0):
    content = disk.content(path)
    disk.corrupt(path, offset, bytes([content[offset] ^ (1 << bit)]))


def map_item_offset(content, ledger_id):
    """Where the ledgers map of a sealed log names a ledger."""
    at = content.index(ledger_id.to_bytes(8, "big"), int.from_bytes(content[8:16], "big") + 24)
    return at + 7


@pytest.mark.parametrize("is_old", [False, True])
async def test_a_flipped_bit_in_a_ledgers_map_deletes_nothing_that_lives(machine, is_old):
    """One bit made the map name ledger 1025 instead of 1, which does not exist."""
    async with machine.running() as bookie:
        await fill(bookie)
    for log in machine.disk.paths(".log"):
        content = machine.disk.content(log)
        flip(machine.disk, log, map_item_offset(content, 1) - 1, bit=2)
        if is_old:
            machine.disk.corrupt(log, 20, bytes(8))  # as an earlier version wrote it
    async with machine.running() as bookie:
        for ledger_id in (0, 2, 3):
            await bookie.delete_ledger(ledger_id)
        bookie.set_live_ledgers(lambda: _only(1))
        for _ in range(2):
            await bookie.collect_garbage()
            await check(bookie, 1)
        await bookie.collect_garbage(major=True)
        await check(bookie, 1)
    async with machine.running() as bookie:
        await check(bookie, 1)


@pytest.mark.parametrize("field", [7, 15])
async def test_compaction_keeps_a_log_with_a_record_that_is_not_what_was_written(machine, field):
    """The ledger id (byte 7) or entry id (byte 15) of one record of a live ledger."""
    async with machine.running() as bookie:
        await fill(bookie)
    victim = machine.disk.paths(".log")[0]
    content = machine.disk.content(victim)
    record = content.index((1).to_bytes(8, "big") + (3).to_bytes(8, "big"), 1024)
    flip(machine.disk, victim, record + field, bit=6)
    async with machine.running() as bookie:
        for ledger_id in (0, 2, 3):
            await bookie.delete_ledger(ledger_id)
        for _ in range(2):
            await bookie.collect_garbage(major=True)
        assert machine.disk.exists(victim)
        for entry_id in range(60):
            if entry_id == 3:
                with pytest.raises(BookieError) as refused:
                    await bookie.read_entry(1, entry_id)
                assert refused.value.status == Status.IO_ERROR
            else:
                assert await bookie.read_entry(1, entry_id) == whole(1, entry_id, PAYLOAD)


async def test_a_damaged_header_of_a_log_costs_no_entry(machine):
    async with machine.running() as bookie:
        await fill(bookie)
    for log in machine.disk.paths(".log"):
        flip(machine.disk, log, 0)
    async with machine.running() as bookie:
        for ledger_id in range(4):
            await check(bookie, ledger_id)
        for ledger_id in (0, 2, 3):
            await bookie.delete_ledger(ledger_id)
        await bookie.collect_garbage(major=True)
        await check(bookie, 1)


async def test_a_log_is_not_damaged_by_an_append_that_found_no_space(machine):
    """A bookie is often stopped in that state, and its log sealed."""
    async with machine.running(logSizeLimit=1 << 20) as bookie:
        await fill(bookie, ledgers=1)
        sink = RecordingSink()
        for entry_id in range(60):
            bookie.add_entry(1, entry_id, entry(1, entry_id, PAYLOAD), KEY, 0, sink)
        await sink.wait_for(60)
        machine.disk.free_bytes = 50_000
        machine.disk.said_free_bytes = 1 << 30
        await bookie.checkpoint()
        assert not bookie.is_writable()
        machine.disk.free_bytes = machine.disk.said_free_bytes = 2000  # enough for the map only
    machine.disk.free_bytes = machine.disk.said_free_bytes = None
    async with machine.running() as bookie:
        for ledger_id in (0, 1):
            await check(bookie, ledger_id)
            await bookie.delete_ledger(ledger_id)
        await bookie.collect_garbage()
        assert machine.disk.paths(".aside") == []
        assert machine.disk.paths(".log") == ["/l/current/2.log"]  # the active one
