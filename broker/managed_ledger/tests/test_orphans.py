"""Ledgers in no list are deleted after a restart, and no other ledger ever is."""

from __future__ import annotations

import pytest
import trio
from structlog.testing import capture_logs

from bookie.api import Status
from broker.ground.entry import Entry
from broker.managed_ledger.orphans import LEASE_PATH, OrphanCollector
from broker.managed_ledger.owner_of_ledger import (
    broadcast_custom_metadata,
    ledger_custom_metadata,
    managed_ledger_of,
)
from broker.managed_ledger.paths import cursor_info_path, ledger_info_path
from broker.managed_ledger.tests.world import (
    NAME,
    World,
    append_and_wait,
    open_ledger,
    read_all,
    settle,
)
from metadata.store import MetadataUnavailable
from protocol.position import EARLIEST

OTHER = "public/default/persistent/other"
SMALL = {"max_entries_per_ledger": 2, "cursor_max_entries_per_ledger": 1}


def serve_all(_name):
    """The ownership of a broker that shares nothing."""
    return True


class CutStore:
    """The power goes at a certain write, before or after it takes effect: nothing returns then."""

    def __init__(self, inner, writes_left, *, takes_effect):
        self._inner = inner
        self._writes_left = writes_left
        self._takes_effect = takes_effect
        self.get = inner.get
        self.children = inner.children
        self.watch_session = inner.watch_session
        self.session_state = inner.session_state
        self.cut = trio.Event()

    async def _write(self, call, *args):
        if self.cut.is_set():
            await trio.sleep_forever()
        self._writes_left -= 1
        if self._writes_left >= 0:
            return await call(*args)
        self.cut.set()
        if self._takes_effect:
            await call(*args)
        return await trio.sleep_forever()

    async def put(self, path, value, expected_version):
        return await self._write(self._inner.put, path, value, expected_version)

    async def delete(self, path, expected_version=None):
        return await self._write(self._inner.delete, path, expected_version)

    async def next_sequence(self, path):
        return await self._write(self._inner.next_sequence, path)


async def work(world, factory, unacked):
    """Everything that creates and deletes ledgers."""
    ledger = await open_ledger(factory)
    cursor = await ledger.open_cursor("s", EARLIEST)
    short = await ledger.open_cursor("short", EARLIEST)
    for number in range(5):
        await append_and_wait(ledger, b"%d" % number)
        if number >= 3:
            unacked.add(b"%d" % number)
        else:
            cursor.ack_cumulative(ledger.last_confirmed)
            short.ack_cumulative(ledger.last_confirmed)
            await cursor.flush()
            await short.flush()
            await ledger.trim()
    await ledger.delete_cursor("short")
    statuses = [Status.IO_ERROR]  # the ledger is replaced while it is empty
    world.bookie.add_status = lambda *_: statuses.pop() if statuses else Status.OK
    await append_and_wait(ledger, b"5")
    unacked.add(b"5")
    other = await open_ledger(factory, OTHER)
    await append_and_wait(other, b"a", b"b", b"c")
    (await other.open_cursor("s", EARLIEST)).ack_cumulative(other.last_confirmed)
    await other.cursors["s"].flush()
    await factory.delete(OTHER)
    await ledger.close()


async def work_until_cut(world, store, unacked):
    """Whether all the work was done."""
    inner, world.store = world.store, store
    try:
        with trio.fail_after(60):
            async with world.broker() as factory, trio.open_nursery() as nursery:

                async def stop_at_the_cut():
                    await store.cut.wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(stop_at_the_cut)
                await work(world, factory, unacked)
                nursery.cancel_scope.cancel()
    finally:
        world.store = inner
    return not store.cut.is_set()


async def check_restart(world, unacked):
    async with world.broker() as factory:
        client = factory.client
        collector = OrphanCollector(world.store, client, factory.ledgers, serve_all)
        listed = await collector._all_listed()
        assert listed <= await client.live_ledgers()
        deleted = await collector.collect()
        assert await client.live_ledgers() == listed
        assert await collector.collect() == []
        if await factory.exists(NAME):
            ledger = await open_ledger(factory)
            assert unacked <= set(await read_all(ledger))
    return deleted


@pytest.mark.parametrize("takes_effect", [False, True])
async def test_no_instant_of_a_crash_leaves_a_ledger_that_nobody_lists(
    takes_effect, autojump_clock
):
    writes, orphans, finished = 0, 0, False
    while not finished:
        world, unacked = World(**SMALL), set()
        store = CutStore(world.store, writes, takes_effect=takes_effect)
        finished = await work_until_cut(world, store, unacked)
        orphans += len(await check_restart(world, unacked))
        writes += 1
    assert writes > 40
    assert orphans > 10  # without the collection they would have stayed


async def test_nothing_in_use_is_deleted_while_topics_are_used(autojump_clock):
    world = World(**SMALL)
    unacked = set()
    async with world.broker() as factory, trio.open_nursery() as nursery:
        collector = OrphanCollector(world.store, factory.client, factory.ledgers, serve_all)

        async def collect_for_ever():
            while True:
                assert await collector.collect() == []

        nursery.start_soon(collect_for_ever)
        ledger = await open_ledger(factory)
        cursor = await ledger.open_cursor("s", EARLIEST)
        for number in range(20):
            ledger.append(Entry(b"%d" % number, 1), number)
            await ledger.listener.until(number + 1)
            unacked.add(b"%d" % number)
            if number % 7 == 6:
                cursor.ack_cumulative(ledger.last_confirmed)
                unacked.clear()
                await cursor.flush()
        nursery.cancel_scope.cancel()
    await check_restart(world, unacked)


async def orphan(world, custom):
    """A ledger left by a former process."""
    async with world.broker() as factory:
        return (await factory.client.create_ledger(custom, None)).ledger_id


async def collect(world):
    async with world.broker() as factory:
        return await OrphanCollector(
            world.store, factory.client, factory.ledgers, serve_all
        ).collect()


async def test_what_is_not_proved_an_orphan_is_kept(autojump_clock):
    world = World()
    for custom in (
        {},
        {"application": b"someone", "pulsar/managed-ledger": NAME.encode()},
        {**ledger_custom_metadata(NAME), "component": b"schema"},
        ledger_custom_metadata("not a managed ledger"),
        {**ledger_custom_metadata(NAME), "pulsar/managed-ledger": b"\xff/\xff/persistent/\xff"},
    ):
        assert managed_ledger_of(custom) is None
        await orphan(world, custom)
    assert await collect(world) == []


async def test_ledgers_of_a_deleted_topic_go_also_those_of_virtual_cursors(autojump_clock):
    world = World()
    odd = "public/default/persistent/odd+name"
    ids = [
        await orphan(world, ledger_custom_metadata(odd)),
        await orphan(world, ledger_custom_metadata(odd, "s")),
        await orphan(world, broadcast_custom_metadata("persistent://public/default/odd name", "s")),
    ]
    assert await collect(world) == ids


@pytest.mark.parametrize("path", [ledger_info_path(NAME), cursor_info_path(NAME, "s")])
async def test_a_record_that_cannot_be_read_protects_every_ledger_of_its_topic(
    path, autojump_clock
):
    world = World()
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        await append_and_wait(ledger, b"a")
    unlisted = await orphan(world, ledger_custom_metadata(NAME))
    other = await orphan(world, ledger_custom_metadata(OTHER))
    good, version = await world.store.get(path)
    await world.store.put(path, b"\xff\xff damaged", version)
    with capture_logs() as logs:
        assert await collect(world) == [other]
    assert unlisted in [line.get("ledger_id") for line in logs]
    await world.store.put(path, good, None)
    assert await collect(world) == [unlisted]


async def test_a_store_that_fails_is_logged_and_nothing_is_deleted(autojump_clock):
    world = World()
    await orphan(world, ledger_custom_metadata(NAME))
    async with world.broker() as factory:
        before = await factory.client.live_ledgers()

        async def fail(_path):
            raise MetadataUnavailable("the disk is full")

        store, get = world.store, world.store.get
        store.get = fail
        with capture_logs() as logs:
            await OrphanCollector(store, factory.client, {}, serve_all).run()
        store.get = get
        assert [line["error"] for line in logs] == ["the disk is full"]
        assert await factory.client.live_ledgers() == before


async def test_a_ledger_that_an_open_topic_holds_in_memory_is_kept(autojump_clock):
    world = World(**SMALL)
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", EARLIEST)
        await append_and_wait(ledger, b"a", b"b", b"c")
    async with world.broker() as factory:
        ledger = await open_ledger(factory)
        first_id = min(ledger.ledger_ids)
        ledger.cursors["s"].ack_cumulative(ledger.last_confirmed)
        put = world.store.put

        async def put_unheard(*arguments):
            await put(*arguments)
            raise MetadataUnavailable("the disk is full")

        world.store.put = put_unheard
        with pytest.raises(MetadataUnavailable):
            await ledger.trim()
        collector = OrphanCollector(world.store, factory.client, factory.ledgers, serve_all)
        assert await collector.collect() == []
        assert first_id in await factory.client.live_ledgers()
        world.store.put = put
        await ledger.trim()
        await settle()
        assert not ledger.fenced
        assert first_id not in await factory.client.live_ledgers()


async def test_ledgers_of_topics_that_another_broker_serves_are_kept(autojump_clock):
    world = World()
    of_other = await orphan(world, ledger_custom_metadata(OTHER))
    own = await orphan(world, ledger_custom_metadata(NAME))
    async with world.broker() as factory:
        collector = OrphanCollector(
            world.store, factory.client, factory.ledgers, lambda name: name != OTHER
        )
        assert await collector.collect() == [own]
        assert of_other in await factory.client.live_ledgers()


async def test_a_topic_that_is_lost_while_its_list_is_read_keeps_its_ledgers(autojump_clock):
    world = World()
    await orphan(world, ledger_custom_metadata(NAME))
    answers = [True, False]
    async with world.broker() as factory:
        collector = OrphanCollector(
            world.store, factory.client, factory.ledgers, lambda _name: answers.pop(0)
        )
        assert await collector.collect() == []
    assert answers == []


async def test_one_broker_at_a_time_looks_for_orphans(autojump_clock):
    world = World()
    ledger_id = await orphan(world, ledger_custom_metadata(NAME))
    other = world.store.another_session()
    await other.put_ephemeral(LEASE_PATH, b"")
    assert await collect(world) == []
    await other.aclose()
    assert await collect(world) == [ledger_id]
    assert not await world.store.exists(LEASE_PATH)
