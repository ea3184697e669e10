"""Several bookies: striping, confirmation, ensemble changes. Bookies are in memory; schedules are
random and made of what networks, bookies and metadata stores do."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from bookie.api import Status
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.cluster import FixedCluster
from ledgers.errors import LedgerFenced, NotEnoughBookies, RecoveryFailed
from ledgers.tests.fake_bookie import FakeBookie
from ledgers.tests.test_ledgers import Recorder, settle
from metadata.memory_store import MemoryStore
from metadata.store import MetadataUnavailable
from protocol.bookkeeper.ledger_layout import write_set
from protocol.bookkeeper.ledger_metadata import LedgerState
from protocol.bookkeeper.paths import ledger_path
from runtime.clock import SystemClock

SIZES = [(1, 1, 1), (2, 2, 2), (3, 2, 2), (3, 3, 2), (3, 3, 3), (4, 3, 2), (3, 2, 1)]


class FlakyStore:
    """A store that sometimes fails, before or after a put had its effect, and sometimes waits."""

    def __init__(self, store, rng, failures):
        self._store = store
        self._rng = rng
        self._failures = failures

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def put(self, path, value, version):
        kind = self._rng.random() if self._failures else 1.0
        await trio.sleep(self._rng.choice([0, 0, 0.01]))
        if kind < 0.1:
            raise MetadataUnavailable("before")
        result = await self._store.put(path, value, version)
        if kind < 0.2:
            raise MetadataUnavailable("after")
        await trio.sleep(self._rng.choice([0, 0, 0.01]))
        return result


class World:
    def __init__(self, nursery, count, sizes, seed=0, *, delay=False, failures=False):
        self.rng = random.Random(seed)
        self.tree = MemoryStore()
        self.store = FlakyStore(self.tree, self.rng, failures)
        self.bookies = {f"b{number}": FakeBookie() for number in range(count)}
        self.config = LedgerClientConfig(
            ensemble_size=sizes[0],
            write_quorum_size=sizes[1],
            ack_quorum_size=sizes[2],
            request_timeout_s=0.1,
            delay_ensemble_change=delay,
        )
        self.cluster = FixedCluster(self.bookies, nursery.start_soon)
        self.recorder = Recorder()
        self.payloads = []
        self.cut_off = {}
        """Bookies that the writer reaches, and recoverers do not."""

    def client(self, store=None):
        store = store or self.store
        return LedgerClient(store, self.bookies, self.config, SystemClock(), self.cluster)

    async def writer(self):
        client = self.client(self.tree)
        writer = await client.create_ledger({"application": b"pulsar"}, self.recorder)
        writer._record._store = self.store
        return writer

    def add(self, writer, count):
        payloads = [
            b"%d" % number for number in range(len(self.payloads), len(self.payloads) + count)
        ]
        self.payloads += payloads
        writer.add_run(payloads)

    def check_copies(self, ledger_id, metadata, confirmed):
        """Every confirmed entry is on A bookies of its write set."""
        for entry_id in range(confirmed + 1):
            ensemble = metadata.ensemble_of(entry_id)
            assert len(set(ensemble)) == len(ensemble)
            copies = 0
            for index in write_set(entry_id, len(ensemble), metadata.write_quorum_size):
                bookie = self.bookies.get(ensemble[index]) or self.cut_off[ensemble[index]]
                entries = bookie.ledgers.get(ledger_id, {})
                if entry_id in entries:
                    assert entries[entry_id][36:] == self.payloads[entry_id]
                    copies += 1
            assert copies >= metadata.ack_quorum_size, entry_id

    async def check_read(self, ledger_id, metadata):
        reader = self.client(self.tree).reader_of(ledger_id, metadata)
        found = []
        while len(found) <= metadata.last_entry_id:
            found += await reader.read(len(found), metadata.last_entry_id)
        assert found == self.payloads[: len(found)]
        assert metadata.length == sum(map(len, found))


async def a_schedule(sizes, spare, seed, delay, is_recovered):
    """Random steps; in the end nothing confirmed is lost, doubled or out of order."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, sizes[0] + spare, sizes, seed, delay=delay, failures=True)
        rng = world.rng
        writer = await world.writer()
        for bookie in world.bookies.values():
            bookie.is_holding = True
        broken = set()
        for _ in range(rng.randint(5, 60)):
            name = rng.choice(list(world.bookies))
            bookie = world.bookies[name]
            kind = rng.random()
            if kind < 0.35 and not writer.is_stopped:
                world.add(writer, rng.randint(1, 8))
            elif kind < 0.75:
                bookie.release(rng.randint(1, 30))
            elif kind < 0.80:
                bookie.lose(rng.randint(0, 20)) if rng.random() < 0.5 else bookie.time_out()
            elif kind < 0.84 and len(broken) < spare:
                broken.add(name)
                bookie.add_status = lambda *_: Status.IO_ERROR
            elif kind < 0.88:
                full = rng.random()
                bookie.add_status = lambda *_, full=full: (
                    Status.TOO_MANY_REQUESTS if rng.random() < full else Status.OK
                )
            elif kind < 0.92:
                await trio.sleep(rng.choice([0.001, 0.02, 3]))
            else:
                writer.retry()
            if rng.random() < 0.5:
                await trio.testing.wait_all_tasks_blocked()
            confirmed = [entry_id for entry_id, _ in world.recorder.confirmed]
            assert confirmed == sorted(set(confirmed))
        ledger_id = writer.ledger_id
        confirmed = writer.last_add_confirmed
        if is_recovered:
            await end_by_recovery(world, writer)
        else:
            world.store._failures = False
            await writer.close()
            metadata = await world.client().metadata_of(ledger_id)
            assert metadata.last_entry_id == writer.last_add_confirmed >= confirmed
            world.check_copies(ledger_id, metadata, metadata.last_entry_id)
        await trio.sleep(100)
        assert writer.last_add_confirmed <= metadata.last_entry_id if not is_recovered else True
        for bookie in world.bookies.values():
            bookie.release()
        last = [entry_id for entry_id, _ in world.recorder.confirmed]
        assert last == sorted(set(last))
        final = await world.client().metadata_of(ledger_id)
        if final.is_closed:
            world.bookies.update(world.cut_off)
            assert final.last_entry_id >= max(last, default=-1)
            await world.check_read(ledger_id, final)
        nursery.cancel_scope.cancel()


async def end_by_recovery(world, writer):
    """Two recoverers at once, while the writer goes on and answers come late."""
    results = []
    attempts = 0
    rng = world.rng
    for bookie in world.bookies.values():
        bookie.is_holding = False
        bookie.add_status = lambda *_: Status.OK
    for name in rng.sample(sorted(world.bookies), rng.randint(0, len(world.bookies) - 1)):
        world.cut_off[name] = world.bookies.pop(name)
    for bookie in world.bookies.values():
        if rng.random() < 0.3:
            bookie.add_status = lambda *_: Status.IO_ERROR if rng.random() < 0.3 else Status.OK
            bookie.read_status = lambda *_: Status.IO_ERROR if rng.random() < 0.3 else Status.OK

    async def recover():
        nonlocal attempts
        while True:
            try:
                results.append(await world.client().recover(writer.ledger_id))
                return
            except (RecoveryFailed, MetadataUnavailable):
                await trio.sleep(0.01)
            attempts += 1
            if attempts == 20:
                world.bookies.update(world.cut_off)
                for bookie in world.bookies.values():
                    bookie.add_status = bookie.read_status = lambda *_: Status.OK

    async with trio.open_nursery() as nursery:
        nursery.start_soon(recover)
        nursery.start_soon(recover)
        for _ in range(20):
            await trio.sleep(0.001)
            if not writer.is_stopped:
                world.add(writer, 1)
            for bookie in world.bookies.values():
                if world.rng.random() < 0.5:
                    bookie.release(world.rng.randint(1, 3))
            if world.rng.random() < 0.1:
                writer.retry()
    assert results[0] == results[1]
    for bookie in world.bookies.values():
        bookie.add_status = bookie.read_status = lambda *_: Status.OK
    world.check_copies(writer.ledger_id, results[0], results[0].last_entry_id)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(SIZES),
    st.integers(0, 2),
    st.integers(0, 1 << 30),
    st.booleans(),
    st.booleans(),
)
def test_nothing_confirmed_is_lost_doubled_or_reordered(sizes, spare, seed, delay, is_recovered):
    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(a_schedule, sizes, spare, seed, delay, is_recovered, clock=clock)


async def test_a_failed_bookie_is_replaced_from_the_first_unconfirmed_entry(nursery):
    world = World(nursery, 3, (2, 2, 2))
    writer = await world.writer()
    world.add(writer, 3)
    await settle()
    first, second = writer.metadata.last_ensemble[1]
    (spare,) = world.bookies.keys() - {first, second}
    world.bookies[second].is_holding = True
    world.add(writer, 4)
    await settle()
    assert writer.last_add_confirmed == 2
    world.bookies[second].lose(2)
    await settle()
    assert writer.last_add_confirmed == 6
    assert dict(writer.metadata.ensembles) == {0: (first, second), 3: (first, spare)}
    assert sorted(world.bookies[spare].ledgers[writer.ledger_id]) == [3, 4, 5, 6]
    assert world.bookies[first].adds == 7
    await writer.close()
    await world.check_read(writer.ledger_id, writer.metadata)


async def test_a_late_answer_of_a_replaced_bookie_counts_for_nothing(nursery):
    world = World(nursery, 3, (2, 2, 2))
    writer = await world.writer()
    first, second = writer.metadata.last_ensemble[1]
    (spare,) = world.bookies.keys() - {first, second}
    world.bookies[second].is_holding = world.bookies[spare].is_holding = True
    world.add(writer, 4)
    old = writer._places[1]
    old.on_add_replies(Status.TIMED_OUT, writer.ledger_id, 0, 4)
    old.on_replies_end()
    await settle()
    assert writer.metadata.last_ensemble == (0, (first, spare))
    world.bookies[second].release()
    await settle()
    assert writer.last_add_confirmed == -1
    world.bookies[spare].release()
    assert writer.last_add_confirmed == 3


async def test_nothing_is_confirmed_during_a_change(nursery):
    world = World(nursery, 4, (3, 3, 2))
    writer = await world.writer()
    ids = writer.metadata.last_ensemble[1]
    for name in ids:
        world.bookies[name].is_holding = True
    world.add(writer, 4)
    let_go = trio.Event()
    put = world.tree.put

    async def slow_put(*arguments):
        await let_go.wait()
        return await put(*arguments)

    world.store.put = slow_put
    world.bookies[ids[0]].lose(4)
    world.bookies[ids[1]].release()
    world.bookies[ids[2]].release()
    await settle()
    assert writer.last_add_confirmed == -1
    world.add(writer, 2)
    let_go.set()
    await settle()
    assert writer.last_add_confirmed == 3
    assert list(writer.metadata.ensembles) == [0]
    assert ids[0] not in writer.metadata.ensembles[0]


@pytest.mark.parametrize("state", [LedgerState.IN_RECOVERY, LedgerState.CLOSED])
async def test_a_change_finds_out_that_the_ledger_was_taken_away(nursery, state):
    world = World(nursery, 3, (2, 2, 2))
    writer = await world.writer()
    world.add(writer, 2)
    await settle()
    if state is LedgerState.CLOSED:
        await world.client().recover(writer.ledger_id)
    else:
        path = ledger_path(writer.ledger_id)
        stored = await world.tree.get(path)
        changed = writer.metadata.in_recovery()
        await world.tree.put(path, _encoded(changed), stored[1])
    world.bookies[writer.metadata.last_ensemble[1][0]].add_status = lambda *_: Status.IO_ERROR
    world.bookies[writer.metadata.last_ensemble[1][1]].fenced.clear()
    world.add(writer, 1)
    await settle()
    assert world.recorder.failures == [Status.FENCED]
    if state is LedgerState.IN_RECOVERY:
        with pytest.raises(LedgerFenced):
            await writer.close()
    assert writer.last_add_confirmed == 1


def _encoded(metadata):
    from protocol.bookkeeper.ledger_metadata import encode_ledger_metadata

    return encode_ledger_metadata(metadata)


async def test_without_another_bookie_the_ack_quorum_is_enough(nursery):
    world = World(nursery, 3, (3, 3, 2))
    writer = await world.writer()
    one, two, _ = world.bookies.values()
    one.add_status = lambda *_: Status.IO_ERROR
    world.add(writer, 5)
    await settle()
    assert writer.last_add_confirmed == 4
    world.add(writer, 5)
    await settle()
    assert one.adds == 5
    assert writer.last_add_confirmed == 9
    two.add_status = lambda *_: Status.IO_ERROR
    world.add(writer, 1)
    await settle()
    assert world.recorder.failures == [Status.NOT_ENOUGH_BOOKIES]
    await writer.close()
    assert writer.metadata.last_entry_id == 9


async def test_one_spare_bookie_is_used_when_two_have_failed(nursery):
    world = World(nursery, 4, (3, 3, 2))
    writer = await world.writer()
    ids = writer.metadata.last_ensemble[1]
    for name in ids[:2]:
        world.bookies[name].is_holding = True
    world.add(writer, 3)
    await settle()
    for name in ids[:2]:
        world.bookies[name].add_status = lambda *_: Status.IO_ERROR
    for place in writer._places[:2]:
        place.on_add_replies(Status.IO_ERROR, writer.ledger_id, 0, 3)
    writer.settle()
    await settle()
    assert writer.last_add_confirmed == 2
    assert world.recorder.failures == []
    world.check_copies(writer.ledger_id, writer.metadata, 2)


async def test_a_delayed_change_happens_when_the_quorum_is_lost(nursery):
    world = World(nursery, 5, (3, 3, 2), delay=True)
    writer = await world.writer()
    ids = writer.metadata.last_ensemble[1]
    world.bookies[ids[0]].add_status = lambda *_: Status.IO_ERROR
    world.add(writer, 5)
    await settle()
    assert writer.last_add_confirmed == 4
    assert writer.metadata.last_ensemble == (0, ids)
    world.bookies[ids[1]].add_status = lambda *_: Status.IO_ERROR
    world.add(writer, 1)
    await settle()
    assert writer.last_add_confirmed == 5
    first, ensemble = writer.metadata.last_ensemble
    assert first == 5
    assert not {ids[0], ids[1]} & set(ensemble)


async def test_too_few_bookies_for_a_ledger_is_said(nursery):
    world = World(nursery, 2, (3, 2, 2))
    with pytest.raises(NotEnoughBookies, match="3 bookies are needed, 2 can be used"):
        await world.writer()


async def test_a_bookie_without_room_gets_its_entries_later_and_the_others_go_on(
    nursery, autojump_clock
):
    world = World(nursery, 3, (3, 3, 2))
    writer = await world.writer()
    slow = world.bookies["b1"]
    slow.add_status = lambda *_: Status.TOO_MANY_REQUESTS
    for _ in range(10):
        world.add(writer, 5)
        await settle()
    assert writer.last_add_confirmed == 49
    assert slow.adds < 20
    slow.add_status = lambda *_: Status.OK
    while len(slow.ledgers.get(writer.ledger_id, ())) < 50:
        assert world.recorder.delays
        world.recorder.delays.clear()
        writer.retry()
        await settle()
    world.add(writer, 1)
    await settle()
    assert not writer._lengths
    assert not writer._runs
