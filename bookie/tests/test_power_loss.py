"""The promise of this room: whatever instant the power goes, every acknowledged entry is there
afterwards with its bytes, acknowledged fences hold, and nothing but what was written is served.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import trio

from bookie.api import LAST_ENTRY, BookieError, Status
from bookie.bookie import Bookie
from bookie.errors import StorageError
from bookie.testing.sim_disk import SimSubmissions
from bookie.tests.conftest import KEY, SMALL, Machine, body_or_status, entry
from runtime.readers import Readers
from runtime.testing.conditions import SECONDS_MAX

LEDGERS = 5


class World:
    """The requests and the confirmations, over all lives of a machine."""

    def __init__(self):
        self.written = {}  # (ledger, entry) -> bytes
        self.acked = set()
        self.fenced = set()
        self.fence_asked = set()
        self.deleted = set()
        self.delete_asked = set()
        self.next_entry = {}
        self.gaps = {}  # ledger -> [(first entry, count)] that were left out

    def on_add_replies(self, status, ledger_id, first_entry_id, count):
        if status == Status.OK:
            self.acked |= {(ledger_id, first_entry_id + index) for index in range(count)}

    def on_replies_end(self):
        pass


def config_of(rng):
    return replace(
        SMALL,
        journalDirectories=("/j0", "/j1")[: rng.randint(1, 2)],
        ledgerDirectories=("/l0", "/l1")[: rng.randint(1, 2)],
        journalAlignmentSize=rng.choice((512, 4096)),
        journalPreAllocSizeMB=rng.randint(0, 1),
        journalMaxSizeMB=1,
        journalMaxBackups=rng.randint(0, 1),
        logSizeLimit=rng.choice((8 << 10, 200 << 10)),
        flushInterval=rng.choice((1, 5, 50)),
    )


async def work(bookie, world, rng):
    """A random workload until the power goes or it is enough."""
    for _ in range(rng.randint(1, 60)):
        what = rng.random()
        ledger_id = rng.randrange(LEDGERS)
        if what < 0.15:
            add_run(bookie, world, rng, ledger_id)
        elif what < 0.80:
            size_max = rng.choice((10, 600, 20_000))
            for _ in range(rng.randint(1, 20)):
                ledger_id = rng.randrange(LEDGERS)
                entry_id = world.next_entry.get(ledger_id, 0)
                if ledger_id in world.fence_asked | world.delete_asked:
                    continue
                world.next_entry[ledger_id] = entry_id + 1
                head, payload = entry(ledger_id, entry_id, rng.randbytes(rng.randint(0, size_max)))
                world.written[ledger_id, entry_id] = head + payload
                bookie.add_entry(ledger_id, entry_id, (head, payload), KEY, 0, world)
            bookie.kick()
        elif what < 0.84:
            await bookie.checkpoint()
        elif what < 0.87:
            await bookie.collect_garbage()
        elif what < 0.89 and ledger_id not in world.delete_asked:
            world.fence_asked.add(ledger_id)
            await bookie.fence_ledger(ledger_id, KEY)
            world.fenced.add(ledger_id)
        elif what < 0.91 and ledger_id == LEDGERS - 1:
            world.delete_asked.add(ledger_id)
            await bookie.delete_ledger(ledger_id)
            world.deleted.add(ledger_id)
        else:
            await trio.sleep(rng.choice((0, 0, 0.001)))


def add_run(bookie, world, rng, ledger_id):
    """Consecutive entries at once: the next ones, some after a gap, or the ones of a gap."""
    if ledger_id in world.fence_asked | world.delete_asked:
        return
    gaps = world.gaps.setdefault(ledger_id, [])
    first = world.next_entry.get(ledger_id, 0)
    count = rng.randint(1, 40)
    if gaps and rng.random() < 0.5:
        first, count = gaps.pop(rng.randrange(len(gaps)))
    else:
        if rng.random() < 0.5:
            gaps.append((first, rng.randint(1, 5)))
            first += gaps[-1][1]
        world.next_entry[ledger_id] = first + count
    bodies = []
    for entry_id in range(first, first + count):
        head, payload = entry(ledger_id, entry_id, rng.randbytes(rng.choice((0, 10, 600))))
        world.written[ledger_id, entry_id] = head + payload
        bodies.append((head, payload))
    bookie.add_entries(ledger_id, first, bodies, KEY, 0, world)
    bookie.kick()


async def check(bookie, world):
    highest = {}
    for (ledger_id, entry_id), body in world.written.items():
        acked = (ledger_id, entry_id) in world.acked and ledger_id not in world.delete_asked
        found = await body_or_status(bookie, ledger_id, entry_id)
        if isinstance(found, Status):
            assert not acked, f"acknowledged entry {ledger_id}:{entry_id} is lost: {found!r}"
            assert found in (Status.NO_ENTRY, Status.NO_LEDGER)
            continue
        assert found == body, f"garbage served for {ledger_id}:{entry_id}"
        highest[ledger_id] = max(entry_id, highest.get(ledger_id, -1))
    for ledger_id, last in highest.items():
        assert await bookie.read_entry(ledger_id, LAST_ENTRY) == world.written[ledger_id, last]
        assert await bookie.last_entry_id(ledger_id) == last
    for ledger_id in world.fenced - world.delete_asked:
        sink = RefusalProbe()
        bookie.add_entry(ledger_id, 10**6, entry(ledger_id, 10**6), KEY, 0, sink)
        await sink.done.wait()
        assert sink.status == Status.FENCED


def drawn_submissions(rng):
    """Some disks do not take submitted writes, and with some that is found out afterwards."""

    def make():
        submissions = SimSubmissions()
        submissions.refuses = rng.random() < 0.1
        submissions.refuses_late = rng.random() < 0.1
        return submissions

    return make


class RefusalProbe:
    def __init__(self):
        self.done = trio.Event()
        self.status = None

    def on_add_replies(self, status, ledger_id, first_entry_id, count):
        self.status = status

    def on_replies_end(self):
        self.done.set()


async def live(machine, world, rng, *, clean, is_direct=False):
    """One life of a bookie: start, check, work, end by power loss or cleanly."""
    bookie = None
    try:
        bookie = await Bookie.open(machine.config, machine.disk, open_index=machine.indexes.open)
        assert not any(storage.lost_logs for storage in bookie._storages)
        if is_direct:
            for storage in bookie._layout.storages:
                storage.direct_flush_bytes_min = 1
        async with trio.open_nursery() as nursery:
            if machine.disk.submissions is not None:
                readers = Readers()
                bookie.use_readers(readers)
                nursery.start_soon(readers.run)
            await nursery.start(bookie.run)
            await check(bookie, world)
            await work(bookie, world, rng)
            if clean:
                nursery.cancel_scope.cancel()
            else:
                if rng.random() < 0.5:
                    machine.power.is_off = True
                await trio.sleep(0.002)
                nursery.cancel_scope.cancel()
    except* (StorageError, BookieError):
        assert machine.power.is_off
    finally:
        if not clean:
            machine.power.is_off = True
        if bookie is not None:
            await bookie.aclose()


@pytest.mark.parametrize("is_direct", [False, True])
@pytest.mark.parametrize("submits", [False, True])
@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 40))]
)
async def test_acknowledged_entries_survive_power_loss(seed, submits, is_direct):
    rng = random.Random(seed)
    machine = Machine(config_of(rng))
    if submits:
        machine.disk.submissions = drawn_submissions(rng)
    world = World()
    for _life in range(4):
        machine.power.crash_after = machine.power.operations + int(10 ** rng.uniform(0, 3.2))
        with trio.fail_after(SECONDS_MAX):
            await live(machine, world, rng, clean=False, is_direct=is_direct)
        machine.crash(rng)
    with trio.fail_after(SECONDS_MAX):
        await live(machine, world, rng, clean=True, is_direct=is_direct)
        await live(machine, world, rng, clean=True, is_direct=is_direct)
