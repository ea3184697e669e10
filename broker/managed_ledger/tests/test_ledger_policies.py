"""What may differ between topics and change while they are loaded: copies, and stored cursors."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from broker.managed_ledger.config import LedgerPolicies
from broker.managed_ledger.factory import ManagedLedgerFactory
from broker.managed_ledger.tests.world import (
    NAME,
    SettableClock,
    World,
    append,
    append_and_wait,
    open_ledger,
    read_all,
    settle,
)
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.cluster import FixedCluster
from ledgers.replication import Replication
from ledgers.tests.fake_bookie import FakeBookie
from metadata.memory_store import MemoryStore
from protocol.errors import BrokerError, ServerError
from protocol.position import EARLIEST


async def copies_of(factory, ledger_id):
    metadata = await factory.client.metadata_of(ledger_id)
    return (
        len(metadata.last_ensemble[1]),
        metadata.write_quorum_size,
        metadata.ack_quorum_size,
    )


async def test_ledgers_get_the_copies_in_force_when_they_are_made(autojump_clock):
    world = World()
    bookies = {name: FakeBookie() for name in "abcd"}
    async with trio.open_nursery() as nursery:
        cluster = FixedCluster(bookies, nursery.start_soon)
        store, clock = MemoryStore(), SettableClock()
        of_config = LedgerClientConfig(ensemble_size=2, write_quorum_size=2, ack_quorum_size=1)
        client = LedgerClient(store, bookies, of_config, clock, cluster)
        factory = ManagedLedgerFactory(store, client, world.config, clock)
        factory.client = client
        await nursery.start(factory.run)
        ledger = await factory.open(NAME, LedgerPolicies(replication=Replication(4, 3, 2)))
        ledger = await open_ledger(factory)
        [first] = await append_and_wait(ledger, b"1")
        ledger.policies = LedgerPolicies(replication=Replication(3, 3, 3))
        assert await copies_of(factory, first[0]) == (4, 3, 2)
        ledger.appender.roll()
        await settle()
        [second] = await append_and_wait(ledger, b"2")
        assert second[0] != first[0]
        assert await copies_of(factory, second[0]) == (3, 3, 3)
        cursor = await ledger.open_cursor("s", EARLIEST)
        cursor.ack_cumulative(second)
        await cursor.flush()
        assert await copies_of(factory, cursor.cursor_ledger[0]) == (2, 2, 1)
        nursery.cancel_scope.cancel()


async def test_entries_are_read_while_there_are_too_few_bookies_for_new_ones(autojump_clock):
    """Appends are refused with the reason, and taken again when the bookies are back."""
    world = World()
    bookies = {name: FakeBookie() for name in "ab"}
    of_config = LedgerClientConfig(ensemble_size=2, write_quorum_size=2, ack_quorum_size=2)

    @asynccontextmanager
    async def broker(reachable):
        async with trio.open_nursery() as nursery:
            cluster = FixedCluster(reachable, nursery.start_soon)
            client = LedgerClient(world.store, reachable, of_config, SettableClock(), cluster)
            factory = ManagedLedgerFactory(world.store, client, world.config, SettableClock())
            await nursery.start(factory.run)
            yield factory
            await factory.aclose()
            nursery.cancel_scope.cancel()

    async with broker(bookies) as factory:
        ledger = await open_ledger(factory)
        cursor = await ledger.open_cursor("s", EARLIEST)
        stored = await append_and_wait(ledger, b"1", b"2")
        cursor.ack_cumulative(stored[0])
    reachable = {"a": bookies["a"]}
    async with broker(reachable) as factory:
        ledger = await open_ledger(factory)
        assert await read_all(ledger) == [b"1", b"2"]
        cursor = ledger.cursors["s"]
        assert cursor.mark_delete == stored[0]
        cursor.ack_cumulative(stored[1])
        append(ledger, b"refused")
        await settle()
        [(context, error)] = ledger.listener.failed
        assert context == b"refused"
        assert error.server_error is ServerError.PersistenceError
        assert "2 bookies are needed, 1 can be used: start more bookies" in str(error)
        reachable["b"] = bookies["b"]
        await trio.sleep(world.config.broken_delay_max_s)
        [third] = await append_and_wait(ledger, b"3")
        assert third > stored[-1]
        assert await read_all(ledger) == [b"3"]  # the others were acknowledged
    async with broker(bookies) as factory:
        ledger = await open_ledger(factory)
        assert ledger.next_position(ledger.cursors["s"].mark_delete) == third
        assert await read_all(ledger) == [b"3"]  # the others were acknowledged
    async with broker({"a": bookies["a"]}) as factory:
        with pytest.raises(BrokerError, match="2 bookies are needed, 1 can be used") as refused:
            await factory.open(f"{NAME}-without-entries")
        assert refused.value.server_error is ServerError.ServiceNotReady


async def test_one_bookie_has_one_copy_whatever_is_asked_for(autojump_clock):
    world = World()
    async with world.broker() as factory:
        assert factory.client.has_one_bookie
        await factory.open(NAME, LedgerPolicies(replication=Replication(3, 2, 2)))
        ledger = await open_ledger(factory)
        [position] = await append_and_wait(ledger, b"1")
        assert await copies_of(factory, position[0]) == (1, 1, 1)


async def test_each_topic_stores_its_cursors_at_its_own_rate(autojump_clock):
    world = World()
    async with world.broker() as factory:
        cursors = {}
        for name, rate in (("often", 10.0), ("seldom", 0.1), ("default", None)):
            policies = None if rate is None else LedgerPolicies(mark_delete_rate_max=rate)
            await factory.open(name, policies)
            ledger = await open_ledger(factory, name)
            positions = await append_and_wait(ledger, b"1", b"2")
            cursors[name] = ledger, await ledger.open_cursor("s", EARLIEST), positions

        async def is_stored_after(cursor, position, seconds):
            cursor.ack_cumulative(position)
            await trio.sleep(0.9 * seconds)
            assert cursor.is_dirty
            await trio.sleep(0.2 * seconds)
            return not cursor.is_dirty

        for name, seconds in (("often", 0.1), ("default", 1.0), ("seldom", 10.0)):
            _, cursor, positions = cursors[name]
            assert await is_stored_after(cursor, positions[1], seconds)
        ledger, cursor, _ = cursors["often"]
        ledger.policies = LedgerPolicies(mark_delete_rate_max=1 / 3)
        [position] = await append_and_wait(ledger, b"3")
        assert await is_stored_after(cursor, position, 3.0)


async def test_no_limit_of_the_rate_stores_at_once_and_the_bound_stores_at_last():
    world = World(cursor_flush_interval_max_s=60.0)
    async with world.broker() as factory:
        ledger = await factory.open(NAME)
        for rate, seconds in ((0.0, 0.05), (-1.0, 0.05), (1e9, 0.05), (0.5, 2.0), (1e-9, 60.0)):
            ledger.policies = LedgerPolicies(mark_delete_rate_max=rate)
            assert ledger.cursor_flush_interval_s == seconds
