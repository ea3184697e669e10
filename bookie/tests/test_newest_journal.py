"""The newest journal is missing, is another one, or was cut, while the mark is in the one before:
the start is refused. A crash at any point leaves a directory that starts."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import trio

from bookie.api import BookieError
from bookie.bookie import Bookie
from bookie.errors import BookieRefusesToStart, Corruption, StorageError
from bookie.tests.conftest import KEY, SMALL, Machine, RecordingSink, body_or_status, entry, whole
from runtime.testing.conditions import SECONDS_MAX

PAYLOAD = b"x" * 100_000
ENTRIES = 25
"""These fill two journals of 1 MB and begin a third one."""
CONFIG = replace(
    SMALL,
    journalMaxSizeMB=1,
    journalPreAllocSizeMB=1,
    journalAlignmentSize=4096,
    dbStorage_writeCacheMaxSizeMb=64,
)
NAME = "/l/current/newestJournal"


async def put(bookie, first, count, sink):
    """One group each."""
    for entry_id in range(first, first + count):
        bookie.add_entry(1, entry_id, entry(1, entry_id, PAYLOAD), KEY, 0, sink)
        await sink.wait_for(len(sink.replies) + 1)


async def killed(machine, entries=ENTRIES, rng=None):
    """What kill -9 leaves: all that was written, with the mark in the first journal."""
    sink = RecordingSink()
    async with machine.running() as bookie:
        await put(bookie, 0, entries, sink)
        machine.power.is_off = True
    machine.crash(rng or Kept())
    return machine.disk.paths(".txn")


class Kept(random.Random):
    """The machine goes on, so every write is there."""

    def choice(self, choices):
        return choices[-1]

    def randint(self, _first, last):
        return last


async def check(machine, count=ENTRIES):
    async with machine.running() as bookie:
        for entry_id in range(count):
            assert await bookie.read_entry(1, entry_id) == whole(1, entry_id, PAYLOAD)
        machine.power.is_off = True


@pytest.fixture
def machine():
    return Machine(CONFIG)


async def test_the_newest_journal_is_missing(machine):
    journals = await killed(machine)
    assert len(journals) == 3
    machine.disk.remove(journals[-1])
    with pytest.raises(BookieRefusesToStart, match=f"{journals[-1]}, the newest one, is missing"):
        await machine.open()
    machine.disk.remove(NAME)  # as the refusal says
    async with machine.running() as bookie:
        assert await bookie.read_entry(1, 10) == whole(1, 10, PAYLOAD)


async def test_the_newest_journal_is_that_of_another_bookie(machine):
    journals = await killed(machine)
    other = Machine(CONFIG)
    others = await killed(other)
    content = other.disk.content(others[-1])
    machine.disk.remove(journals[-1])
    machine.disk.create(journals[-1]).write_at(0, content)
    with pytest.raises(BookieRefusesToStart, match=f"{journals[-1]}, the newest one, is not"):
        await machine.open()


@pytest.mark.parametrize("inside", [0, 300])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9])
async def test_the_newest_journal_was_cut(machine, share, inside):
    """Wherever: between two groups, inside one, or before the first."""
    journals = await killed(machine)
    size = len(machine.disk.content(journals[-1]))
    ends = [512, *range(4096, size, 4096)]
    cut = ends[int(share * len(ends))]
    machine.disk.cut(journals[-1], cut + inside)
    with pytest.raises(Corruption, match="the end of the journal was cut off") as refusal:
        await machine.open()
    assert refusal.value.path == journals[-1]


async def test_a_journal_before_the_newest_one_was_cut_or_is_an_older_copy(machine):
    sink = RecordingSink()
    async with machine.running() as bookie:
        await put(bookie, 0, 13, sink)
        second = machine.disk.paths(".txn")[-1]
        older = machine.disk.content(second)
        await put(bookie, 13, ENTRIES - 13, sink)
        machine.power.is_off = True
    machine.crash(Kept())
    whole_one = machine.disk.content(second)
    assert second != machine.disk.paths(".txn")[-1]
    machine.disk.cut(second, len(older) // 2 // 4096 * 4096)
    with pytest.raises(Corruption) as refusal:
        await machine.open()
    assert refusal.value.path == second
    machine.disk.cut(second, 0)
    machine.disk.corrupt(second, 0, older)
    with pytest.raises(Corruption, match="an older copy or another one") as refusal:
        await machine.open()
    assert refusal.value.path == second
    machine.disk.cut(second, 0)
    machine.disk.corrupt(second, 0, whole_one)
    await check(machine)


async def test_a_dropped_tail_does_not_make_a_journal_look_cut(machine):
    journals = await killed(machine)
    content = machine.disk.content(journals[-1])
    end = len(content.rstrip(b"\0"))
    machine.disk.corrupt(journals[-1], end - 4096, bytes(4096))
    name = machine.disk.content(NAME)
    for _start in range(2):
        async with machine.running():
            machine.power.is_off = True
        machine.crash(Kept())
        # As if the start had ended before it wrote a journal.
        for path in machine.disk.paths(".txn")[len(journals) :]:
            machine.disk.remove(path)
        machine.disk.remove("/l/current/lastMark")
        machine.disk.corrupt(NAME, 0, name)


@pytest.mark.parametrize("present", [True, False])
async def test_a_directory_of_an_earlier_version_starts_and_gets_the_name(machine, present):
    journals = await killed(machine)
    if not present:
        machine.disk.remove(NAME)
    else:  # It named a journal, an earlier version went on, and that one is gone.
        async with machine.running() as bookie:
            await bookie.checkpoint()
            name = machine.disk.content(NAME)
            machine.power.is_off = True
        machine.crash(Kept())
        newest = machine.disk.paths(".txn")[-1]
        await check(machine)
        machine.crash(Kept())
        machine.disk.corrupt(NAME, 0, name)
        machine.disk.remove(newest)
    await check(machine)
    machine.crash(Kept())
    assert machine.disk.paths(".txn")[-1] > journals[-1]
    machine.disk.remove(machine.disk.paths(".txn")[-1])
    with pytest.raises(BookieRefusesToStart, match="is missing"):
        await machine.open()


async def run(machine, sink):
    """Fill journals and flush them, until the power goes."""
    bookie = None
    try:
        bookie = await Bookie.open(machine.config, machine.disk, open_index=machine.indexes.open)
        async with trio.open_nursery() as nursery:
            await nursery.start(bookie.run)
            for number in range(3):
                await put(bookie, number * 12, 12, sink)
                await bookie.checkpoint()
            nursery.cancel_scope.cancel()
    except* StorageError:
        assert machine.power.is_off
    except* BookieError:
        assert machine.power.is_off
    finally:
        machine.power.is_off = True
        if bookie is not None:
            await bookie.aclose()


async def crash_at(operation, seed):
    """One run that ends at an operation of the storage, then a start. False: the run ended."""
    machine = Machine(replace(CONFIG, journalMaxBackups=0))
    machine.power.crash_after = operation
    sink = RecordingSink()
    with trio.fail_after(SECONDS_MAX):
        await run(machine, sink)
    is_over = machine.power.operations < operation
    acked = {entry_id for status, _ledger, entry_id in sink.replies if not status}
    for rng in (Kept(), random.Random(seed)):
        again = Machine(machine.config)
        again.disk = machine.disk.restart(rng, again.power)
        again.indexes = machine.indexes.restart(rng, again.power)
        async with again.running() as bookie:
            for entry_id in acked:
                assert await body_or_status(bookie, 1, entry_id) == whole(1, entry_id, PAYLOAD)
    return not is_over


@pytest.mark.parametrize(
    "first", [1, *(pytest.param(first, marks=pytest.mark.slow) for first in (2, 3))]
)
async def test_a_crash_at_any_operation_leaves_a_directory_that_starts(first):
    """At each third operation by day, at all of them by night."""
    operation = first
    while await crash_at(operation, operation):
        operation += 3
    assert operation > 150
