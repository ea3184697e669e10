"""The whole room on the real bookie and metadata store, killed at any moment."""

import subprocess
import sys
from functools import partial

import pytest
import trio

from broker.ground.entry import Entry
from broker.managed_ledger.config import ManagedLedgerConfig
from broker.managed_ledger.tests.on_disk import NAME, directories, factory_on
from broker.managed_ledger.tests.world import append, open_ledger, read_all
from protocol.position import EARLIEST


async def test_a_topic_on_disk_over_a_clean_restart(tmp_path):
    payloads = [b"%d" % number for number in range(3500)]
    async with factory_on(tmp_path) as factory:
        ledger = await open_ledger(factory)
        cursor = await ledger.open_cursor("s", EARLIEST)
        append(ledger, *payloads)
        await ledger.listener.until(3500)
        positions = ledger.listener.positions
        assert len({ledger_id for ledger_id, _ in positions}) == 4
        cursor.ack_cumulative(positions[1200])
        for number in range(1500, 3500, 2):
            cursor.ack_individual(positions[number])
        state = cursor.mark_delete, cursor.acked_ranges()
    async with factory_on(tmp_path) as factory:
        ledger = await open_ledger(factory)
        cursor = ledger.cursors["s"]
        assert (cursor.mark_delete, cursor.acked_ranges()) == state
        assert await read_all(ledger, count_max=500) == payloads[1000:]
        ledger.append(Entry(b"next", 1), b"next")
        await ledger.listener.until(1)
        assert ledger.listener.positions[0] > positions[-1]
        await factory.delete(NAME)
        assert not await factory.exists(NAME)


ORDERS = [("a", "b", "c"), ("c", "a", "b"), ("b", "a", "c"), ("a", "b", "c")]


@pytest.mark.parametrize("orders", [[(), ()], ORDERS], ids=["one directory", "reordered"])
async def test_kill_9_loses_nothing_that_was_confirmed(tmp_path, orders):
    next_number = 0
    for lines, order in zip((1, 20, 30, 10), orders, strict=False):
        command = [sys.executable, "-m", "broker.managed_ledger.tests.on_disk", str(tmp_path)]
        arguments = [*command, str(next_number), *order]
        child = await trio.to_thread.run_sync(
            partial(subprocess.Popen, arguments, stdout=subprocess.PIPE)
        )
        for _ in range(lines):
            confirmed = int(await trio.to_thread.run_sync(child.stdout.readline))
        child.kill()
        for line in await trio.to_thread.run_sync(child.stdout.readlines):
            if line.endswith(b"\n"):
                confirmed = int(line)
        child.wait()
        child.stdout.close()
        async with factory_on(tmp_path, **directories(tmp_path, order[::-1])) as factory:
            ledger = await open_ledger(factory)
            payloads = await read_all(ledger, count_max=500)
            held = [int(payload[:12]) for payload in payloads]
            assert held == list(range(held[0], held[-1] + 1))
            assert held[-1] >= confirmed
            next_number = held[-1] + 1
            cursor = ledger.cursors["s"]
            assert cursor.individually_acked_count + cursor.backlog_entries == len(held) - (
                ledger.entries_between(EARLIEST, cursor.mark_delete)
            )
            for lower, upper in cursor.acked_ranges():
                assert upper[1] == lower[1] + 1


async def test_a_bookie_without_room_slows_a_topic_and_costs_it_no_ledger(tmp_path):
    payloads = [b"%06d" % number * 400 for number in range(4000)]
    keys = {"dbStorage_writeCacheMaxSizeMb": 1, "maxPendingAddRequestsPerThread": 1}
    async with factory_on(tmp_path, ManagedLedgerConfig(), **keys) as factory:
        ledger = await open_ledger(factory)
        append(ledger, *payloads)
        await ledger.listener.until(4000)
        assert ledger.listener.contexts == payloads
        assert ledger.listener.failed == []
        assert len({ledger_id for ledger_id, _ in ledger.listener.positions}) == 1
        refused = factory.bookie.statistics().adds_refused
        assert 0 < refused < 2 * len(payloads)
    async with factory_on(tmp_path, **keys) as factory:
        assert await read_all(await open_ledger(factory), count_max=500) == payloads


@pytest.mark.parametrize("cache_mb", [0, 16])
async def test_the_read_ahead_of_the_bookie_serves_the_way_through_a_backlog(tmp_path, cache_mb):
    payloads = [b"%06d" % number * 4_000 for number in range(400)]
    async with factory_on(tmp_path) as factory:
        ledger = await open_ledger(factory)
        append(ledger, *payloads)
        await ledger.listener.until(len(payloads))
    async with factory_on(tmp_path, dbStorage_readAheadCacheMaxSizeMb=cache_mb) as factory:
        ledger = await open_ledger(factory)
        assert await read_all(ledger, count_max=50) == payloads
        statistics = factory.bookie.statistics()
        counts = factory.cache.counts
        assert (counts.misses, counts.hits) == (len(payloads), 0)
        # The first of the runs continues none; the others are read two at a time.
        found = statistics.read_cache_hits
        if cache_mb:
            assert 0.4 * len(payloads) <= found <= 0.5 * len(payloads)
        else:
            assert found == 0
        assert statistics.read_cache_misses >= len(payloads) - found
