"""One bookie as its users see it: adds, reads, fencing, keys, limits, failures."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import trio

from bookie import journal_format
from bookie.api import (
    ENTRY_SIZE_BYTES_MAX,
    FLAG_FENCING,
    FLAG_RECOVERY_ADD,
    LAST_ENTRY,
    BookieError,
    Status,
)
from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.disk import RealDisk
from bookie.errors import DiskFailed
from bookie.index import ENTRY_ID_MAX, OWNER_LEDGER
from bookie.index_memory import MemoryIndex
from bookie.memory_disk import MemoryDisk
from bookie.testing.sim_disk import SimDisk
from bookie.tests.conftest import KEY, SMALL, RecordingSink, entry, wait_until, whole


def add(bookie, ledger_id, entry_id, sink, payload=b"hello", key=KEY, flags=0):
    bookie.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id, payload), key, flags, sink)


async def status_of(call):
    with pytest.raises(BookieError) as caught:
        await call
    return caught.value.status


async def test_nobody_kicks_and_adds_are_answered_all_the_same(machine):
    async with machine.running() as bookie:
        sink = RecordingSink()
        for entry_id in range(100):
            add(bookie, 1, entry_id, sink)
        assert sink.replies == []
        await sink.wait_for(100)
        assert sink.replies == [(0, 1, entry_id) for entry_id in range(100)]
        assert sink.ends == 1


async def test_ok_only_after_the_sync(machine):
    async with machine.running() as bookie:
        sink = RecordingSink()
        with machine.power.lock:  # the disk stands still
            add(bookie, 1, 0, sink)
            bookie.kick()
            for _ in range(20):
                await trio.sleep(0.001)
            assert sink.replies == []
            assert bookie.read_cached(1, 0) == entry(1, 0)
        await sink.wait_for(1)


async def test_an_entry_that_no_start_would_read_again_is_refused(machine):
    large = entry(1, 1, bytes(ENTRY_SIZE_BYTES_MAX))
    async with machine.running() as bookie:
        sink = RecordingSink()
        add(bookie, 1, 0, sink)
        bookie.add_entries(1, 1, [large, entry(1, 2)], KEY, 0, sink)
        bookie.add_entry(2, 0, large, KEY, 0, sink)
        await sink.wait_for(4)
        machine.power.is_off = True
    machine.crash(random.Random(0))
    async with machine.running() as bookie:
        assert await bookie.read_entry(1, 0) == whole(1, 0)
    assert sorted(sink.replies) == [
        (Status.OK, 1, 0),
        (Status.OK, 1, 2),
        (Status.BAD_REQUEST, 1, 1),
        (Status.BAD_REQUEST, 2, 0),
    ]


async def test_ids_of_the_journals_own_records_are_refused(machine):
    own = [journal_format.ENTRY_MASTER_KEY, journal_format.ENTRY_FENCE, -1, -(2**62)]
    async with machine.running() as bookie:
        sink = RecordingSink()
        add(bookie, 1, 0, sink)
        for entry_id in own:
            add(bookie, 1, entry_id, sink)
            bookie.add_entries(1, entry_id, [entry(1, entry_id)], KEY, 0, sink)
        await sink.wait_for(1 + 2 * len(own))
        assert sink.statuses() == [Status.OK] + [Status.BAD_REQUEST] * 2 * len(own)
        assert await bookie.list_entry_ids(1) == [0]
        machine.power.is_off = True
    machine.crash(random.Random(0))
    async with machine.running() as bookie:
        sink = RecordingSink()
        add(bookie, 1, 1, sink)
        assert await sink.wait_for(1) == [(Status.OK, 1, 1)]


@pytest.mark.parametrize("ledger_id", [-1, OWNER_LEDGER, -(2**63)])
async def test_rows_that_are_not_ledgers_cannot_be_written(machine, ledger_id):
    async with machine.running() as bookie:
        lac = bookie.write_explicit_lac(ledger_id, bytes(16), KEY)
        assert await status_of(lac) is Status.BAD_REQUEST
        assert await status_of(bookie.fence_ledger(ledger_id, KEY)) is Status.UNAUTHORIZED
        sink = RecordingSink()
        add(bookie, ledger_id, 0, sink)
        assert await sink.wait_for(1) == [(Status.BAD_REQUEST, ledger_id, 0)]
        assert bookie.ledger_ids() == []


async def test_a_key_larger_than_any_client_has_is_not_kept_in_memory(machine):
    key = bytes(1 << 20)
    async with machine.running() as bookie:
        sink = RecordingSink()
        add(bookie, 1, 0, sink, key=key)
        assert await sink.wait_for(1) == [(Status.BAD_REQUEST, 1, 0)]
        lac = bookie.write_explicit_lac(1, bytes(16), key)
        assert await status_of(lac) is Status.BAD_REQUEST
        assert await status_of(bookie.fence_ledger(1, key)) is Status.UNAUTHORIZED
        assert bookie.ledger_ids() == []


async def test_the_last_of_all_entry_ids_can_be_used(tmp_path):
    last = ENTRY_ID_MAX
    directories = {
        "journalDirectories": (str(tmp_path / "journal"),),
        "ledgerDirectories": (str(tmp_path / "ledgers"),),
    }
    bookie = await Bookie.open(replace(SMALL, **directories))
    sink = RecordingSink()
    add(bookie, 1, last, sink)
    await sink.wait_for(1)
    assert await bookie.read_batch(1, last, 10, 1000) == [whole(1, last)]
    await bookie.aclose()
    bookie = await Bookie.open(replace(SMALL, **directories))
    assert await bookie.read_entry(1, last) == whole(1, last)
    assert await bookie.last_entry_id(1) == last
    assert await bookie.list_entry_ids(1) == [last]
    assert await status_of(bookie.read_entry(1, last + 1)) is Status.NO_ENTRY
    await bookie.aclose()


async def test_reads_from_cache_log_and_read_ahead_are_the_same(machine):
    async with machine.running() as bookie:
        sink = RecordingSink()
        for entry_id in range(300):
            for ledger_id in (3, 4):
                add(bookie, ledger_id, entry_id, sink, b"p" * (entry_id % 50))
        await sink.wait_for(600)

        async def read_all(count_max, size_max):
            found = []
            while len(found) < 300:
                batch = await bookie.read_batch(3, len(found), count_max, size_max)
                assert 1 <= len(batch) <= count_max
                assert len(batch) == 1 or sum(map(len, batch)) <= size_max
                found += batch
            return found

        expected = [whole(3, entry_id, b"p" * (entry_id % 50)) for entry_id in range(300)]
        assert await read_all(100, 1 << 20) == expected
        await bookie.checkpoint()
        assert bookie.read_cached(3, 5) is None
        assert await read_all(7, 1 << 20) == expected
        assert await read_all(100, 500) == expected
        assert await bookie.read_entry(3, LAST_ENTRY) == expected[-1]
        assert bookie.statistics().read_cache_hits > 0
        add(bookie, 3, 300, sink)
        assert await bookie.list_entry_ids(3) == list(range(301))
        assert bookie.free_and_total_bytes()[1] > 0


async def test_batch_spans_logs_and_large_entries(machine):
    async with machine.running() as bookie:
        sink = RecordingSink()
        sizes = [10, 30_000, 70_000, 5, 40_000, 40_000, 3_000_000, 1]
        for entry_id, size in enumerate(sizes):
            add(bookie, 1, entry_id, sink, b"z" * size)
            await sink.wait_for(entry_id + 1)
            if entry_id % 3 == 0:
                await bookie.checkpoint()
        await bookie.checkpoint()
        assert bookie.statistics().entry_logs > 2
        found = []
        while len(found) < len(sizes):
            found += await bookie.read_batch(1, len(found), 100, 5 << 20)
        assert [len(body) - 36 for body in found] == sizes
        assert await bookie.read_entry(1, 6) == whole(1, 6, b"z" * 3_000_000)


async def test_absence_is_no_entry_or_no_ledger_and_damage_is_io_error(machine):
    async with machine.running() as bookie:
        sink = RecordingSink()
        add(bookie, 1, 0, sink)
        add(bookie, 1, 1, sink)
        await sink.wait_for(2)
        await bookie.checkpoint()
        assert await status_of(bookie.read_entry(1, 7)) == Status.NO_ENTRY
        assert await status_of(bookie.read_entry(2, 0)) == Status.NO_LEDGER
        (log,) = machine.disk.paths(".log")
        machine.disk.corrupt(log, 1024 + 10, b"\xff\xff\xff")
        assert await status_of(bookie.read_entry(1, 0)) == Status.IO_ERROR
        machine.disk.cut(log, 1100)
        assert await status_of(bookie.read_entry(1, 1)) == Status.IO_ERROR


async def test_a_damaged_entry_costs_no_other_entry(machine):
    async with machine.running() as bookie:
        sink = RecordingSink()
        for entry_id in range(6):
            add(bookie, 1, entry_id, sink)
        await sink.wait_for(6)
        await bookie.checkpoint()
        (log,) = machine.disk.paths(".log")
        record = machine.disk.content(log).index(whole(1, 3))
        machine.disk.corrupt(log, record + 10, b"\xff")
        for entry_id in (0, 2, 4, 5):
            assert await bookie.read_entry(1, entry_id) == whole(1, entry_id)
        assert await status_of(bookie.read_entry(1, 3)) == Status.IO_ERROR
    async with machine.running() as bookie:
        assert await bookie.read_batch(1, 0, 100, 1 << 20) == [whole(1, n) for n in range(3)]
        assert await status_of(bookie.read_batch(1, 3, 100, 1 << 20)) == Status.IO_ERROR
        assert await bookie.read_batch(1, 4, 100, 1 << 20) == [whole(1, 4), whole(1, 5)]


async def test_an_entry_that_is_added_again_is_not_answered_from_what_was_read_ahead(machine):
    async with machine.running() as bookie:
        sink = RecordingSink()
        for entry_id in range(6):
            add(bookie, 1, entry_id, sink)
        await sink.wait_for(6)
        await bookie.checkpoint()
        (log,) = machine.disk.paths(".log")
        record = machine.disk.content(log).index(whole(1, 3))
        machine.disk.corrupt(log, record + len(whole(1, 3)) - 1, b"\xff")
        assert await bookie.read_entry(1, 2) == whole(1, 2)
        assert await bookie.read_entry(1, 3) != whole(1, 3)

        assert await bookie.read_entry(1, 2) == whole(1, 2)
        add(bookie, 1, 3, sink)
        await sink.wait_for(7)
        await bookie.checkpoint()

        assert await bookie.read_entry(1, 3) == whole(1, 3)


async def test_fencing_survives_a_restart_and_lets_recovery_adds_in(machine):
    async with machine.running() as bookie:
        sink = RecordingSink()
        add(bookie, 1, 0, sink)
        add(bookie, 1, 1, sink)
        body = await bookie.read_entry(1, LAST_ENTRY, flags=FLAG_FENCING, master_key=KEY)
        assert body == whole(1, 1)
        add(bookie, 1, 2, sink)
        add(bookie, 1, 2, sink, flags=FLAG_RECOVERY_ADD)
        await sink.wait_for(4)
        assert sink.statuses() == [0, 0, Status.FENCED, 0]
        assert (
            await status_of(bookie.read_entry(9, 0, flags=FLAG_FENCING, master_key=KEY))
            == Status.NO_ENTRY
        )
    machine.crash(__import__("random").Random(1))
    async with machine.running() as bookie:
        sink = RecordingSink()
        for ledger_id in (1, 9):
            add(bookie, ledger_id, 3, sink)
        await sink.wait_for(2)
        assert sink.statuses() == [Status.FENCED, Status.FENCED]


async def test_no_entry_of_a_fencing_read_waits_for_the_fence_record(machine):
    async with machine.running() as bookie:
        sink = RecordingSink()
        add(bookie, 1, 0, sink)
        await sink.wait_for(1)
        before = bookie.statistics().journal_groups
        assert (
            await status_of(bookie.read_entry(1, 5, flags=FLAG_FENCING, master_key=KEY))
            == Status.NO_ENTRY
        )
        assert bookie.statistics().journal_groups == before + 1


async def test_wrong_master_key(machine):
    async with machine.running() as bookie:
        sink = RecordingSink()
        add(bookie, 1, 0, sink)
        add(bookie, 1, 1, sink, key=b"x" * 20)
        await sink.wait_for(2)
        assert sink.statuses() == [0, Status.UNAUTHORIZED]
        assert await status_of(bookie.fence_ledger(1, b"x" * 20)) == Status.UNAUTHORIZED
        assert await status_of(bookie.read_entry(1, 0, flags=FLAG_FENCING)) == Status.UNAUTHORIZED
    async with machine.running() as bookie:
        add(bookie, 1, 2, sink, key=b"x" * 20)
        add(bookie, 1, 2, sink)
        await sink.wait_for(4)
        assert sink.statuses()[2:] == [Status.UNAUTHORIZED, 0]


async def test_deleted_fenced_ledger_stays_fenced(machine):
    async with machine.running() as bookie:
        sink = RecordingSink()
        add(bookie, 1, 0, sink)
        await bookie.fence_ledger(1, KEY)
        await bookie.delete_ledger(1)
        assert await status_of(bookie.read_entry(1, 0)) == Status.NO_LEDGER
        add(bookie, 1, 1, sink)
        await sink.wait_for(2)
        assert sink.statuses() == [0, Status.FENCED]
    async with machine.running() as bookie:
        add(bookie, 1, 1, sink, flags=FLAG_RECOVERY_ADD)
        await sink.wait_for(3)
        assert sink.statuses()[2] == Status.FENCED
        assert bookie.ledger_ids() == []


async def test_explicit_lac_and_force(machine):
    async with machine.running() as bookie:
        await bookie.write_explicit_lac(1, b"lac-body", KEY)
        await bookie.force_ledger(1)
    async with machine.running() as bookie:
        assert bookie.explicit_lac(1) == b"lac-body"


async def test_failed_sync_is_fatal_and_nothing_is_acknowledged(machine):
    sink = RecordingSink()
    with pytest.RaisesGroup(pytest.RaisesExc(DiskFailed, match="fdatasync")):
        async with machine.running() as bookie:
            add(bookie, 1, 0, sink)
            await sink.wait_for(1)
            machine.disk.sync_fails = True
            add(bookie, 1, 1, sink)
            await trio.sleep_forever()
    assert sink.replies[0] == (0, 1, 0)
    assert (await sink.wait_for(2))[1] == (Status.IO_ERROR, 1, 1)
    add(bookie, 1, 2, sink)
    assert (await sink.wait_for(3))[2] == (Status.IO_ERROR, 1, 2)
    assert await status_of(bookie.read_entry(1, 0)) == Status.IO_ERROR


async def test_full_disk_is_read_only_both_ways(machine):
    machine.disk.total_bytes = 1 << 30
    machine.disk.free_bytes = 1 << 30
    async with machine.running(
        diskCheckInterval=5, minUsableSizeForHighPriorityWrites=1 << 20
    ) as bookie:
        sink = RecordingSink()
        add(bookie, 1, 0, sink)
        await sink.wait_for(1)
        machine.disk.free_bytes = 10 << 20
        await wait_until(lambda: not bookie.is_writable())
        add(bookie, 1, 1, sink)
        add(bookie, 1, 1, sink, flags=FLAG_RECOVERY_ADD)
        await sink.wait_for(3)
        assert sink.statuses() == [0, Status.READ_ONLY, 0]
        assert await bookie.read_entry(1, 1) == whole(1, 1)
        machine.disk.free_bytes = 1 << 30
        await wait_until(bookie.is_writable)
        add(bookie, 1, 2, sink)
        assert (await sink.wait_for(4))[3][0] == 0


async def test_no_space_while_flushing_loses_nothing(machine):
    async with machine.running(diskCheckInterval=3_600_000) as bookie:
        sink = RecordingSink()
        for entry_id in range(50):
            add(bookie, 1, entry_id, sink, b"x" * 1000)
        await sink.wait_for(50)
        machine.disk.free_bytes = 2000
        await bookie.checkpoint()
        assert not bookie.is_writable()
        assert bookie.statistics().checkpoints == 0
        assert await bookie.read_entry(1, 49) == whole(1, 49, b"x" * 1000)
        machine.disk.free_bytes = None
        await bookie.checkpoint()
        await bookie.checkpoint()
        assert bookie.statistics().checkpoints == 1
        assert bookie.read_cached(1, 49) is None
        assert await bookie.read_entry(1, 49) == whole(1, 49, b"x" * 1000)


async def test_in_memory_mode():
    bookie = await Bookie.open(
        BookieConfig.in_memory(), MemoryDisk(), open_index=lambda _directory: MemoryIndex()
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(bookie.run)
        sink = RecordingSink()
        for entry_id in range(50):
            add(bookie, 1, entry_id, sink)
        await sink.wait_for(50)
        await bookie.checkpoint()
        assert len(await bookie.read_batch(1, 0, 100, 1 << 20)) == 50
        await bookie.fence_ledger(1, KEY)
        nursery.cancel_scope.cancel()
    await bookie.aclose()


async def test_real_disk_and_rocksdb(tmp_path):
    config = BookieConfig(
        journalDirectories=(f"{tmp_path}/j",), ledgerDirectories=(f"{tmp_path}/l",)
    )
    for life in range(3):
        bookie = await Bookie.open(config, RealDisk())
        async with trio.open_nursery() as nursery:
            await nursery.start(bookie.run)
            sink = RecordingSink()
            for number in range(500):
                add(bookie, number % 3, life * 500 + number // 3, sink, b"%d" % number)
            await sink.wait_for(500)
            for earlier in range(life + 1):
                batch = await bookie.read_batch(2, earlier * 500, 100, 1 << 20)
                assert batch[0] == whole(2, earlier * 500, b"2")
                assert len(batch) == 100
            assert await bookie.last_entry_id(0) == life * 500 + 166
            assert await status_of(bookie.read_entry(0, 200)) == Status.NO_ENTRY
            nursery.cancel_scope.cancel()
        await bookie.aclose()


def test_config_refuses_nonsense():
    with pytest.raises(ValueError, match="multiple of 512"):
        BookieConfig(journalAlignmentSize=100)


def test_sim_disk_forgets_what_was_not_synced():
    import random

    disk = SimDisk()
    file = disk.create("/d/a")
    file.write_at(0, b"one")
    file.sync()
    assert {len(disk.restart(random.Random(seed)).paths("")) for seed in range(20)} == {0, 1}
    disk.sync_directory("/d")
    file.write_at(3, b"two")
    assert disk.restart(random.Random(0)).content("/d/a").startswith(b"one")
    contents = {disk.restart(random.Random(seed)).content("/d/a") for seed in range(20)}
    assert contents == {b"one", b"onetwo"}
