"""When a read is sent to one more replica, and that readers use it."""

from __future__ import annotations

import math

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from bookie.api import Status
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.errors import EntryAbsent, EntryUnknown
from ledgers.speculation import Speculation, SpeculationRules
from ledgers.tests.fake_bookie import FakeBookie
from metadata.memory_store import MemoryStore
from runtime.clock import SystemClock


def test_without_a_time_a_silent_replica_is_waited_for():
    turns = Speculation().turns(3, 10.0)
    assert turns.due_at == math.inf
    assert [turns.on_failure(), turns.on_failure(), turns.on_failure()] == [1, 2, None]
    assert turns.is_over


def test_the_times_grow_up_to_the_longest():
    shared = Speculation(SpeculationRules(first_s=1.0, max_s=3.0, multiplier=2.0))
    turns = shared.turns(5, 10.0)
    asked = []
    while turns.due_at < math.inf:
        asked.append((turns.due_at, turns.on_silence(turns.due_at)))
    assert asked == [(11.0, 1), (13.0, 2), (16.0, 3), (19.0, 4)]
    assert shared.extra_reads == 4
    turns.end()
    assert shared.extra_reads == 0


def test_the_last_replica_has_no_other_after_it():
    shared = Speculation(SpeculationRules.every(1.0))
    assert shared.turns(1, 0.0).due_at == math.inf
    turns = shared.turns(2, 0.0)
    assert turns.on_failure() == 1
    assert turns.due_at == math.inf


def test_an_error_makes_way_for_the_next_replica_while_another_is_silent():
    shared = Speculation(SpeculationRules.every(1.0))
    turns = shared.turns(3, 0.0)
    assert turns.on_silence(1.0) == 1
    assert turns.on_failure() == 2
    assert shared.extra_reads == 1
    assert turns.on_failure() is None
    assert shared.extra_reads == 0
    assert not turns.is_over  # one is silent still
    assert turns.on_failure() is None
    assert turns.is_over


def test_at_the_bound_a_silent_replica_is_waited_for_until_another_read_is_over():
    shared = Speculation(SpeculationRules(first_s=1.0, extra_reads_max=1))
    one, other = shared.turns(2, 0.0), shared.turns(2, 0.0)
    assert one.on_silence(1.0) == 1
    assert other.on_silence(1.0) is None
    assert other.due_at == 2.0
    one.end()
    assert other.on_silence(2.0) == 1


@given(
    st.integers(1, 6),
    st.integers(0, 3),
    st.lists(st.sampled_from(["silence", "failure"]), max_size=20),
)
def test_every_replica_is_asked_at_most_once_and_no_extra_read_is_forgotten(count, most, events):
    shared = Speculation(SpeculationRules(first_s=1.0, max_s=5.0, extra_reads_max=most))
    turns = shared.turns(count, 0.0)
    asked, failed, wakes_at = [0], 0, turns.due_at
    for event in events:
        if turns.is_over:
            break
        if event == "failure":
            failed += 1
            replica = turns.on_failure()
        elif wakes_at < math.inf:  # as it was known when the reader went to sleep
            replica = turns.on_silence(wakes_at)
            assert turns.due_at > wakes_at
            wakes_at = turns.due_at
        else:
            replica = None
        if replica is not None:
            asked.append(replica)
        assert shared.extra_reads == max(0, len(asked) - failed - 1) <= most
    assert asked == list(range(len(asked)))
    assert turns.is_over == (failed == len(asked))
    assert not turns.is_over or len(asked) == count
    turns.end()
    assert shared.extra_reads == 0


class SilentBookie(FakeBookie):
    """Does not answer reads while it is silent."""

    def __init__(self):
        super().__init__()
        self.answers = trio.Event()
        self.answers.set()
        self.asked_at = []

    async def read_batch(self, *request):
        self.asked_at.append(trio.current_time())
        await self.answers.wait()
        return await super().read_batch(*request)


class World:
    """A closed ledger of ten entries. Its replicas are listed in the order in which they are
    asked for the first one."""

    def __init__(self, ledger, replicas, client):
        self.ledger = ledger
        self.replicas = replicas
        self.client = client

    def reader(self):
        return self.client.reader_of(self.ledger.ledger_id, self.ledger.metadata)


class Nobody:
    def on_entries_confirmed(self, writer, entry_id, length):
        pass


async def world_of(copies, rules):
    bookies = {f"b{number}": SilentBookie() for number in range(copies)}
    config = LedgerClientConfig(
        ensemble_size=copies,
        write_quorum_size=copies,
        ack_quorum_size=copies,
        speculation=rules,
    )
    client = LedgerClient(MemoryStore(), bookies, config, SystemClock())
    writer = await client.create_ledger({}, Nobody())
    writer.add_run([b"%d" % number for number in range(10)])
    await trio.testing.wait_all_tasks_blocked()
    assert writer.last_add_confirmed == 9
    await writer.close()
    ensemble = writer.metadata.last_ensemble[1]
    first = writer.ledger_id % copies
    ordered = [bookies[each] for each in ensemble[first:] + ensemble[:first]]
    return World(writer, ordered, client)


ALL = [b"%d" % number for number in range(10)]


async def test_a_read_goes_past_a_silent_bookie(autojump_clock):
    world = await world_of(3, SpeculationRules.every(0.2))
    silent, second, third = world.replicas
    silent.answers = trio.Event()
    start = trio.current_time()
    assert await world.reader().read(0, 9) == ALL
    assert trio.current_time() - start == pytest.approx(0.2)
    assert [len(each.asked_at) for each in world.replicas] == [1, 1, 0]
    second.answers = trio.Event()
    start = trio.current_time()
    assert await world.reader().read(0, 9) == ALL
    assert trio.current_time() - start == pytest.approx(0.4)
    assert len(third.asked_at) == 1


async def test_the_late_answer_of_the_first_bookie_counts_if_it_is_the_first_one(autojump_clock):
    world = await world_of(2, SpeculationRules.every(0.2))
    for each in world.replicas:
        each.answers = trio.Event()
    found = []

    async def read():
        found.append(await world.reader().read(3, 5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.sleep(1)
        assert [len(each.asked_at) for each in world.replicas] == [1, 1]
        world.replicas[0].answers.set()
    assert found == [[b"3", b"4", b"5"]]


async def test_a_bookie_that_answers_in_time_is_asked_alone(autojump_clock):
    world = await world_of(2, SpeculationRules.every(0.2))
    for first in range(10):
        assert await world.reader().read(first, 9) == ALL[first:]
    assert [len(each.asked_at) for each in world.replicas] == [10, 0]


async def test_silence_is_no_proof_of_absence(autojump_clock):
    world = await world_of(3, SpeculationRules.every(0.2))
    for each in world.replicas:
        each.ledgers[world.ledger.ledger_id].pop(4)
    silent = world.replicas[0]
    silent.answers = trio.Event()
    silent.read_status = lambda ledger_id, entry_id: Status.TIMED_OUT

    async def time_out():
        await trio.sleep(30)
        silent.answers.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(time_out)
        start = trio.current_time()
        with pytest.raises(EntryUnknown, match="TIMED_OUT"):
            await world.reader().read(4, 9)
        assert trio.current_time() - start == pytest.approx(30)
    silent.read_status = lambda ledger_id, entry_id: Status.OK
    with pytest.raises(EntryAbsent):
        await world.reader().read(4, 9)


async def test_a_failure_in_the_instant_of_an_extra_read_ends_nothing(autojump_clock):
    """The extra read has been decided and is not under way yet."""
    for silence_s in (0.2, 0.2 + 1e-9, 0.2 - 1e-9):
        world = await world_of(2, SpeculationRules.every(0.2))
        failing = world.replicas[0]
        failing.answers = trio.Event()
        failing.read_status = lambda ledger_id, entry_id: Status.IO_ERROR
        async with trio.open_nursery() as nursery:
            start = trio.current_time()

            async def answer(world=world, at=start + silence_s):
                await trio.sleep_until(at)
                world.replicas[0].answers.set()

            nursery.start_soon(answer)
            assert await world.reader().read(0, 9) == ALL


async def test_extra_reads_of_a_client_are_bounded(autojump_clock):
    world = await world_of(2, SpeculationRules(first_s=0.2, max_s=0.2, extra_reads_max=3))
    silent, other = world.replicas
    silent.answers = other.answers = trio.Event()
    found = []

    async def read():
        found.append(await world.reader().read(0, 9))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(read)
        await trio.sleep(5)
        assert (len(silent.asked_at), len(other.asked_at)) == (10, 3)
        other.answers.set()
    assert found == [ALL] * 10


async def test_a_read_that_is_given_up_leaves_no_extra_read(autojump_clock):
    world = await world_of(2, SpeculationRules(first_s=0.2, max_s=0.2, extra_reads_max=1))
    for each in world.replicas:
        each.answers = trio.Event()
    for _ in range(3):
        with trio.move_on_after(1) as scope:
            await world.reader().read(0, 9)
        assert scope.cancelled_caught
    assert len(world.replicas[1].asked_at) == 3
