"""Ledgers are deleted although the metadata store does not answer for a while."""

import pytest
import trio

from ledgers.deletions import Deletions
from metadata.memory_store import MemoryStore
from metadata.store import MUST_NOT_EXIST, MetadataFailed, MetadataUnavailable
from protocol.bookkeeper.paths import ledger_path


class Refusing:
    """A store that refuses deletions with `error`, if that is set."""

    def __init__(self):
        self.inner = MemoryStore()
        self.error = None
        self.refused = 0

    async def delete(self, path):
        if self.error is not None:
            await trio.lowlevel.checkpoint()
            self.refused += 1
            raise self.error
        await self.inner.delete(path)


async def store_with(count):
    store = Refusing()
    for ledger_id in range(count):
        await store.inner.put(ledger_path(ledger_id), b"", MUST_NOT_EXIST)
    return store


async def exist(store, count):
    return [id_ for id_ in range(count) if await store.inner.get(ledger_path(id_)) is not None]


async def test_a_deletion_is_tried_again_until_the_store_answers(autojump_clock):
    store = await store_with(3)
    async with trio.open_nursery() as nursery:
        deletions = Deletions(store, nursery.start_soon)
        store.error = MetadataUnavailable("no answer")
        for ledger_id in range(3):
            await deletions.delete(ledger_id)
        await trio.sleep(3600)
        assert await exist(store, 3) == [0, 1, 2]
        assert store.refused < 100
        store.error = None
        await trio.sleep(61)
        assert await exist(store, 3) == []
    # The nursery ends: nothing is left to try again.


async def test_a_second_outage_is_survived_too(autojump_clock):
    store = await store_with(2)
    async with trio.open_nursery() as nursery:
        deletions = Deletions(store, nursery.start_soon)
        for ledger_id in range(2):
            store.error = MetadataUnavailable("no answer")
            await deletions.delete(ledger_id)
            store.error = None
            await trio.sleep(2)
        assert await exist(store, 2) == []


async def test_a_ledger_that_is_gone_is_no_error(autojump_clock):
    store = await store_with(0)
    async with trio.open_nursery() as nursery:
        deletions = Deletions(store, nursery.start_soon)
        await deletions.delete(7)
        store.error = MetadataUnavailable("no answer")
        await deletions.delete(8)
        store.error = None


async def test_a_store_that_has_failed_is_not_asked_again(autojump_clock):
    store = await store_with(1)
    async with trio.open_nursery() as nursery:
        deletions = Deletions(store, nursery.start_soon)
        store.error = MetadataUnavailable("no answer")
        await deletions.delete(0)
        store.error = MetadataFailed("the disk")
        with pytest.raises(MetadataFailed):
            await deletions.delete(0)


async def test_deletions_that_wait_are_bounded(monkeypatch):
    monkeypatch.setattr("ledgers.deletions.WAITING_MAX", 2)
    store = await store_with(3)
    store.error = MetadataUnavailable("no answer")
    async with trio.open_nursery() as nursery:
        deletions = Deletions(store, nursery.start_soon)
        await deletions.delete(0)
        await deletions.delete(1)
        with pytest.raises(MetadataUnavailable):
            await deletions.delete(2)
        nursery.cancel_scope.cancel()
