"""Starts after every kind of end: torn and damaged journals, missing files, foreign directories."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from bookie import journal_format as fmt
from bookie.api import Status
from bookie.disk import replace_file
from bookie.errors import BookieRefusesToStart, Corruption
from bookie.tests.conftest import (
    KEY,
    SMALL,
    Machine,
    RecordingSink,
    body_or_status,
    entry,
    whole,
)


async def written(machine, groups=3, per_group=2, **changes):
    """A bookie that wrote groups to its journal and then lost power without a checkpoint."""
    sink = RecordingSink()
    async with machine.running(**changes) as bookie:
        for number in range(groups):
            for entry_id in range(number * per_group, (number + 1) * per_group):
                bookie.add_entry(1, entry_id, entry(1, entry_id, b"x" * 100), KEY, 0, sink)
            bookie.kick()
            await sink.wait_for((number + 1) * per_group)
        machine.power.is_off = True
    machine.crash(random.Random(0))
    return machine.disk.paths(".txn")[-1]


def group_starts(content):
    header = fmt.decode_header(content[:512], "f")
    scan = fmt.JournalScan("f", lambda o, n: content[o : o + n], len(content), header, 0)
    starts = [scan.end_offset for _records in scan.groups()]
    return [512, *starts[:-1]], scan.end_offset


async def present(machine):
    found = []
    async with machine.running() as bookie:
        for entry_id in range(10):
            body = await body_or_status(bookie, 1, entry_id)
            if body not in (Status.NO_ENTRY, Status.NO_LEDGER):
                assert body == whole(1, entry_id, b"x" * 100)
                found.append(entry_id)
    return found


async def test_plain_restart_replays_everything(machine):
    await written(machine)
    assert await present(machine) == [0, 1, 2, 3, 4, 5]
    assert await present(machine) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("what", ["length", "body", "trailer", "junk"])
async def test_torn_tail_is_dropped_and_stays_dropped(machine, what, capsys):
    journal = await written(machine)
    starts, end = group_starts(machine.disk.content(journal))
    if what == "junk":
        machine.disk.corrupt(journal, end, b"\x55" * 700)
    else:
        cut = {"length": starts[-1] + 4, "body": starts[-1] + 60, "trailer": end - 3}[what]
        machine.disk.cut(journal, cut)
    kept = [0, 1, 2, 3] if what != "junk" else [0, 1, 2, 3, 4, 5]
    assert await present(machine) == kept
    warning = capsys.readouterr().out
    assert "torn tail" in warning
    assert journal in warning
    assert f"offset={starts[-1] if what != 'junk' else end}" in warning
    assert await present(machine) == kept


async def test_damage_before_a_durable_group_refuses_to_start(machine):
    journal = await written(machine)
    starts, _end = group_starts(machine.disk.content(journal))
    machine.disk.corrupt(journal, starts[1] + 50, b"\xff")
    with pytest.raises(Corruption) as caught:
        await machine.open()
    assert journal in str(caught.value)
    assert f"offset {starts[1]}" in str(caught.value)


async def test_torn_journal_that_is_not_the_newest_refuses_to_start(machine):
    journal = await written(machine)
    number = int(journal.removesuffix(".txn").rpartition("/")[2], 16)
    machine.disk.create(f"/j/current/{number + 1:x}.txn").write_at(0, fmt.encode_header(512, 1))
    machine.disk.cut(journal, machine.disk.open(journal).size() - 5)
    with pytest.raises(Corruption, match="does not verify"):
        await machine.open()


async def test_without_a_backup_the_advice_of_the_refusals_leads_to_a_start(machine):
    journal = await written(machine)
    await present(machine)
    mark_of = machine.disk.paths(".txn")[-1]
    starts, _end = group_starts(machine.disk.content(journal))
    machine.disk.corrupt(journal, starts[1] + 50, b"\xff")
    machine.disk.remove(mark_of)
    with pytest.raises(BookieRefusesToStart, match="lastMark"):
        await machine.open()
    for path in [
        each
        for each in machine.disk.paths("")
        if each.startswith(("/l/current/lastMark", "/l/current/newestJournal"))
    ]:
        machine.disk.remove(path)
    if machine.disk.exists(journal):
        with pytest.raises(Corruption, match="move it away") as refusal:
            await machine.open()
        machine.disk.remove(refusal.value.path)
    assert await present(machine) == [0, 1, 2, 3, 4, 5]  # the checkpoint had them elsewhere


async def test_a_damaged_journal_moved_away_costs_what_only_it_held(machine):
    journal = await written(machine)
    starts, _end = group_starts(machine.disk.content(journal))
    machine.disk.corrupt(journal, starts[1] + 50, b"\xff")
    with pytest.raises(Corruption, match="move it away") as refusal:
        await machine.open()
    machine.disk.remove(refusal.value.path)
    for path in [
        each
        for each in machine.disk.paths("")
        if each.startswith(("/l/current/lastMark", "/l/current/newestJournal"))
    ]:
        machine.disk.remove(path)
    assert await present(machine) == []


async def test_junk_journal_refuses_and_empty_ones_do_not(machine):
    journal = await written(machine)
    for name, content in (("fffffffffff0", b""), ("fffffffffff1", bytes(4096))):
        if machine.disk.exists(f"/j/current/{name}.txn"):
            continue
        machine.disk.create(f"/j/current/{name}.txn").write_at(0, content)
        assert await present(machine) == [0, 1, 2, 3, 4, 5]
    machine.disk.create("/j/current/ffffffffffff.txn").write_at(0, b"junk" * 1000)
    with pytest.raises(Corruption, match="not a journal header"):
        await machine.open()
    assert machine.disk.exists(journal)


@pytest.mark.parametrize("size", [0, 1, 512])
async def test_a_journal_that_lost_its_header_after_the_mark_was_in_it_refuses_to_start(
    machine, size
):
    """The mark moves into a new journal after its header is durable: nothing tore that off."""
    journal = await written(machine)
    content = bytes(size) if size == fmt.HEADER_SIZE else machine.disk.content(journal)[:size]
    machine.disk.cut(journal, size)
    machine.disk.corrupt(journal, 0, content)
    with pytest.raises(Corruption, match="the header of the journal is missing"):
        await machine.open()


async def test_missing_journal_refuses_to_start(machine):
    journal = await written(machine)
    machine.disk.remove(journal)
    with pytest.raises(BookieRefusesToStart, match="is missing"):
        await machine.open()


async def test_journal_of_bookkeeper_is_replayed(machine):
    data = b"BKLG" + (6).to_bytes(4, "big") + bytes(504)
    for record in (
        fmt.encode_master_key(1, KEY),
        whole(1, 0, b"x" * 100),
        whole(1, 1, b"x" * 100),
        fmt.encode_fence(1),
        fmt.encode_explicit_lac(1, b"lac"),
    ):
        data += fmt.pack_length(len(record)) + record
    data += fmt.pack_length(-0x100) + fmt.pack_length(20) + bytes(20) + bytes(1000)
    journal = machine.disk.create("/j/current/1234.txn")
    for directory in ("/j/current", "/l/current"):
        machine.disk.create(directory + "/VERSION").write_at(
            0,
            b'5\nbookieHost: "vela-embedded"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\n',
        )
    journal.write_at(0, data)
    async with machine.running() as bookie:
        assert await bookie.read_entry(1, 1) == whole(1, 1, b"x" * 100)
        assert bookie.explicit_lac(1) == b"lac"
        sink = RecordingSink()
        bookie.add_entry(1, 2, entry(1, 2), KEY, 0, sink)
        bookie.add_entry(1, 2, entry(1, 2), b"z" * 20, 0, sink)
        await sink.wait_for(2)
        assert sink.statuses() == [Status.FENCED, Status.UNAUTHORIZED]
    assert "/j/current/1235.txn" in machine.disk.paths(".txn")


async def test_journals_roll_and_old_ones_go_after_a_checkpoint(machine):
    sink = RecordingSink()
    changes = {"journalMaxSizeMB": 1, "journalMaxBackups": 1}
    async with machine.running(**changes) as bookie:
        for entry_id in range(60):
            bookie.add_entry(1, entry_id, entry(1, entry_id, b"x" * 100_000), KEY, 0, sink)
            await sink.wait_for(entry_id + 1)
        await bookie.checkpoint()
        await bookie.checkpoint()
        assert len(machine.disk.paths(".txn")) == 2
        bookie.add_entry(1, 60, entry(1, 60, b"last"), KEY, 0, sink)
        await sink.wait_for(61)
        machine.power.is_off = True
    machine.crash(random.Random(3))
    async with machine.running(**changes) as bookie:
        assert await bookie.read_entry(1, 60) == whole(1, 60, b"last")
        for entry_id in range(60):
            assert await bookie.read_entry(1, entry_id) == whole(1, entry_id, b"x" * 100_000)


async def test_several_journals_and_directories():
    machine = Machine(
        replace(SMALL, journalDirectories=("/j0", "/j1"), ledgerDirectories=("/l0", "/l1", "/l2"))
    )
    sink = RecordingSink()
    async with machine.running() as bookie:
        for ledger_id in range(12):
            bookie.add_entry(ledger_id, 0, entry(ledger_id, 0), KEY, 0, sink)
        await sink.wait_for(12)
        machine.power.is_off = True
    machine.crash(random.Random(5))
    async with machine.running() as bookie:
        for ledger_id in range(12):
            assert await bookie.read_entry(ledger_id, 0) == whole(ledger_id, 0)
    assert machine.disk.exists("/l2/current/lastMark")
    assert machine.disk.exists("/l2/current/lastMark.1")


async def test_the_mark_of_a_bookkeeper_that_was_killed_early_stands_for_none(machine):
    sink = RecordingSink()
    async with machine.running() as bookie:
        bookie.add_entry(1, 0, entry(1, 0), KEY, 0, sink)
        await sink.wait_for(1)
        machine.power.is_off = True
    machine.crash(random.Random(5))
    # What BookKeeper writes before it has synced a journal.
    replace_file(machine.disk, "/l/current/lastMark", bytes(16))
    async with machine.running() as bookie:
        assert await bookie.read_entry(1, 0) == whole(1, 0)


async def test_mark_never_moves_backwards(machine):
    from bookie.checkpoint import MarkStore

    marks = MarkStore(machine.disk, ["/l/current"], 0)
    assert marks.advance((5, 1000))
    assert not marks.advance((5, 900))
    assert not marks.advance((4, 5000))
    again = MarkStore(machine.disk, ["/l/current"], 0)
    assert again.load() == (5, 1000)


async def test_lost_directory_is_refused(machine):
    await written(machine)
    for path in machine.disk.paths(""):
        if path.startswith("/l/"):
            machine.disk.remove(path)
    with pytest.raises(BookieRefusesToStart, match="/l/current"):
        await machine.open()


async def test_foreign_directory_is_refused(machine):
    await written(machine)
    with pytest.raises(BookieRefusesToStart, match="bookie id"):
        await machine.open(bookieId="another:3181")


class Cookies:
    def __init__(self):
        self.stored = {}

    async def instance_id(self):
        return "cluster-1"

    async def read_cookie(self, bookie_id):
        return self.stored.get(bookie_id)

    async def write_cookie(self, bookie_id, cookie):
        self.stored[bookie_id] = cookie


async def test_cookie_in_the_metadata_store_catches_wiped_disks():
    from bookie.bookie import Bookie

    store = Cookies()
    machine = Machine()
    for _ in range(2):
        bookie = await Bookie.open(
            SMALL, machine.disk, open_index=machine.indexes.open, cookie_store=store
        )
        await bookie.aclose()
    assert b"cluster-1" in store.stored["vela-embedded"]
    wiped = Machine()
    with pytest.raises(BookieRefusesToStart, match="decommissioned"):
        await Bookie.open(SMALL, wiped.disk, open_index=wiped.indexes.open, cookie_store=store)


async def lose_index_end(machine, count=150, **changes):
    """Two checkpoints, then an index that has only what the first one wrote."""
    sink = RecordingSink()
    async with machine.running(**changes) as bookie:
        for first in (0, count):
            for entry_id in range(first, first + count):
                bookie.add_entry(1, entry_id, entry(1, entry_id, b"x" * 1000), KEY, 0, sink)
            bookie.kick()
            await sink.wait_for(first + count)
            await bookie.checkpoint()
            if not first:
                rows = len(machine.indexes._logs["/l/current"].locations)
    del machine.indexes._logs["/l/current"].locations[rows:]
    machine.disk.remove("/l/current/indexProgress")  # else the loss is refused
    return range(2 * count)


async def test_entries_that_the_index_does_not_know_are_taken_in(machine):
    entry_ids = await lose_index_end(machine)
    async with machine.running() as bookie:
        assert await bookie.list_entry_ids(1) == list(entry_ids)
        for entry_id in entry_ids:
            assert await bookie.read_entry(1, entry_id) == whole(1, entry_id, b"x" * 1000)


async def test_damage_behind_the_indexed_part_is_set_aside_and_the_rest_taken_in(machine):
    entry_ids = await lose_index_end(machine, count=15)
    log = "/l/current/1.log"
    record_size = 4 + len(whole(1, 0, b"x" * 1000))
    offset = 1024 + 20 * record_size
    machine.disk.corrupt(log, offset + 50, b"y")
    for _start in range(2):
        async with machine.running() as bookie:
            # Entries that the log no longer holds are lost: the replayed journal has none of them.
            assert await body_or_status(bookie, 1, 20) == Status.NO_ENTRY
            for entry_id in set(entry_ids) - {20}:
                assert await bookie.read_entry(1, entry_id) == whole(1, entry_id, b"x" * 1000)
    (aside,) = machine.disk.paths(".aside")
    assert aside == f"/l/current/1.{offset:x}.aside"
    assert machine.disk.content(aside).startswith(
        b"".join([(record_size - 4).to_bytes(4, "big"), whole(1, 20)[:20]])
    )


async def test_only_a_torn_tail_of_the_newest_entry_log_is_cut_off(machine):
    entry_ids = await lose_index_end(machine, count=15)
    log = "/l/current/1.log"
    record_size = 4 + len(whole(1, 0, b"x" * 1000))
    end = 1024 + 29 * record_size
    machine.disk.cut(log, end + 500)
    with capture_logs() as logs:
        async with machine.running() as bookie:
            assert await bookie.list_entry_ids(1) == list(entry_ids)[:-1]
    (warning,) = [line for line in logs if line["log_level"] == "warning"]
    assert (warning["file"], warning["offset"], warning["bytes"]) == (log, end, 500)
    assert machine.disk.paths(".aside") == []


async def test_a_damaged_journal_mark_is_left_out_and_all_journals_are_replayed(machine, capsys):
    """One bit of the offset, and acknowledged entries were skipped."""
    await written(machine)
    assert await present(machine) == [0, 1, 2, 3, 4, 5]
    sink = RecordingSink()
    async with machine.running() as bookie:
        for entry_id in range(6, 10):
            bookie.add_entry(1, entry_id, entry(1, entry_id, b"x" * 100), KEY, 0, sink)
        await sink.wait_for(4)
        machine.power.is_off = True
    machine.crash(random.Random(0))
    content = machine.disk.content("/l/current/lastMark")
    assert len(content) == 24
    for byte in (7, 14, 17, 23):
        machine.disk.corrupt("/l/current/lastMark", byte, bytes([content[byte] ^ 4]))
        assert await present(machine) == list(range(10))
        content = machine.disk.content("/l/current/lastMark")
    assert "journal mark is damaged" in capsys.readouterr().out


async def test_a_flipped_bit_in_the_last_acknowledged_group_refuses_to_start(machine):
    journal = await written(machine)
    starts, _end = group_starts(machine.disk.content(journal))
    machine.disk.corrupt(journal, starts[-1] + 60, b"\xff")
    with pytest.raises(Corruption, match="written as a whole") as caught:
        await machine.open()
    assert caught.value.offset == starts[-1]
