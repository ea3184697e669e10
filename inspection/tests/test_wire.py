"""Entries from bookies behind real ports."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from inspection.files import NotReadable
from inspection.wire import a_pool, copies_on, payloads
from ledgers.tests.test_cluster_over_tcp import payload, world_of

ENTRIES = 250


async def a_ledger(world, *, close):
    writer, recorder = await world.writer()
    writer.add_run([payload(each) for each in range(ENTRIES)])
    await recorder.wait_for(ENTRIES - 1)
    if close:
        await writer.close()
    return writer, recorder


async def collected(found):
    return [each async for each in found]


EXPECTED = [(each, payload(each)) for each in range(ENTRIES)]


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 2, 2)])
async def test_all_entries_are_read_and_an_open_ledger_goes_on(sizes, close):
    async with world_of(3, sizes) as world:
        writer, recorder = await a_ledger(world, close=close)
        metadata = await world.client().metadata_of(writer.ledger_id)
        async with a_pool(world.store) as pool:
            ledger = pool, writer.ledger_id, metadata
            assert await collected(payloads(*ledger, 0, None)) == EXPECTED
            assert await collected(payloads(*ledger, 7, 9)) == EXPECTED[7:10]
            assert await collected(payloads(*ledger, ENTRIES, None)) == []
        if not close:  # nothing was fenced
            assert writer.add(b"more") == ENTRIES
            await recorder.wait_for(ENTRIES)


@pytest.mark.parametrize("close", [True, False])
async def test_one_bookie_gives_what_it_has(close):
    """Of every ledger that is striped it lacks entries between others."""
    async with world_of(3, (3, 2, 2)) as world:
        writer, _ = await a_ledger(world, close=close)
        metadata = await world.client().metadata_of(writer.ledger_id)
        async with a_pool(world.store) as pool:
            found = [
                (place, await collected(copies_on(pool, each, writer.ledger_id, metadata, 0, None)))
                for place, each in enumerate(metadata.ensembles[0])
            ]
            for place, entries in found:
                assert entries == [one for one in EXPECTED if (place - one[0]) % 3 < 2]
            with pytest.raises(NotReadable, match="not registered"):
                await collected(copies_on(pool, "nobody", writer.ledger_id, metadata, 0, None))


async def test_an_entry_that_no_bookie_gives_is_an_error_after_those_before_it():
    async with world_of(2, (2, 2, 2)) as world:
        writer, _ = await a_ledger(world, close=True)
        metadata = await world.client().metadata_of(writer.ledger_id)
        async with a_pool(world.store) as pool:
            for node in world.nodes:
                await node.kill()
            with pytest.raises(NotReadable, match=f"entry {writer.ledger_id}:0: "):
                await collected(payloads(pool, writer.ledger_id, metadata, 0, None))


async def test_a_ledger_without_end_in_its_metadata_ends_with_what_a_bookie_has():
    async with world_of(1, (1, 1, 1)) as world:
        writer, _ = await a_ledger(world, close=True)
        metadata = await world.client().metadata_of(writer.ledger_id)
        damaged = replace(metadata, last_entry_id=2**62)
        async with a_pool(world.store) as pool:
            (bookie_id,) = metadata.ensembles[0]
            with trio.fail_after(60):
                found = await collected(
                    copies_on(pool, bookie_id, writer.ledger_id, damaged, 0, None)
                )
        assert found == EXPECTED
