import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from bookie.api import Status
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.errors import (
    EntryAbsent,
    EntryUnknown,
    LedgerDamaged,
    LedgerError,
    LedgerFenced,
    LedgerNotFound,
    RecoveryFailed,
)
from ledgers.tests.fake_bookie import FakeBookie
from metadata.memory_store import MemoryStore
from protocol import client
from protocol.bookkeeper.ledger_metadata import LedgerState
from protocol.bookkeeper.paths import ledger_path
from runtime.clock import SystemClock


class Recorder:
    def __init__(self):
        self.confirmed = []
        self.failures = []
        self.delays = []

    def on_entries_confirmed(self, writer, entry_id, length):
        self.confirmed.append((entry_id, length))

    def on_writer_failed(self, writer, status):
        self.failures.append(status)

    def on_adds_refused(self, writer, delay_s):
        self.delays.append(delay_s)


class World:
    def __init__(self, ensemble=1, write=1, ack=1):
        self.store = MemoryStore()
        self.bookies = {f"b{number}": FakeBookie() for number in range(ensemble)}
        self.config = LedgerClientConfig(
            ensemble_size=ensemble,
            write_quorum_size=write,
            ack_quorum_size=ack,
            request_timeout_s=0.1,
        )
        self.recorder = Recorder()

    @property
    def bookie(self):
        return self.bookies["b0"]

    def client(self):
        return LedgerClient(self.store, self.bookies, self.config, SystemClock())

    async def writer(self):
        return await self.client().create_ledger({"application": b"pulsar"}, self.recorder)


async def settle():
    for _ in range(3):
        await trio.testing.wait_all_tasks_blocked()


async def test_entries_are_confirmed_once_per_group_and_read_back():
    world = World()
    writer = await world.writer()
    assert [writer.add(b"%d" % number * 3) for number in range(5)] == [0, 1, 2, 3, 4]
    await settle()
    assert world.recorder.confirmed == [(4, 15)]
    await writer.close()
    reader = await world.client().reader(writer.ledger_id)
    assert await reader.read(1, 3) == [b"111", b"222", b"333"]
    assert reader.metadata.last_entry_id == 4
    assert reader.metadata.length == 15
    assert reader.metadata.custom_metadata["application"] == b"pulsar"


async def test_ledger_ids_grow_and_deleted_ones_are_not_live():
    world = World()
    ids = [(await world.writer()).ledger_id for _ in range(4)]
    assert ids == sorted(set(ids))
    await world.client().delete(ids[1])
    await world.client().delete(ids[1])
    assert await world.client().live_ledgers() == {ids[0], ids[2], ids[3]}
    with pytest.raises(LedgerNotFound):
        await world.client().reader(ids[1])


async def test_nothing_is_confirmed_behind_a_failed_entry():
    world = World()
    world.bookie.add_status = lambda _, entry_id: Status.IO_ERROR if entry_id == 2 else Status.OK
    writer = await world.writer()
    for _ in range(5):
        writer.add(b"x")
    await settle()
    assert world.recorder.confirmed == [(1, 2)]
    assert world.recorder.failures == [Status.IO_ERROR]
    await writer.close()
    await writer.close()
    metadata = await world.client().metadata_of(writer.ledger_id)
    assert (metadata.last_entry_id, metadata.length) == (1, 2)


async def test_replies_after_close_change_nothing():
    world = World()
    world.bookie.is_holding = True
    writer = await world.writer()
    writer.add(b"x")
    writer.add(b"y")
    world.bookie.release(1)
    await writer.close()
    world.bookie.release()
    assert world.recorder.confirmed == [(0, 1)]
    assert (await world.client().metadata_of(writer.ledger_id)).last_entry_id == 0


async def test_recovery_keeps_every_durable_entry_and_stops_the_old_writer():
    world = World()
    world.bookie.is_holding = True
    writer = await world.writer()
    for number in range(10):
        writer.add(b"%d" % number)
    world.bookie.release(7)
    world.bookie.is_holding = False
    client = world.client()
    metadata = await client.recover(writer.ledger_id)
    assert (metadata.last_entry_id, metadata.length) == (6, 7)
    await settle()
    assert world.recorder.failures == [Status.FENCED]
    await writer.close()
    reader = await client.reader(writer.ledger_id)
    assert (await reader.read(0, metadata.last_entry_id))[:7] == [b"%d" % n for n in range(7)]
    assert await client.recover(writer.ledger_id) == metadata


async def test_a_writer_that_missed_its_confirmations_cannot_close_at_its_own_end():
    world = World()
    world.bookie.is_holding = True
    writer = await world.writer()
    writer.add(b"x")
    world.bookies["b0"] = world.bookie.after_crash()
    world.bookie.ledgers[writer.ledger_id] = {
        0: writer._digest.head(writer.ledger_id, 0, -1, 1, b"x") + b"x"
    }
    assert (await world.client().recover(writer.ledger_id)).last_entry_id == 0
    with pytest.raises(LedgerFenced, match="CLOSED with last entry 0"):
        await writer.close()


async def test_an_old_writer_is_fenced_even_when_its_ledger_was_empty():
    world = World()
    writer = await world.writer()
    assert (await world.client().recover(writer.ledger_id)).last_entry_id == -1
    writer.add(b"late")
    await settle()
    assert world.recorder.confirmed == []
    assert world.recorder.failures == [Status.FENCED]


async def test_recovery_refuses_to_guess():
    world = World()
    writer = await world.writer()
    for _ in range(3):
        writer.add(b"x")
    await settle()
    world.bookie.read_status = lambda _, entry_id: Status.IO_ERROR if entry_id == 3 else Status.OK
    with pytest.raises(RecoveryFailed, match="entry 3"):
        await world.client().recover(writer.ledger_id)
    metadata = await world.client().metadata_of(writer.ledger_id)
    assert metadata.state is LedgerState.IN_RECOVERY
    world.bookie.read_status = lambda _, entry_id: Status.OK
    assert (await world.client().recover(writer.ledger_id)).last_entry_id == 2


@pytest.mark.parametrize(
    "record", [b"", b"rubbish", b"BookieMetadataFormatVersion\t3\n\x02\x08\x01"]
)
async def test_damaged_metadata_is_an_error_of_the_ledger_that_says_what_to_do(record):
    world = World()
    writer = await world.writer()
    path = ledger_path(writer.ledger_id)
    good = (await world.store.get(path))[0]
    await world.store.put(path, record, None)
    client = world.client()
    for request in (client.recover, client.metadata_of, client.reader):
        with pytest.raises(LedgerDamaged, match=f"{path} is damaged: .* restore this node"):
            await request(writer.ledger_id)
    with pytest.raises(LedgerDamaged):
        await writer.close()
    assert (await world.store.get(path))[0] == record
    assert await client.live_ledgers() == {writer.ledger_id}
    await world.store.put(path, good, None)
    assert (await client.recover(writer.ledger_id)).last_entry_id == -1


async def test_a_damaged_entry_is_an_error_and_not_an_absent_one():
    world = World()
    writer = await world.writer()
    for _ in range(3):
        writer.add(b"payload")
    await settle()
    entries = world.bookie.ledgers[writer.ledger_id]
    entries[1] = entries[1][:-1] + b"X"
    client = world.client()
    reader = client.reader_of(writer.ledger_id, await client.metadata_of(writer.ledger_id))
    assert await reader.read(0, 2) == [b"payload"]
    with pytest.raises(EntryUnknown, match="digest"):
        await reader.read(1, 2)
    with pytest.raises(EntryAbsent):
        await reader.read(3, 3)


@pytest.mark.parametrize("bookies", [1, 3])
async def test_a_bit_that_flips_after_the_check_of_a_message_is_found_when_it_is_read(bookies):
    world = World(bookies, bookies, bookies)
    writer = await world.writer()
    sound = client.message(b"content" * 300)
    flipped = bytearray(sound)
    flipped[1000] ^= 4
    writer.add_run([sound, bytes(flipped), sound], are_intact=True)
    writer.add_run([bytes(flipped)])  # nobody has checked it
    await settle()
    reading = world.client()
    reader = reading.reader_of(writer.ledger_id, await reading.metadata_of(writer.ledger_id))
    assert await reader.read(0, 1) == [sound]
    with pytest.raises(EntryUnknown, match="digest"):
        await reader.read(1, 1)
    assert await reader.read(2, 3) == [sound, bytes(flipped)]


async def test_with_three_bookies_one_may_fail():
    world = World(3, 3, 2)
    world.bookies["b1"].add_status = lambda *_: Status.IO_ERROR
    writer = await world.writer()
    for number in range(4):
        writer.add(b"%d" % number)
    await settle()
    assert world.recorder.confirmed[-1] == (3, 4)
    assert world.recorder.failures == []
    world.bookies["b0"].add_status = lambda *_: Status.IO_ERROR
    writer.add(b"too many failures")
    await settle()
    assert world.recorder.confirmed[-1] == (3, 4)
    assert len(world.recorder.failures) == 1
    with pytest.raises(RecoveryFailed, match="written again 1 times"):
        await world.client().recover(writer.ledger_id)
    world.bookies["b0"].add_status = lambda *_: Status.OK
    metadata = await world.client().recover(writer.ledger_id)
    assert metadata.last_entry_id in (3, 4)


async def test_too_few_bookies_is_said():
    world = World(2, 2, 2)
    del world.bookies["b1"]
    with pytest.raises(LedgerError, match="2 bookies are needed"):
        await world.writer()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(1, 1, 1), (2, 2, 2), (3, 2, 2), (3, 3, 2), (4, 3, 2)]),
    st.integers(0, 12),
    st.data(),
)
def test_recovery_never_loses_a_confirmed_entry(sizes, count, data):
    """For any distribution of the adds, and with as many dead bookies as is tolerable."""
    ensemble, _, ack = sizes
    released = [data.draw(st.integers(0, count)) for _ in range(ensemble)]
    dead = data.draw(st.sets(st.integers(0, ensemble - 1), max_size=max(0, ack - 1)))

    async def scenario():
        world = World(*sizes)
        writer = await world.writer()
        for bookie in world.bookies.values():
            bookie.is_holding = True
        for number in range(count):
            writer.add(b"%d" % number)
        for bookie, number in zip(world.bookies.values(), released, strict=True):
            bookie.release(number)
        confirmed = writer.last_add_confirmed
        world.bookies = {
            name: bookie.after_crash()
            for index, (name, bookie) in enumerate(world.bookies.items())
            if index not in dead
        }
        client = world.client()
        try:
            metadata = await client.recover(writer.ledger_id)
        except RecoveryFailed:
            assert dead
            return
        assert metadata.last_entry_id >= confirmed
        if metadata.last_entry_id >= 0:
            reader = await client.reader(writer.ledger_id)
            entry_id = 0
            while entry_id <= metadata.last_entry_id:
                for payload in await reader.read(entry_id, metadata.last_entry_id):
                    assert payload == b"%d" % entry_id
                    entry_id += 1
            assert metadata.length == sum(len(b"%d" % n) for n in range(entry_id))

    trio.run(scenario, clock=trio.testing.MockClock(autojump_threshold=0))


async def confirmed_after(replies, count):
    """The reports of a writer of `count` entries after each group of replies, a list of
    (status, first, count); and how it ended."""
    world = World()
    writer = await world.writer()
    for bookie in world.bookies.values():
        bookie.is_holding = True
    for number in range(count):
        writer.add(b"x" * number)
    for group in replies:
        for status, first, size in group:
            writer.on_add_replies(status, writer.ledger_id, first, size)
        writer.on_replies_end()
    return world.recorder.confirmed, world.recorder.failures, writer.last_add_confirmed


@given(st.data())
def test_replies_by_runs_mean_what_single_replies_mean(data):
    count = data.draw(st.integers(1, 12))
    groups = []
    first = 0
    while first < count:
        group = []
        for _ in range(data.draw(st.integers(1, 3))):
            size = data.draw(st.integers(1, count - first)) if first < count else 0
            if size:
                status = data.draw(st.sampled_from([Status.OK] * 5 + [Status.IO_ERROR]))
                group.append((status, first, size))
                first += size
        groups.append(data.draw(st.permutations(group)))
    groups = data.draw(st.permutations(groups))
    single = [
        [(status, begin + index, 1) for status, begin, size in group for index in range(size)]
        for group in groups
    ]
    assert trio.run(confirmed_after, groups, count) == trio.run(confirmed_after, single, count)
