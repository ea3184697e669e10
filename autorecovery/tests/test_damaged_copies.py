"""Copies that are damaged on bookies that answer: found anywhere, and repaired."""

from __future__ import annotations

import pytest
import trio

import autorecovery.auditor as auditor_module
from autorecovery.auditor import Auditor
from autorecovery.copies import INDEX_SAMPLE_MAX, CopyReader, ReadPace
from autorecovery.fragments import CopyState, bookies_of
from autorecovery.records import DISABLE_PATH
from autorecovery.tests.worlds import ENTRIES, recovery_world
from autorecovery.worker import Incomplete
from bookie.api import Status
from bookie.index import pack_location_key, pack_u64
from metadata.store import MetadataUnavailable
from protocol.bookkeeper.paths import ledger_path
from runtime.testing.conditions import eventually


async def damage(world, bookie_id, ledger_id, entry_id, offset=-1):
    """Flip a byte of the stored copy, after the record's head: only the digest shows it. With
    `offset` 4 the bookie itself sees that this is not the entry."""
    node = world.world.node(bookie_id)
    bookie = node.gate.bookie
    await bookie.checkpoint()
    body = await bookie.read_entry(ledger_id, entry_id)
    disk = node.machine.disk
    for log in disk.paths(".log"):
        at = disk.content(log).find(body)
        if at >= 0:
            at = at + len(body) - 1 if offset < 0 else at + offset
            disk.corrupt(log, at, bytes([disk.content(log)[at] ^ 0xFF]))
            return
    raise AssertionError(f"no copy of {ledger_id}:{entry_id} on {bookie_id}")


async def work(world, count):
    """Let a worker complete so many ledgers."""
    worker = world.worker()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.run)
        await world.until(lambda: worker.ledgers_completed == count)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("offset", [-1, 4], ids=["digest", "head"])
@pytest.mark.parametrize("spare", [0, 1])
async def test_five_copies_damaged_at_different_entries_are_all_repaired(spare, offset):
    async with recovery_world(2 + spare, (2, 2, 2)) as world:
        damaged = []
        for entry_id in (0, 1, ENTRIES // 2, ENTRIES - 2, ENTRIES - 1):
            writer, _ = await world.a_ledger()
            bookie_id = (await world.metadata(writer.ledger_id)).ensembles[0][entry_id % 2]
            await damage(world, bookie_id, writer.ledger_id, entry_id, offset)
            damaged.append(writer.ledger_id)
        before = [await world.metadata(each) for each in damaged]

        assert await world.auditor().check_ledgers() == 5
        assert await world.marked() == damaged
        await work(world, 5)

        assert await world.marked() == []
        for ledger_id in damaged:
            await world.require_all_copies(ledger_id)
        # What takes entries keeps its place, and has them after it was started again as well.
        assert [await world.metadata(each) for each in damaged] == before
        for node in world.nodes:
            await node.gate.bookie.checkpoint()
        for ledger_id in damaged:
            await world.require_all_copies(ledger_id)
        assert await world.auditor().check_ledgers() == 0


async def test_entries_damaged_on_either_bookie_are_each_restored_from_the_other():
    async with recovery_world(2, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        first, second = (await world.metadata(writer.ledger_id)).ensembles[0]
        for bookie_id, entry_id in ((first, 7), (first, 40), (second, 8), (second, 41)):
            await damage(world, bookie_id, writer.ledger_id, entry_id)

        assert await world.auditor().check_ledgers() == 1
        await work(world, 1)

        await world.require_all_copies(writer.ledger_id)


async def test_an_entry_that_is_damaged_everywhere_keeps_no_other_from_being_repaired():
    async with recovery_world(2, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        ledger_id = writer.ledger_id
        first, second = (await world.metadata(ledger_id)).ensembles[0]
        for bookie_id, entry_id in ((first, 7), (second, 7), (first, 40)):
            await damage(world, bookie_id, ledger_id, entry_id)

        with pytest.raises(Incomplete, match=f"entry {ledger_id}:7 is on no bookie"):
            await world.worker().replicate(ledger_id, {first, second})

        reader = CopyReader(world.pool.bookies, ledger_id, await world.metadata(ledger_id), 20.0)
        assert (await reader.read(first, 40))[1] is CopyState.PRESENT


async def test_a_repair_without_a_source_writes_nothing_again():
    async with recovery_world(2, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        ledger_id = writer.ledger_id
        first, second = (await world.metadata(ledger_id)).ensembles[0]
        for bookie_id, entry_id in ((first, 7), (second, 7), (first, 40)):
            await damage(world, bookie_id, ledger_id, entry_id)
        added = []

        def record(_ledger_id, entry_id):
            added.append(entry_id)
            return Status.OK

        for node in world.nodes:
            node.gate.add_status = record
        with pytest.raises(Incomplete):
            await world.worker().replicate(ledger_id, {first, second})
        batch = world.config.rereplicationEntryBatchSize
        assert added == list(range(40, 40 + batch))
        for _ in range(3):
            with pytest.raises(Incomplete):
                await world.worker().replicate(ledger_id, {first, second})
        assert len(added) == batch


async def test_a_copy_is_filled_though_another_of_its_fragment_cannot_be():
    async with recovery_world(5, (3, 3, 2)) as world:
        writer, _ = await world.a_ledger()
        broken, damaged, _intact = (await world.metadata(writer.ledger_id)).ensembles[0]
        for bookie_id in (broken, damaged):
            await damage(world, bookie_id, writer.ledger_id, 20)
        world.world.node(broken).gate.add_status = lambda ledger_id, entry_id: Status.IO_ERROR

        assert await world.auditor().check_ledgers() == 1
        await work(world, 1)

        ensemble = (await world.metadata(writer.ledger_id)).ensembles[0]
        assert broken not in ensemble
        assert ensemble[1] == damaged
        await world.require_all_copies(writer.ledger_id)


async def mislead(world, bookie_id, ledger_id, entry_id):
    """A row of the index points to another entry: only reads that begin there meet it."""
    bookie = world.world.node(bookie_id).gate.bookie
    await bookie.checkpoint()
    for storage in bookie._storages:
        if storage.index.location(ledger_id, entry_id):
            batch = storage.index.new_batch()
            wrong = storage.index.location(ledger_id, entry_id + 2)
            batch.put(pack_location_key(ledger_id, entry_id), pack_u64(wrong))
            storage.index.write_locations(batch)


async def test_damage_that_only_a_reader_meets_is_repaired_where_it_was_met():
    async with recovery_world(2, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        ledger_id = writer.ledger_id
        first, second = (await world.metadata(ledger_id)).ensembles[0]
        await mislead(world, first, ledger_id, 11)
        reader = CopyReader(world.pool.bookies, ledger_id, await world.metadata(ledger_id), 20.0)
        assert (await reader.read(first, 11))[1] is CopyState.DAMAGED

        await world.marks.add_damaged(ledger_id, [first], 0, 11)
        gates = [world.world.node(each).gate for each in (first, second)]
        before = [gate.adds for gate in gates]
        await work(world, 1)

        assert (await reader.read(first, 11))[1] is CopyState.PRESENT
        await world.world.node(first).gate.bookie.checkpoint()
        assert (await reader.read(first, 11))[1] is CopyState.PRESENT
        await world.require_all_copies(ledger_id)
        assert [gate.adds for gate in gates] == [before[0] + ENTRIES, before[1]]


async def test_a_wrong_row_of_an_index_is_found_by_an_audit_and_repaired():
    async with recovery_world(2, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger(INDEX_SAMPLE_MAX)
        ledger_id = writer.ledger_id
        first = (await world.metadata(ledger_id)).ensembles[0][0]
        await mislead(world, first, ledger_id, 3)

        assert await world.auditor().check_ledgers() == 1
        assert (await world.marks.get(ledger_id)).met == {(first, 3)}
        await work(world, 1)

        reader = CopyReader(world.pool.bookies, ledger_id, await world.metadata(ledger_id), 20.0)
        assert (await reader.read(first, 3))[1] is CopyState.PRESENT
        assert await world.auditor().check_ledgers() == 0


async def test_a_copy_that_was_named_and_is_whole_is_not_written_again():
    async with recovery_world(2, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        first, second = (await world.metadata(writer.ledger_id)).ensembles[0]
        await world.marks.add_damaged(writer.ledger_id, [first], 0, 11)
        await world.marks.add_damaged(writer.ledger_id, [first, second], 0)
        mark = await world.marks.get(writer.ledger_id)
        assert (mark.damaged, mark.met) == ({first, second}, {(first, 11)})
        before = [node.gate.adds for node in world.nodes]
        await work(world, 1)
        assert [node.gate.adds for node in world.nodes] == before


async def test_a_bookie_that_refuses_what_it_has_damaged_is_replaced():
    async with recovery_world(3, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        broken, intact = (await world.metadata(writer.ledger_id)).ensembles[0]
        await damage(world, broken, writer.ledger_id, 20)
        world.world.node(broken).gate.add_status = lambda ledger_id, entry_id: Status.IO_ERROR

        assert await world.auditor().check_ledgers() == 1
        await work(world, 1)

        assert bookies_of(await world.metadata(writer.ledger_id)) > {intact}
        assert broken not in bookies_of(await world.metadata(writer.ledger_id))
        await world.require_all_copies(writer.ledger_id)


async def test_copies_are_read_no_faster_than_configured():
    async with recovery_world(2, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        stored_bytes = 2 * writer.metadata.length
        auditor = Auditor(
            world.store,
            world.marks,
            world.pool,
            type(world.config)(auditorReadBytesPerSecond=stored_bytes // 2),
            world.chance,
        )
        begun = trio.current_time()
        assert await auditor.check_ledgers() == 0
        # One second's worth is free.
        assert trio.current_time() - begun >= 1.0


async def test_what_is_read_is_paid_for_by_all_who_read(autojump_clock):
    pace = ReadPace(1_000)
    begun = trio.current_time()

    async def read():
        for _ in range(10):
            await pace.pay(500)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(read)
    assert trio.current_time() - begun == pytest.approx(9.0)
    await ReadPace(0).pay(1 << 40)
    assert trio.current_time() - begun == pytest.approx(9.0)


async def test_a_lost_bookie_is_noticed_while_copies_are_read_slowly():
    async with recovery_world(3, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        lost = (await world.metadata(writer.ledger_id)).ensembles[0][0]
        auditor = Auditor(
            world.store,
            world.marks,
            world.pool,
            type(world.config)(auditorReadBytesPerSecond=1),
            world.chance,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(auditor.run)
            await world.until(lambda: auditor.is_checking and auditor.audits)
            await world.lose(lost)
            await world.until(lambda: auditor.ledgers_marked == 1)
            assert auditor.check_times.count == 0
            nursery.cancel_scope.cancel()
        assert await world.marked() == [writer.ledger_id]


class FailsOnce:
    """A store in which one look at a ledger fails when all others have been checked."""

    def __init__(self, store, path, is_time):
        self._store = store
        self._path = path
        self._is_time = is_time
        self.failures = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def get(self, path):
        if path == self._path and not self.failures:
            await eventually(self._is_time)
            self.failures += 1
            raise MetadataUnavailable("a hiccup")
        return await self._store.get(path)


async def test_a_check_of_copies_goes_on_where_it_failed():
    async with recovery_world(2, (2, 2, 2)) as world:
        ledger_ids = [(await world.a_ledger(2))[0].ledger_id for _ in range(6)]
        await damage(world, next(iter(world.pool.writable)), ledger_ids[0], 0)
        store = FailsOnce(
            world.store, ledger_path(ledger_ids[3]), lambda: auditor.ledgers_checked == 5
        )
        auditor = world.auditor(store)
        with pytest.raises(MetadataUnavailable):
            await auditor.check_ledgers()
        assert await auditor.check_ledgers() == 1
        assert auditor.ledgers_checked == 6
        assert await world.marked() == ledger_ids[:1]


async def test_a_check_of_copies_rests_while_autorecovery_is_disabled(monkeypatch):
    monkeypatch.setattr(auditor_module, "RETRY_S", 0.01)
    monkeypatch.setattr(auditor_module, "LOOK_AGAIN_S", 0.01)
    async with recovery_world(2, (2, 2, 2)) as world:
        await world.a_ledger()
        config = type(world.config)(auditorReadBytesPerSecond=1)
        auditor = Auditor(world.store, world.marks, world.pool, config, world.chance)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(auditor.run)
            await world.until(lambda: auditor.is_checking)
            await world.store.put(DISABLE_PATH, b"", None)
            await world.until(lambda: not auditor.is_checking)
            await world.store.delete(DISABLE_PATH)
            await world.until(lambda: auditor.is_checking)
            nursery.cancel_scope.cancel()
        assert auditor.ledgers_checked == auditor.check_times.count == 0
