"""A read of a run of entries ends with the piece that has the end of the run, and never before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie import entry_log_format as fmt
from bookie.errors import StorageError
from bookie.index_memory import MemoryIndex
from bookie.ledger_state import LedgerState
from bookie.ledger_storage import LOG_READS_PER_RUN_MAX, LedgerStorage
from bookie.memory_disk import MemoryDisk
from bookie.read_turns import PIECE_BYTES, JournalWrites
from bookie.run_scan import RunScan
from bookie.testing.watched_disk import WatchedDisk

OURS, OTHER = 7, 8


def record(ledger_id, entry_id, size):
    body = ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big") + bytes(size)
    return len(body).to_bytes(4, "big") + body


def run(sizes, first_entry_id=0, ledger_id=OURS):
    return b"".join(record(ledger_id, first_entry_id + at, size) for at, size in enumerate(sizes))


def pieces(data, cuts):
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    begin = 0
    for end in ends:
        if end > begin:
            yield data[begin:end]
            begin = end


SIZES = st.lists(st.integers(0, 60), min_size=1, max_size=8)
CUTS = st.lists(st.integers(1, 400), max_size=12)


@given(SIZES, st.integers(1, 10), CUTS, st.sampled_from(["other", "gap", "nothing", "damage"]))
def test_it_ends_with_the_piece_in_which_the_run_ends(sizes, count_max, cuts, after):
    ours = run(sizes)
    rest = {
        "other": run([5, 300], ledger_id=OTHER),
        "gap": run([5, 300], first_entry_id=len(sizes) + 1),
        "nothing": b"",
        "damage": b"\xff" * 300,
    }[after]
    count = min(count_max, len(sizes))
    wanted = len(run(sizes[:count]))
    if count < count_max:
        wanted += 20  # the head of the record after it tells that it is another one
    scan = RunScan(OURS, 0, count_max)
    come = 0
    for piece in pieces(ours + rest, cuts):
        come += len(piece)
        assert scan.ends_with(piece) == (come >= wanted)
        if come >= wanted:
            break


def test_a_record_longer_than_all_pieces_together_is_not_the_end_of_a_run():
    scan = RunScan(OURS, 0, 1)
    data = record(OURS, 0, 2_000)
    assert [scan.ends_with(data[at : at + 500]) for at in range(0, 2_000, 500)] == [False] * 4
    assert scan.ends_with(data[2_000:])


def test_the_last_entry_that_can_be_ends_a_run():
    last = (1 << 63) - 1
    scan = RunScan(OURS, last, 100)
    assert scan.ends_with(record(OURS, last, 5) + record(OURS, 0, 5))


def disk_of_reads(sizes):
    """A disk that notes how much of entry logs is read at once."""

    def note(_file, name, arguments):
        if name == "read_at":
            sizes.append(arguments[1])

    return WatchedDisk(MemoryDisk(), note)


@pytest.mark.parametrize("is_written", [False, True])
def test_what_is_after_a_run_is_not_read_while_records_are_written(is_written):
    """Three entries of 100 KB: one piece has two and a half of them."""
    sizes, writes = [], JournalWrites()
    disk = disk_of_reads(sizes)
    storage = LedgerStorage(disk, "/l", MemoryIndex(), 64 << 20, 64 << 20, writes)
    storage.recover()
    for ledger_id in (OURS, OTHER):
        handle = LedgerState(ledger_id)
        for entry_id in range(3 if ledger_id == OURS else 30):
            head = ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big")
            storage.cache.put(handle, entry_id, (head, bytes(100_000)))
    storage.flush(storage.cache.swap())
    storage.cache.flushed()
    if is_written:
        writes.begin("journal")
        writes.end("journal")
    found = storage.read_run(OURS, 0, 100, 1 << 20)
    assert [entry[:16] for entry in found] == [
        OURS.to_bytes(8, "big") + entry_id.to_bytes(8, "big") for entry_id in range(3)
    ]
    assert sizes == ([PIECE_BYTES] * 2 if is_written else [1 << 20])
    storage.close()


def test_a_read_of_entries_that_lie_apart_answers_with_the_first_of_them():
    """A topic of which each flush has one entry: its reader would wait for thousands of reads."""
    sizes = []
    disk = disk_of_reads(sizes)
    storage = LedgerStorage(disk, "/l", MemoryIndex(), 64 << 20, 64 << 20)
    storage.recover()
    ours, other = LedgerState(OURS), LedgerState(OTHER)
    count = 2 * LOG_READS_PER_RUN_MAX + 3
    for entry_id in range(count):
        for handle in (ours, other):
            head = handle.ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big")
            storage.cache.put(handle, entry_id, (head, bytes(100)))
        storage.flush(storage.cache.swap())
        storage.cache.flushed()
    answers = []
    while sum(answers) < count:
        sizes.clear()
        found = storage.read_run(OURS, sum(answers), 5_000, 1 << 20)
        assert [int.from_bytes(entry[8:16], "big") for entry in found] == [
            sum(answers) + at for at in range(len(found))
        ]
        assert 1 <= len(sizes) <= LOG_READS_PER_RUN_MAX
        answers.append(len(found))
    assert answers == [LOG_READS_PER_RUN_MAX, LOG_READS_PER_RUN_MAX, 3]
    storage.close()


def test_a_large_entry_that_compaction_moves_between_its_two_reads_is_found():
    """The first read ends within the entry; then its log is gone."""
    moves = []

    def compact(_file, name, _arguments):
        if name == "read_at" and moves:
            moves.pop()()

    storage = LedgerStorage(
        WatchedDisk(MemoryDisk(), compact), "/l", MemoryIndex(), 1 << 20, 64 << 20
    )
    storage.recover()
    body = OURS.to_bytes(8, "big") + bytes(8) + bytes(3 << 20)
    for ledger_id, content in ((OURS, body), (OTHER, OTHER.to_bytes(8, "big") + bytes(100))):
        storage.cache.put(LedgerState(ledger_id), 0, (content, b""))
        storage.flush(storage.cache.swap())
        storage.cache.flushed()
    location = storage.index.location(OURS, 0)
    log_id, _ = fmt.split_location(location)
    record = len(body).to_bytes(4, "big") + body

    def move():
        assert storage.copy_entries([(location, OURS, 0, record)]) == (1, [])
        storage.logs.remove(log_id)

    moves.append(move)
    assert storage.read_run(OURS, 0, 1, 1 << 20) == [body]
    assert not moves
    storage.close()


def test_a_log_that_is_gone_is_an_error_that_names_the_file_and_the_way_out():
    disk = MemoryDisk()
    storage = LedgerStorage(disk, "/l", MemoryIndex(), 1 << 20, 64 << 20)
    storage.recover()
    storage.cache.put(LedgerState(OURS), 0, (OURS.to_bytes(8, "big") + bytes(100), b""))
    storage.flush(storage.cache.swap())
    storage.cache.flushed()
    storage.close()
    log_id, _ = fmt.split_location(storage.index.location(OURS, 0))
    disk.remove(f"/l/{log_id:x}.log")
    again = LedgerStorage(disk, "/l", storage.index, 1 << 20, 64 << 20)
    again.recover()
    with pytest.raises(
        StorageError, match=rf"{log_id:x}\.log from a backup.*rebuild-index --skip-damaged"
    ):
        again.read_run(OURS, 0, 1, 1 << 20)
    again.close()
