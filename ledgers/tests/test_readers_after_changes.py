"""A reader that is kept while the bookies of its ledger change goes on with those that have its
entries now."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from ledgers.errors import EntryAbsent, EntryUnknown, LedgerNotFound
from ledgers.tests.test_quorum_writer import World, settle
from metadata.store import MetadataUnavailable
from protocol.bookkeeper.ledger_metadata import encode_ledger_metadata
from protocol.bookkeeper.paths import ledger_path

SIZES = [(2, 2, 2), (3, 2, 2)]


async def opened(nursery, sizes):
    """A ledger with three entries, and a reader that has read them."""
    world = World(nursery, sizes[0] + 1, sizes)
    writer = await world.writer()
    world.add(writer, 3)
    await settle()
    reader = await world.client(world.tree).reader(writer.ledger_id)
    assert (await reader.read(0, 2))[0] == b"0"
    return world, writer, reader


async def replaced(world, writer):
    """One bookie loses its place, before any entry that is added then."""
    lost = writer.metadata.last_ensemble[1][1]
    world.bookies[lost].is_holding = True
    world.add(writer, 4)
    await settle()
    world.bookies[lost].lose(4)
    await settle()
    assert writer.last_add_confirmed == 6
    assert lost not in writer.metadata.last_ensemble[1]


@contextmanager
def without(world, *names):
    """These bookies have no entries meanwhile."""
    bookies = {name: world.bookies[name].ledgers for name in names}
    for name in names:
        world.bookies[name].ledgers = {}
    try:
        yield
    finally:
        for name, ledgers in bookies.items():
            world.bookies[name].ledgers = ledgers


@pytest.mark.parametrize("sizes", SIZES)
async def test_entries_of_the_open_ledger_are_read_after_a_bookie_was_replaced(nursery, sizes):
    world, writer, reader = await opened(nursery, sizes)
    await replaced(world, writer)
    (new,) = set(writer.metadata.last_ensemble[1]) - set(writer.metadata.ensemble_of(0))
    # Only the new bookie has the entries that it has a copy of.
    with without(world, *(set(world.bookies) - {new})):
        for entry_id in sorted(world.bookies[new].ledgers[writer.ledger_id]):
            assert await reader.read(entry_id, entry_id) == [b"%d" % entry_id]


@pytest.mark.parametrize("sizes", SIZES)
async def test_entries_that_were_copied_elsewhere_are_read_from_there(nursery, sizes):
    """As autorecovery does with a ledger of which all bookies were lost one after the other."""
    world, writer, reader = await opened(nursery, sizes)
    await writer.close()
    (spare,) = world.bookies.keys() - set(writer.metadata.last_ensemble[1])
    first = writer.metadata.last_ensemble[1][0]
    moved = [spare if each == first else each for each in writer.metadata.last_ensemble[1]]
    world.bookies[spare].ledgers[writer.ledger_id] = world.bookies[first].ledgers[writer.ledger_id]
    others = set(world.bookies) - {spare}
    path = ledger_path(writer.ledger_id)
    await world.tree.put(
        path, encode_ledger_metadata(writer.metadata.with_ensemble(0, moved)), None
    )
    with without(world, *others):
        assert await reader.read(0, 0) == [b"0"]


async def test_an_entry_is_absent_only_by_the_record_as_it_is_now(nursery):
    world, writer, reader = await opened(nursery, (2, 2, 2))
    with pytest.raises(EntryAbsent):
        await reader.read(7, 7)
    reads = []

    async def unavailable(path):
        reads.append(path)
        raise MetadataUnavailable("no connection")

    world.tree.get = unavailable
    with pytest.raises(EntryUnknown, match="no connection"):
        await reader.read(7, 7)
    assert reads == [ledger_path(writer.ledger_id)]
    assert await reader.read(0, 2) == [b"0", b"1", b"2"]
    assert len(reads) == 1


async def test_a_ledger_that_was_deleted_is_told_from_one_without_the_entry(nursery):
    world, writer, reader = await opened(nursery, (2, 2, 2))
    await world.tree.delete(ledger_path(writer.ledger_id))
    with pytest.raises(LedgerNotFound):
        await reader.read(7, 7)
