"""Ledgers on several bookies behind real ports, which fail in every way while entries are written.

Bookies are killed, paused, cut off, refuse, or answer late. Nothing confirmed is lost, doubled or
reordered, and readers agree.
"""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from bookie.adds import NoTurn
from bookie.api import Status
from bookie.tests.conftest import wait_until
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.errors import EntryUnknown, LedgerError, NotEnoughBookies, RecoveryFailed
from ledgers.placement import PlacementRules
from ledgers.quarantine import QuarantineRules
from ledgers.remote.bookie_pool import BookiePool
from ledgers.remote.config import RemoteConfig
from ledgers.tests.nodes import running_nodes
from metadata.memory_store import MemoryStore
from protocol.bookkeeper.paths import available_path
from runtime.clock import SystemClock
from runtime.testing.conditions import SECONDS_MAX

CALM = RemoteConfig(
    channels=2,
    add_timeout_s=20,
    read_timeout_s=20,
    back_off_first_s=0.01,
    back_off_max_s=0.05,
)
"""Nothing is too late, however busy the machine is."""
QUICK = replace(CALM, add_timeout_s=0.5, read_timeout_s=0.5)
"""For bookies that do not answer."""
LESS_QUICK = replace(CALM, add_timeout_s=1.5, read_timeout_s=1.5)
"""For one that does not, beside others that have to."""


class Recorder:
    """Remembers what is confirmed, and sends again what a full bookie refused."""

    def __init__(self, nursery):
        self._nursery = nursery
        self.confirmed = []
        self.failures = []
        self.changed = trio.Event()

    def on_entries_confirmed(self, writer, entry_id, length):
        self.confirmed.append(entry_id)
        self.changed.set()

    def on_writer_failed(self, writer, status):
        self.failures.append(status)
        self.changed.set()

    def on_adds_refused(self, writer, delay_s):
        self._nursery.start_soon(self._retry, writer, delay_s)

    async def _retry(self, writer, delay_s):
        await trio.sleep(delay_s)
        writer.retry()

    async def wait_for(self, entry_id):
        with trio.fail_after(SECONDS_MAX):
            while not self.failures and (not self.confirmed or self.confirmed[-1] < entry_id):
                self.changed = trio.Event()
                await self.changed.wait()


class World:
    def __init__(self, nursery, nodes, store, pool, sizes):
        self.nursery = nursery
        self.nodes = nodes
        self.store = store
        self.pool = pool
        self.config = LedgerClientConfig(
            ensemble_size=sizes[0],
            write_quorum_size=sizes[1],
            ack_quorum_size=sizes[2],
            request_timeout_s=20.0,
        )

    def client(self):
        return LedgerClient(self.store, self.pool.bookies, self.config, SystemClock(), self.pool)

    def node(self, bookie_id):
        return next(each for each in self.nodes if each.bookie_id == bookie_id)

    async def writer(self):
        recorder = Recorder(self.nursery)
        return await self.client().create_ledger({}, recorder), recorder

    async def content(self, ledger_id, last=None):
        reader = await self.client().reader(ledger_id)
        last = reader.metadata.last_entry_id if last is None else last
        found = []
        with trio.fail_after(SECONDS_MAX):
            while len(found) <= last:
                try:
                    found += await reader.read(len(found), last)
                except EntryUnknown:  # connections to bookies that came back are being made
                    await trio.sleep(0.02)
        return found


@asynccontextmanager
async def world_of(count, sizes, remote=CALM):
    store = MemoryStore()
    async with running_nodes(count) as nodes:
        for node in nodes:
            await store.put_ephemeral(available_path(node.bookie_id), b"")
        pool = BookiePool(
            store,
            NoTurn(),
            remote,
            PlacementRules(is_rack_aware=False),
            QuarantineRules(is_on=False),
            order=random.Random(1),
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(pool.run)
            yield World(nursery, nodes, store, pool, sizes)
            nursery.cancel_scope.cancel()


def payload(number):
    return b"%d " % number * (1 + number % 40)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 2, 2), (3, 3, 2), (3, 3, 3)])
async def test_entries_are_confirmed_in_order_and_read_back(sizes):
    async with world_of(3, sizes) as world:
        writer, recorder = await world.writer()
        for first in range(0, 1000, 50):
            writer.add_run([payload(number) for number in range(first, first + 50)])
            await trio.lowlevel.checkpoint()
        await recorder.wait_for(999)
        assert recorder.confirmed == sorted(set(recorder.confirmed))
        await writer.close()
        assert await world.content(writer.ledger_id) == [payload(n) for n in range(1000)]
        copies = [node.gate.bookie.statistics().journal_entries for node in world.nodes]
        assert sum(copies) >= 1000 * sizes[1]


@pytest.mark.parametrize("fault", ["kill", "pause", "cut", "refuse", "late", "disconnect"])
@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 2, 2), (3, 3, 2)])
async def test_a_bookie_that_fails_costs_no_entry_and_no_ledger(sizes, fault):
    remote = LESS_QUICK if fault in {"pause", "late"} else CALM
    async with world_of(sizes[0] + 1, sizes, remote) as world:
        writer, recorder = await world.writer()
        writer.add_run([payload(number) for number in range(100)])
        await recorder.wait_for(99)
        node = world.node(writer.metadata.last_ensemble[1][1])
        match fault:
            case "kill":
                await node.kill()
            case "pause":
                node.gate.pause()
            case "cut":
                world.nursery.start_soon(node.cut)
            case "refuse":
                node.gate.add_status = lambda *_: Status.READ_ONLY
            case "late":
                node.gate.answers_late = True
            case "disconnect":
                await node.disconnect()
        for number in range(100, 300):
            writer.add_run([payload(number)])
            await trio.sleep(0.001)
        await recorder.wait_for(299)
        assert recorder.failures == []
        assert recorder.confirmed == sorted(set(recorder.confirmed))
        if fault == "late":
            node.gate.let_answers_go()
        await writer.close()
        assert await world.content(writer.ledger_id) == [payload(n) for n in range(300)]
        if fault in {"kill", "refuse", "disconnect"}:
            assert node.bookie_id not in writer.metadata.last_ensemble[1]


async def test_without_enough_bookies_writing_fails_and_works_again_later():
    async with world_of(2, (2, 2, 2)) as world:
        writer, recorder = await world.writer()
        writer.add_run([payload(0)])
        await recorder.wait_for(0)
        node = world.nodes[0]
        await node.kill()
        writer.add_run([payload(1)])
        await recorder.wait_for(1)
        assert recorder.failures == [Status.NOT_ENOUGH_BOOKIES]
        await writer.close()
        assert writer.metadata.last_entry_id == 0
        await world.store.delete(available_path(node.bookie_id))
        await wait_until(lambda: len(world.pool.writable) == 1)
        with pytest.raises(NotEnoughBookies):
            await world.writer()
        await node.start()
        await world.store.put_ephemeral(available_path(node.bookie_id), b"")
        await wait_until(lambda: len(world.pool.writable) == 2)
        writer, recorder = await until_written(world, 2)
        await writer.close()
        assert await world.content(writer.ledger_id) == [payload(n) for n in range(2)]


async def until_written(world, count):
    """A new ledger with entries. Connections come back after their back-off."""
    with trio.fail_after(SECONDS_MAX):
        while True:
            writer, recorder = await world.writer()
            writer.add_run([payload(number) for number in range(count)])
            await recorder.wait_for(count - 1)
            if not recorder.failures:
                return writer, recorder
            await trio.sleep(0.02)


async def test_a_writer_that_comes_back_from_a_pause_is_fenced():
    async with world_of(3, (3, 2, 2)) as world:
        writer, recorder = await world.writer()
        writer.add_run([payload(number) for number in range(50)])
        await recorder.wait_for(49)
        metadata = await world.client().recover(writer.ledger_id)
        assert metadata.last_entry_id == 49
        writer.add_run([payload(50)])
        await recorder.wait_for(50)
        assert recorder.failures == [Status.FENCED]
        assert recorder.confirmed[-1] == 49
        await writer.close()


async def test_recovery_replaces_a_bookie_that_is_gone():
    async with world_of(3, (2, 2, 2)) as world:
        writer, recorder = await world.writer()
        writer.add_run([payload(number) for number in range(50)])
        await recorder.wait_for(49)
        second = writer.metadata.last_ensemble[1][1]
        world.node(second).gate.answers_late = True
        writer.add_run([payload(number) for number in range(50, 60)])
        await wait_until(lambda: sum(reply[3] for _, reply in world.node(second).gate.late) == 10)
        await world.node(second).kill()
        metadata = await world.client().recover(writer.ledger_id)
        assert metadata.last_entry_id >= 49
        assert next(iter(metadata.ensembles)) == 0
        assert second not in metadata.last_ensemble[1] or len(metadata.ensembles) == 1
        count = metadata.last_entry_id + 1
        assert await world.content(writer.ledger_id) == [payload(n) for n in range(count)]


@pytest.mark.parametrize("seed", range(6))
async def test_random_faults_lose_double_and_reorder_nothing(seed):
    rng = random.Random(seed)
    sizes = rng.choice([(2, 2, 2), (3, 2, 2), (3, 3, 2)])
    async with world_of(sizes[0] + 1, sizes, QUICK) as world:
        written = []
        """(ledger id, confirmed) of every ledger."""
        number = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(faults, world, rng)
            with trio.fail_after(5 * SECONDS_MAX):
                while number < 600:
                    number += await write_some(world, rng, number, written)
            nursery.cancel_scope.cancel()
        await heal(world)
        confirmed = []
        for ledger_id, numbers in written:
            metadata = await recovered(world, ledger_id)
            assert metadata.last_entry_id >= len(numbers) - 1
            content = await world.content(ledger_id)
            assert content[: len(numbers)] == [payload(n) for n in numbers]
            for each in world.nodes:
                await check_replica(each, ledger_id, metadata, content)
            confirmed += numbers
        assert confirmed == list(range(600))


async def write_some(world, rng, number, written):
    """Write to a new ledger until it fails or is long enough. Returns how many were confirmed."""
    try:
        writer, recorder = await world.writer()
    except NotEnoughBookies:
        await trio.sleep(0.02)
        return 0
    count = min(rng.randint(50, 300), 600 - number)
    sent = 0
    while sent < count and not recorder.failures:
        size = min(rng.randint(1, 5), count - sent)
        writer.add_run([payload(n) for n in range(number + sent, number + sent + size)])
        sent += size
        await trio.sleep(rng.choice([0, 0.001, 0.004]))
    await recorder.wait_for(sent - 1)
    assert recorder.confirmed == sorted(set(recorder.confirmed))
    if rng.random() < 0.7:
        try:
            await writer.close()
        except LedgerError:
            raise AssertionError("no one else closes ledgers here") from None
    else:
        await recovered(world, writer.ledger_id)
    confirmed = writer.last_add_confirmed + 1
    # A recovery may find more than was confirmed, and the broker would know by reading.
    metadata = await world.client().metadata_of(writer.ledger_id)
    confirmed = max(confirmed, metadata.last_entry_id + 1)
    written.append((writer.ledger_id, list(range(number, number + confirmed))))
    return confirmed


async def recovered(world, ledger_id):
    with trio.fail_after(SECONDS_MAX):
        while True:
            try:
                return await world.client().recover(ledger_id)
            except RecoveryFailed:
                await trio.sleep(0.05)


async def faults(world, rng):
    """One bookie at a time has a fault."""
    while True:
        await trio.sleep(rng.uniform(0.02, 0.15))
        node = rng.choice(world.nodes)
        match rng.choice(["kill", "pause", "cut", "refuse", "full", "late"]):
            case "kill":
                await node.kill()
                await trio.sleep(rng.uniform(0, 0.3))
                await node.start()
            case "pause":
                node.gate.pause()
                await trio.sleep(rng.uniform(0, 0.9))
                node.gate.resume()
            case "cut":
                await node.cut()
            case "refuse":
                node.gate.add_status = lambda *_: Status.IO_ERROR
                await trio.sleep(rng.uniform(0, 0.2))
            case "full":
                node.gate.add_status = lambda *_: (
                    Status.TOO_MANY_REQUESTS if rng.random() < 0.5 else Status.OK
                )
                await trio.sleep(rng.uniform(0, 0.2))
            case "late":
                node.gate.answers_late = True
                await trio.sleep(rng.uniform(0, 0.9))
                node.gate.let_answers_go()
        node.gate.add_status = lambda *_: Status.OK


async def heal(world):
    with trio.CancelScope(shield=True):
        for node in world.nodes:
            await node.kill()
            node.gate.answers_late = False
            node.gate.add_status = lambda *_: Status.OK
            await node.start()


async def check_replica(node, ledger_id, metadata, content):
    """What a bookie has of the ledger up to its end is what readers get."""
    bookie = node.gate.bookie
    if ledger_id not in bookie.ledger_ids():
        return
    for entry_id in await bookie.list_entry_ids(ledger_id):
        if entry_id <= metadata.last_entry_id:
            body = await bookie.read_entry(ledger_id, entry_id)
            assert body[36:] == content[entry_id]
