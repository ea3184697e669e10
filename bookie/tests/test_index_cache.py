"""The memory for blocks of an index is as large as configured."""

from __future__ import annotations

from dataclasses import replace

import trio

from bookie.bookie import Bookie
from bookie.index import pack_location_key, pack_u64
from bookie.index_rocksdb import RocksIndex
from bookie.tests.conftest import SMALL

ROWS = 60_000
BLOCK_BYTES = 64 << 10


def cached_bytes(directory, block_cache_bytes):
    """What is in memory after all rows of an index were read."""
    index = RocksIndex(str(directory), block_cache_bytes)
    try:
        batch = index.new_batch()
        for entry_id in range(ROWS):
            batch.put(pack_location_key(1, entry_id), pack_u64(entry_id + 1))
        index.write_locations(batch)
        rocks = index._locations._open_rocks()
        rocks.flush()
        assert len(list(index.entry_ids(1))) == ROWS
        return rocks.property_int_value("rocksdb.block-cache-usage")
    finally:
        index.close()


def test_a_larger_block_cache_holds_more_of_the_index(tmp_path):
    small = cached_bytes(tmp_path / "small", 2 * BLOCK_BYTES)
    large = cached_bytes(tmp_path / "large", 16 << 20)
    assert cached_bytes(tmp_path / "none", 0) <= BLOCK_BYTES
    assert small <= 3 * BLOCK_BYTES
    assert large > 10 * BLOCK_BYTES


async def test_a_bookie_opens_its_index_with_the_configured_cache(tmp_path):
    ledgers = tmp_path / "ledgers"
    config = replace(
        SMALL,
        journalDirectories=(str(tmp_path / "journal"),),
        ledgerDirectories=(str(ledgers),),
        dbStorage_rocksDB_blockCacheSize=1 << 20,
    )
    bookie = await Bookie.open(config)
    try:
        index = bookie._layout.storages[0].index
        for database in (index._locations, index._ledgers):
            rocks = database._open_rocks()
            assert rocks.property_int_value("rocksdb.block-cache-capacity") == 1 << 20
    finally:
        async with trio.open_nursery() as nursery:
            await nursery.start(bookie.run)
            nursery.cancel_scope.cancel()
        await bookie.aclose()
