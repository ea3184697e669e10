"""Ledgers that are read elsewhere than from bookies, as offloaded ones will be."""

from __future__ import annotations

import pytest

from broker.managed_ledger.kept_readers import BookieReaders
from broker.managed_ledger.tests.world import (
    World,
    append_and_wait,
    open_ledger,
    read_all,
)
from ledgers.errors import EntryUnknown, LedgerNotFound
from protocol.errors import BrokerError
from protocol.position import EARLIEST


def numbers(start, stop):
    return [b"%d" % number for number in range(start, stop)]


class Shelf:
    """The entries of one ledger, in memory."""

    def __init__(self, payloads):
        self.payloads = payloads
        self.reads = 0

    async def read(self, first, last, size_bytes_max=1 << 20):
        self.reads += 1
        if not self.payloads:
            raise EntryUnknown("the shelf is empty")
        return self.payloads[first : last + 1]


class Shelves:
    """Some ledgers are on shelves, all others at bookies."""

    def __init__(self, client, shelves):
        self._bookies = BookieReaders(client)
        self.shelves = shelves

    async def reader_of(self, row):
        shelf = self.shelves.get(row.ledger_id)
        return await self._bookies.reader_of(row) if shelf is None else shelf


async def with_a_shelf(world):
    """Ten entries in ledgers of four. Returns the shelf with the second, which no bookie has."""
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        for payload in numbers(0, 10):
            await append_and_wait(ledger, payload)
        second = sorted(ledger.ledger_ids)[1]
        reader = await factory.client.reader(second)
        shelf = Shelf(await reader.read(0, 3))
        await factory.client.delete(second)
        await factory.aclose()
    async with world.broker() as factory:
        with pytest.raises(LedgerNotFound):
            await factory.client.metadata_of(second)
    return second, shelf


async def test_a_ledger_that_no_bookie_has_is_read_where_it_is(autojump_clock):
    world = World(max_entries_per_ledger=4)
    second, shelf = await with_a_shelf(world)
    async with world.broker(lambda client: Shelves(client, {second: shelf})) as factory:
        ledger = await open_ledger(factory)
        assert await read_all(ledger, count_max=3) == numbers(0, 10)
        assert shelf.reads
        assert ledger.cursors["s"].backlog_entries == 10


async def test_a_ledger_that_cannot_be_read_where_it_is_is_an_error(autojump_clock):
    world = World(max_entries_per_ledger=4)
    second, shelf = await with_a_shelf(world)
    shelf.payloads = []
    async with world.broker(lambda client: Shelves(client, {second: shelf})) as factory:
        ledger = await open_ledger(factory)
        assert [each.data for each in await ledger.read(EARLIEST, 4, 1 << 20)] == numbers(0, 4)
        with pytest.raises(BrokerError, match="the shelf is empty"):
            await ledger.read((second, 0), 4, 1 << 20)
