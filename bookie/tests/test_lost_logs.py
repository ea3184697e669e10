"""An entry log that is gone is missed at the next start, and only by those that had entries in it.

Also: the record of the logs is true whatever instant the power goes.
"""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bookie import entry_log_format as fmt
from bookie.api import Status
from bookie.entry_log import EntryLogs
from bookie.errors import DiskFull
from bookie.recorded_logs import compare, decode_record, encode_record
from bookie.testing.sim_disk import Power, PowerLost, SimDisk
from bookie.tests.conftest import KEY, SMALL, Machine, RecordingSink, body_or_status, entry, whole

PAYLOAD = b"z" * 2000
RECORD = "/l/current/entryLogs"
ENTRIES = 10


async def fill(bookie, rounds):
    """Each round in a log of its own, full at the end: the ledgers with `ENTRIES` more entries."""
    counts = {}
    for ledger_ids in rounds:
        sink = RecordingSink()
        for ledger_id in ledger_ids:
            first = counts.get(ledger_id, 0)
            counts[ledger_id] = first + ENTRIES
            for entry_id in range(first, first + ENTRIES):
                body = entry(ledger_id, entry_id, PAYLOAD)
                bookie.add_entry(ledger_id, entry_id, body, KEY, 0, sink)
        await sink.wait_for(ENTRIES * len(ledger_ids))
        await bookie.checkpoint()
        for storage in bookie._storages:
            storage.logs.seal_active()


def lose(machine, path):
    """Without any operation of the storage."""
    del machine.disk._names[path]
    del machine.disk._durable_names[path]


def logs_of(machine, directory="/l/current"):
    logs = [path for path in machine.disk.paths(".log") if path.startswith(directory)]
    return sorted(logs, key=lambda path: int(path.rpartition("/")[2][:-4], 16))


def missed(lines):
    """The logs that a start names, with their ledgers."""
    return {
        line["file"]: line["first_ledgers"]
        for line in lines
        if line["event"].startswith("entry log is missing, and entries in it cannot be read")
    }


async def started(machine):
    """(the logs that a start names, the answers for entries that are not as written)"""
    with capture_logs() as lines:
        bookie = await machine.open()
    try:
        wrong = {}
        for ledger_id in bookie.ledger_ids():
            for entry_id in range(await bookie.last_entry_id(ledger_id) + 1):
                answer = await body_or_status(bookie, ledger_id, entry_id)
                if answer != whole(ledger_id, entry_id, PAYLOAD):
                    wrong[ledger_id, entry_id] = answer
            assert await body_or_status(bookie, ledger_id, 1000) == Status.NO_ENTRY
    finally:
        await bookie.aclose()
    return missed(lines), wrong, lines


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_start_names_a_log_that_is_gone_and_its_ledgers(machine, number):
    rounds = [(1, 2), (2, 3), (1, 4)]
    async with machine.running() as bookie:
        await fill(bookie, rounds)
    path = logs_of(machine)[number]
    lose(machine, path)
    for _start in range(2):  # until something is done about it
        named, wrong, _ = await started(machine)
        assert named == {path: list(rounds[number])}
        assert set(wrong.values()) == {Status.IO_ERROR}
        assert len(wrong) == 2 * ENTRIES, "the other entries of these ledgers are served"
        assert {ledger_id for ledger_id, _entry_id in wrong} == set(rounds[number])


async def test_a_log_that_is_back_is_missed_no_more(machine):
    async with machine.running() as bookie:
        await fill(bookie, [(1, 2), (2, 3)])
    path = logs_of(machine)[0]
    inode = machine.disk._names[path]
    lose(machine, path)
    assert (await started(machine))[0]
    machine.disk._names[path] = machine.disk._durable_names[path] = inode
    assert (await started(machine))[:2] == ({}, {})


async def test_a_log_is_missed_until_its_ledgers_are_deleted(machine):
    async with machine.running() as bookie:
        await fill(bookie, [(1,), (2,)])
    lose(machine, logs_of(machine)[0])
    async with machine.running() as bookie:
        await bookie.delete_ledger(1)
    _, _, lines = await started(machine)
    assert any("no entry of an existing ledger was in it" in line["event"] for line in lines)
    named, wrong, lines = await started(machine)
    assert (named, wrong) == ({}, {})
    assert not any("missing" in line["event"] for line in lines)


async def test_entries_that_are_written_again_are_missed_no_more(machine):
    """As autorecovery does."""
    async with machine.running() as bookie:
        await fill(bookie, [(1,), (2,)])
    lose(machine, logs_of(machine)[0])
    async with machine.running() as bookie:
        await fill(bookie, [(1,)])
    await started(machine)
    assert (await started(machine))[:2] == ({}, {})


async def test_each_ledger_directory_misses_its_own_logs():
    machine = Machine(replace(SMALL, ledgerDirectories=("/l", "/m")))
    async with machine.running() as bookie:
        await fill(bookie, [(1, 2), (3, 4)])
    (path, _) = logs_of(machine, "/m/current")
    lose(machine, path)
    named, wrong, _ = await started(machine)
    assert named == {path: [1]}
    assert set(wrong) == {(1, entry_id) for entry_id in range(ENTRIES)}


def damage(machine):
    content = machine.disk.content(RECORD)
    machine.disk.corrupt(RECORD, 8, bytes([content[8] ^ 1]))


def drop(machine):
    lose(machine, RECORD)


@pytest.mark.parametrize(
    ("ruin", "reason"), [(damage, "damage at offset 0"), (drop, "record .* is missing")]
)
@pytest.mark.parametrize("is_log_lost", [False, True])
async def test_a_record_that_is_gone_is_named_and_the_index_takes_its_place(
    machine, ruin, reason, is_log_lost
):
    async with machine.running() as bookie:
        await fill(bookie, [(1, 2), (2, 3), (4,)])
    path = logs_of(machine)[1]
    if is_log_lost:
        lose(machine, path)
    ruin(machine)
    named, wrong, lines = await started(machine)
    (doubt,) = [line for line in lines if "cannot be relied on" in line["event"]]
    assert RECORD in doubt["reason"]
    assert named == ({path: [2, 3]} if is_log_lost else {})
    assert len(wrong) == (2 * ENTRIES if is_log_lost else 0)
    _, _, lines = await started(machine)
    assert not any("cannot be relied on" in line["event"] for line in lines), "it is new"
    if is_log_lost:
        assert missed(lines) == {path: [2, 3]}


async def test_a_record_that_is_an_older_copy_is_named(machine):
    async with machine.running() as bookie:
        await fill(bookie, [(1, 2)])
        before = machine.disk.content(RECORD)
        await fill(bookie, [(3,), (4,)])
    path = logs_of(machine)[1]
    lose(machine, path)
    machine.disk.cut(RECORD, 0)
    machine.disk.corrupt(RECORD, 0, before)
    named, _, lines = await started(machine)
    (doubt,) = [line for line in lines if "cannot be relied on" in line["event"]]
    assert "older copy" in doubt["reason"]
    assert named == {path: [3]}


async def test_the_newest_log_is_missed_with_a_record_that_is_older(machine):
    """By the file `lastId`."""
    async with machine.running() as bookie:
        await fill(bookie, [(1, 2)])
        before = machine.disk.content(RECORD)
        await fill(bookie, [(3,)])
    path = logs_of(machine)[-1]
    lose(machine, path)
    machine.disk.cut(RECORD, 0)
    machine.disk.corrupt(RECORD, 0, before)
    assert (await started(machine))[0] == {path: [3]}


async def test_a_directory_of_an_earlier_version_starts_as_before_and_has_a_record_then(machine):
    async with machine.running() as bookie:
        await fill(bookie, [(1, 2), (2, 3), (4,)])
    drop(machine)
    for path in logs_of(machine):
        machine.disk.corrupt(path, 28, bytes(4))
    lose(machine, logs_of(machine)[0])
    named, wrong, lines = await started(machine)
    assert named == {}
    assert len(wrong) == 2 * ENTRIES
    assert not any("record" in line["event"] for line in lines)
    path = logs_of(machine)[0]
    lose(machine, path)
    assert (await started(machine))[0][path] == [2, 3]


async def test_a_version_without_a_record_that_ran_in_between_is_no_loss(machine):
    """It collects logs, and makes new ones."""
    async with machine.running() as bookie:
        await fill(bookie, [(1,), (2,)])
        before = machine.disk.content(RECORD)
        await bookie.delete_ledger(1)
        await bookie.collect_garbage()
        await fill(bookie, [(3,)])
    machine.disk.cut(RECORD, 0)
    machine.disk.corrupt(RECORD, 0, before)
    machine.disk.corrupt(logs_of(machine)[-1], 28, bytes(4))
    named, wrong, lines = await started(machine)
    assert (named, wrong) == ({}, {})
    assert any("no entry of an existing ledger was in it" in line["event"] for line in lines)
    assert len(compare(machine.disk, "/l/current", []).missing) == 2, "it is up to date again"


async def test_logs_are_deleted_although_there_is_no_space_for_the_record(machine):
    async with machine.running() as bookie:
        await fill(bookie, [(1,), (2,), (3,)])
        before = logs_of(machine)
        await bookie.delete_ledger(1)
        machine.disk.free_bytes = 100
        await bookie.collect_garbage()
        assert logs_of(machine) == before[1:]
        machine.disk.free_bytes = None
    named, wrong, lines = await started(machine)
    assert (named, wrong) == ({}, {})
    assert not any("missing" in line["event"] for line in lines), "the stop recorded it"


def test_a_log_that_finds_no_space_for_its_record_is_made_later():
    disk = SimDisk()
    logs = EntryLogs(disk, "/l", 1 << 20)
    logs.recover(0)
    disk.said_free_bytes = disk.free_bytes = 100_000
    with pytest.raises(DiskFull):
        logs.place(100)
    assert compare(disk, "/l", logs.ids()).missing == set()
    disk.said_free_bytes = disk.free_bytes = None
    log_id, _ = fmt.split_location(logs.place(100))
    assert compare(disk, "/l", []).missing == {log_id}


@given(st.sets(st.integers(0, 300), max_size=60), st.integers(-1, 1000))
def test_records_are_read_as_written(log_ids, newest_id):
    assert decode_record(encode_record(newest_id, log_ids)) == (newest_id, log_ids)


@given(st.sets(st.integers(0, 300), max_size=20), st.data())
def test_a_changed_bit_or_a_lost_end_is_noticed(log_ids, data):
    content = encode_record(7, log_ids)
    at = data.draw(st.integers(0, len(content) - 1))
    flipped = bytearray(content)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    assert decode_record(bytes(flipped)) is None
    assert decode_record(content[:at]) is None


class Logs:
    """The logs of one directory over several lives of a machine."""

    def __init__(self, rng):
        self.rng = rng
        self.disk = SimDisk()
        self.synced = set()  # with entries that are durable
        self.removed = set()

    def live(self, crash_after):
        """Logs are made and removed until the power goes."""
        self.disk = self.disk.restart(self.rng, Power(crash_after))
        try:
            logs = EntryLogs(self.disk, "/l", 2048)
            compared = logs.compare()
            assert not compared.doubt
            assert not compared.missing & self.synced
            assert not compared.missing, "nothing was lost"
            logs.recover(max((fmt.location_of(i, fmt.HEADER_SIZE) for i in self.synced), default=0))
            while True:
                if logs.summaries and self.rng.random() < 0.4:
                    log_id = self.rng.choice(sorted(logs.summaries))
                    self.synced.discard(log_id)
                    self.removed.add(log_id)
                    logs.remove(log_id)
                else:
                    location = logs.append([bytes(500)], 500, {1: 500})
                    logs.sync()
                    self.synced.add(fmt.split_location(location)[0])
        except PowerLost:
            pass


@given(st.randoms(use_true_random=False), st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_no_power_loss_makes_the_record_miss_a_log_or_overlook_one(rng, lives):
    logs = Logs(rng)
    for crash_after in lives:
        logs.live(crash_after)
    disk = logs.disk.restart(rng)
    present = EntryLogs(disk, "/l", 2048).ids()
    assert compare(disk, "/l", present).missing == set()
    for log_id in logs.synced:
        assert log_id in present
        without = [each for each in present if each != log_id]
        assert compare(disk, "/l", without).missing == {log_id}


@pytest.mark.parametrize("seed", range(10))
async def test_a_log_lost_after_a_power_loss_is_named_with_its_ledgers(machine, seed):
    rng = random.Random(seed)
    async with machine.running() as bookie:
        await fill(bookie, [(1, 2), (2, 3), (1, 4)])
        await bookie.delete_ledger(3)
        machine.power.crash_after = machine.power.operations + rng.randint(1, 60)
        await bookie.collect_garbage(major=True)
        machine.power.is_off = True
    machine.crash(rng)
    path = logs_of(machine)[0]
    lose(machine, path)
    named, wrong, _ = await started(machine)
    assert set(wrong) == {(ledger_id, i) for ledger_id in (1, 2) for i in range(ENTRIES)}
    assert named[path] == [1, 2]


def test_a_record_of_more_logs_than_there_can_be_is_damaged():
    """It is not made into a set of a billion numbers."""
    one = encode_record(0, [0])
    content = one[:16] + struct.pack(">qq", 0, 1 << 30)
    assert decode_record(content + struct.pack(">I", crc32c.crc32c(content))) is None
    content = one[:16] + struct.pack(">qq", 0, 1 << 10)
    found = decode_record(content + struct.pack(">I", crc32c.crc32c(content)))
    assert found == (0, set(range((1 << 10) + 1)))
