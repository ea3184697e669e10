"""An index that is made again from entry logs and journals: everything is found as before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from bookie.api import Status
from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.errors import BookieRefusesToStart, Corruption, DiskFailed
from bookie.index_rebuild import rebuild_index
from bookie.recorded_logs import RecordedLogs
from bookie.tests.conftest import KEY, RecordingSink, body_or_status, entry, whole
from bookie.tests.test_directories import write
from protocol.bookkeeper.digests import has_valid_crc

LEDGERS = 5
ENTRIES = 60


def config_of(directory):
    return BookieConfig(
        journalDirectories=(f"{directory}/j",),
        ledgerDirectories=(f"{directory}/l",),
        dbStorage_writeCacheMaxSizeMb=1,
        journalPreAllocSizeMB=0,
        logSizeLimit=32 << 10,
        flushInterval=3_600_000,
        gcWaitTime=3_600_000,
    )


def rebuild(directory, **arguments):
    return rebuild_index(f"{directory}/l/current", [f"{directory}/j/current"], **arguments)


def rebuild_checked(directory, **arguments):
    return rebuild(directory, is_intact=has_valid_crc, **arguments)


async def fill(directory):
    """Entries in several logs and some only in the journal; ledger 1 fenced, ledger 4 deleted."""
    bookie = await Bookie.open(config_of(directory))
    sink = RecordingSink()
    for first in (0, ENTRIES // 3, 2 * ENTRIES // 3):
        for entry_id in range(first, first + ENTRIES // 3):
            for ledger_id in range(LEDGERS):
                body = entry(ledger_id, entry_id, b"x" * 400)
                bookie.add_entry(ledger_id, entry_id, body, KEY, 0, sink)
        bookie.kick()
        await sink.wait_for((first + ENTRIES // 3) * LEDGERS)
        if first <= ENTRIES // 3:
            await bookie.checkpoint()
    await bookie.fence_ledger(1, KEY)
    await bookie.fence_ledger(4, KEY)
    await bookie.delete_ledger(4)
    await bookie.aclose()


async def check(directory, ledger_ids, *, missing=()):
    bookie = await Bookie.open(config_of(directory))
    try:
        for ledger_id in ledger_ids:
            assert await bookie.last_entry_id(ledger_id) == ENTRIES - 1
            for entry_id in range(ENTRIES):
                found = await body_or_status(bookie, ledger_id, entry_id)
                if (ledger_id, entry_id) in missing:
                    assert found not in (Status.NO_ENTRY, Status.NO_LEDGER)
                else:
                    assert found == whole(ledger_id, entry_id, b"x" * 400)
        return {h.ledger_id: h for h in bookie._handles.values()}
    finally:
        await bookie.aclose()


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(data)


def damage_locations(directory):
    log = max((directory / "l/current/locations").glob("MANIFEST-*"))
    flip(log, log.stat().st_size // 2)


async def test_damaged_locations_are_rebuilt_and_what_is_known_of_ledgers_stays(tmp_path):
    await fill(tmp_path)
    damage_locations(tmp_path)
    with pytest.raises(BookieRefusesToStart, match=r"locations/MANIFEST-.*rebuild-index"):
        await Bookie.open(config_of(tmp_path))
    result = rebuild_checked(tmp_path)
    assert result.rows_kept
    assert result.logs > 2
    handles = await check(tmp_path, range(4))
    assert [handles[n].fenced for n in range(4)] == [False, True, False, False]
    assert handles[0].master_key == KEY
    assert not handles[4].exists
    assert "locations" in os.listdir(result.replaced)


async def test_a_lost_index_is_rebuilt_with_fenced_ledgers_and_keys_of_the_journal(tmp_path):
    await fill(tmp_path)
    for name in ("locations", "ledgers"):
        shutil.rmtree(tmp_path / "l/current" / name)
    with pytest.raises(BookieRefusesToStart, match=r"locations: .*missing.*rebuild-index"):
        await Bookie.open(config_of(tmp_path))
    result = rebuild_checked(tmp_path)
    assert not result.rows_kept
    assert result.without_key == 0
    handles = await check(tmp_path, range(4))
    assert sorted(handles) == list(range(LEDGERS)), "the deleted one is back until it is collected"
    assert all(handle.fenced for handle in handles.values())
    assert {handle.master_key for handle in handles.values()} == {KEY}


@pytest.mark.parametrize("where", ["payload", "ids", "length"])
async def test_damage_in_an_entry_log_refuses_or_puts_ledgers_in_limbo(tmp_path, where):
    await fill(tmp_path)
    damage_locations(tmp_path)
    log = tmp_path / "l/current/1.log"
    offset = 1024 + 2 * (4 + len(whole(0, 0, b"x" * 400)))
    before = log.read_bytes()
    ids = before[offset + 4 : offset + 20]
    lost = (int.from_bytes(ids[:8], "big"), int.from_bytes(ids[8:], "big"))
    flip(log, offset + {"payload": 100, "ids": 18, "length": 2}[where])
    with pytest.raises(Corruption, match=rf"1\.log: damage at offset {offset}"):
        rebuild_checked(tmp_path)
    with pytest.raises(BookieRefusesToStart, match="rebuild of the index was interrupted"):
        await Bookie.open(config_of(tmp_path))
    result = rebuild_checked(tmp_path, skip_damaged=True)
    assert result.damaged_bytes == 4 + len(whole(0, 0, b"x" * 400))
    assert lost[0] in result.in_limbo
    await check(tmp_path, range(4), missing={lost})


@pytest.mark.parametrize("has_map", [True, False])
async def test_a_ledger_with_no_entry_but_the_damaged_one_is_in_limbo(tmp_path, has_map):
    """Its only entry was told as "no such entry"."""
    await fill(tmp_path)
    bookie = await Bookie.open(config_of(tmp_path))
    sink = RecordingSink()
    bookie.add_entry(9, 0, entry(9, 0), KEY, 0, sink)
    await sink.wait_for(1)
    await bookie.aclose()
    log = max((tmp_path / "l/current").glob("*.log"), key=lambda path: int(path.stem, 16))
    flip(log, 1024 + 4 + 40)
    if not has_map:
        flip(log, 22)  # the checksum of the map
    damage_locations(tmp_path)
    result = rebuild_checked(tmp_path, skip_damaged=True)
    assert result.in_limbo == ({9} if has_map else {0, 1, 2, 3, 9})
    bookie = await Bookie.open(config_of(tmp_path))
    assert await body_or_status(bookie, 9, 0) == Status.UNKNOWN_LEDGER_STATE
    await bookie.aclose()


async def test_a_log_that_is_shorter_than_its_index_refuses_or_puts_ledgers_in_limbo(tmp_path):
    """The end of the newest log was taken for a torn tail, and its entries for none."""
    await fill(tmp_path)
    log = max((tmp_path / "l/current").glob("*.log"), key=lambda path: int(path.stem, 16))
    size = log.stat().st_size
    short = 1024 + 2 * (4 + len(whole(0, 0, b"x" * 400))) + 30
    os.truncate(log, short)
    with pytest.raises(Corruption, match="shorter than its index"):
        await Bookie.open(config_of(tmp_path))
    with pytest.raises(Corruption, match=rf"offset {short}, .*shorter than its index"):
        rebuild_checked(tmp_path)
    result = rebuild_checked(tmp_path, skip_damaged=True)
    assert 30_000 < result.damaged_bytes <= size - short  # the map of the log follows its entries
    assert result.in_limbo == {0, 1, 2, 3}
    bookie = await Bookie.open(config_of(tmp_path))
    found = [await body_or_status(bookie, each, ENTRIES - 1) for each in range(4)]
    assert set(found) == {Status.UNKNOWN_LEDGER_STATE}
    await bookie.aclose()


def remove_log(directory, number):
    logs = sorted((directory / "l/current").glob("*.log"), key=lambda path: int(path.stem, 16))
    logs[number].unlink()
    return logs[number].name


async def statuses(directory):
    """The answers for entries that are not as they were written."""
    bookie = await Bookie.open(config_of(directory))
    ids = [(ledger_id, entry_id) for ledger_id in range(4) for entry_id in range(ENTRIES)]
    found = [(await body_or_status(bookie, *each), whole(*each, b"x" * 400)) for each in ids]
    await bookie.aclose()
    return {answer for answer, written in found if answer != written}


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("is_index_damaged", [False, True])
async def test_a_log_that_is_gone_refuses_or_puts_ledgers_in_limbo(
    tmp_path, number, is_index_damaged
):
    """Its entries were answered as "no such entry" after the rebuild."""
    await fill(tmp_path)
    name = remove_log(tmp_path, number)
    if is_index_damaged:
        damage_locations(tmp_path)
    with pytest.raises(BookieRefusesToStart, match=rf"{name}: the entry log is missing"):
        rebuild_checked(tmp_path)
    result = rebuild_checked(tmp_path, skip_damaged=True)
    assert result.missing_logs == 1
    assert result.in_limbo == {0, 1, 2, 3}
    assert await statuses(tmp_path) == {Status.UNKNOWN_LEDGER_STATE}


async def test_a_log_that_is_gone_with_the_whole_index_is_named_by_the_record(tmp_path):
    await fill(tmp_path)
    name = remove_log(tmp_path, 1)
    for database in ("locations", "ledgers"):
        shutil.rmtree(tmp_path / "l/current" / database)
    with pytest.raises(BookieRefusesToStart, match=rf"{name}: the entry log is missing"):
        rebuild_checked(tmp_path)
    assert rebuild_checked(tmp_path, skip_damaged=True).missing_logs == 1
    assert Status.NO_ENTRY not in await statuses(tmp_path)
    with capture_logs() as lines:
        await (await Bookie.open(config_of(tmp_path))).aclose()
    assert not any("missing" in line["event"] for line in lines), "it is not missed any more"


@pytest.mark.parametrize("is_log_gone", [False, True])
async def test_without_index_and_record_logs_may_be_missing_if_their_numbers_are(
    tmp_path, is_log_gone
):
    await fill(tmp_path)
    damage_locations(tmp_path)
    record = tmp_path / "l/current/entryLogs"
    flip(record, 5)
    if not is_log_gone:
        assert rebuild_checked(tmp_path).in_limbo == set(), "all numbers have their log"
        return
    remove_log(tmp_path, 1)
    with pytest.raises(BookieRefusesToStart, match=r"entryLogs: damage .* 1 of the numbers"):
        rebuild_checked(tmp_path)
    assert rebuild_checked(tmp_path, skip_damaged=True).in_limbo == {0, 1, 2, 3}
    assert await statuses(tmp_path) == {Status.UNKNOWN_LEDGER_STATE}


async def test_a_rebuild_that_was_interrupted_misses_the_log_again(tmp_path, monkeypatch):
    await fill(tmp_path)
    name = remove_log(tmp_path, 1)
    damage_locations(tmp_path)

    def fail(*_arguments):
        raise OSError("interrupted")

    monkeypatch.setattr(RecordedLogs, "begin", fail)
    with pytest.raises(DiskFailed, match="interrupted"):
        rebuild_checked(tmp_path, skip_damaged=True)
    monkeypatch.undo()
    with pytest.raises(BookieRefusesToStart, match=r"rebuild of the index was interrupted"):
        await Bookie.open(config_of(tmp_path))
    with pytest.raises(BookieRefusesToStart, match=rf"{name}: the entry log is missing"):
        rebuild_checked(tmp_path)
    assert rebuild_checked(tmp_path, skip_damaged=True).in_limbo == {0, 1, 2, 3}
    assert await statuses(tmp_path) == {Status.UNKNOWN_LEDGER_STATE}


async def test_logs_that_were_collected_are_not_missed(tmp_path):
    await fill(tmp_path)
    bookie = await Bookie.open(config_of(tmp_path))
    for ledger_id in range(4):
        await bookie.delete_ledger(ledger_id)
    await bookie.collect_garbage()
    await bookie.aclose()
    damage_locations(tmp_path)
    assert rebuild_checked(tmp_path).missing_logs == 0


async def test_only_ledgers_of_the_log_that_is_gone_are_in_limbo(tmp_path):
    await fill(tmp_path)
    bookie = await Bookie.open(config_of(tmp_path))
    sink = RecordingSink()
    bookie.add_entry(9, 0, entry(9, 0), KEY, 0, sink)
    await sink.wait_for(1)
    await bookie.aclose()
    remove_log(tmp_path, -1)
    result = rebuild_checked(tmp_path, skip_damaged=True)
    assert result.in_limbo == {9}
    assert await statuses(tmp_path) == set()


async def test_a_newest_log_that_was_collected_is_not_missed(tmp_path):
    """The file `lastId` would name it, if it had no successor."""
    bookie = await Bookie.open(config_of(tmp_path))
    sink = RecordingSink()
    bookie.add_entry(9, 0, entry(9, 0), KEY, 0, sink)
    await sink.wait_for(1)
    await bookie.aclose()
    bookie = await Bookie.open(config_of(tmp_path))
    await bookie.delete_ledger(9)
    before = {path.name for path in (tmp_path / "l/current").glob("*.log")}
    await bookie.collect_garbage()
    await bookie.aclose()
    assert not before & {path.name for path in (tmp_path / "l/current").glob("*.log")}
    damage_locations(tmp_path)
    assert rebuild_checked(tmp_path).missing_logs == 0


async def test_an_index_in_use_is_not_rebuilt(tmp_path):
    await fill(tmp_path)
    bookie = await Bookie.open(config_of(tmp_path))
    with pytest.raises(DiskFailed, match="in use"):
        rebuild_checked(tmp_path)
    await bookie.aclose()
    await check(tmp_path, range(4))


KILLED = """
import os, sys
from bookie import index_rebuild
from bookie.tests import test_index_rebuild as test
calls = int(sys.argv[2])
def trace(name, original):
    def call(*arguments, **keywords):
        global calls
        calls -= 1
        if calls == 0:
            os._exit(9)
        return original(*arguments, **keywords)
    return call
for owner, name in ((os, "rename"), (index_rebuild.RealDisk, "sync_directory"),
                    (index_rebuild, "open_index_database"), (index_rebuild, "LogScan")):
    setattr(owner, name, trace(name, getattr(owner, name)))
test.rebuild_checked(sys.argv[1])
"""


@pytest.mark.parametrize(
    "first", [1, *(pytest.param(first, marks=pytest.mark.slow) for first in (2, 3))]
)
async def test_a_rebuild_that_is_killed_anywhere_is_seen_and_can_be_repeated(tmp_path, first):
    """At each third call by day, at all of them by night."""
    await fill(tmp_path / "source")
    damage_locations(tmp_path / "source")
    for calls in range(first, 40, 3):
        directory = tmp_path / str(calls)
        shutil.copytree(tmp_path / "source", directory)
        ended = subprocess.run(  # noqa: ASYNC221
            [sys.executable, "-c", KILLED, str(directory), str(calls)], capture_output=True
        )
        if ended.returncode == 0:
            break
        assert ended.returncode == 9, ended.stderr
        try:
            await check(directory, range(4))  # it had ended but for the last sync
        except BookieRefusesToStart as refusal:
            assert "rebuild-index" in str(refusal)  # noqa: PT017
        rebuild_checked(directory)
        handles = await check(directory, range(4))
        assert [handles[n].fenced for n in range(4)] == [False, True, False, False]
        shutil.rmtree(directory)
    assert ended.returncode == 0
    assert calls > 10


# --- fences ---------------------------------------------------------------------------------


async def fence_one(directory):
    """Ledger 1, and the fence is in the database."""
    bookie = await Bookie.open(config_of(directory))
    await bookie.fence_ledger(1, KEY)
    await bookie.checkpoint()
    await bookie.aclose()


async def status_of_add(directory):
    """What the former writer of ledger 1 is answered."""
    bookie = await Bookie.open(config_of(directory))
    try:
        sink = RecordingSink()
        bookie.add_entry(1, 20, entry(1, 20), KEY, 0, sink)
        await sink.wait_for(1)
        return sink.statuses()[0]
    finally:
        await bookie.aclose()


async def test_a_rebuild_after_the_database_of_ledgers_lost_changes_keeps_its_fences(tmp_path):
    bookie = await Bookie.open(config_of(tmp_path))
    await write(bookie, 0, 20, range(LEDGERS))
    await bookie.aclose()
    current = tmp_path / "l/current"
    shutil.copytree(current / "ledgers", tmp_path / "older")
    await fence_one(tmp_path)
    shutil.rmtree(current / "ledgers")
    shutil.copytree(tmp_path / "older", current / "ledgers")
    with pytest.raises(BookieRefusesToStart, match="ledgers: the database ends at change"):
        await Bookie.open(config_of(tmp_path))
    rebuild_checked(tmp_path)
    assert await status_of_add(tmp_path) == Status.FENCED


async def test_rows_of_an_earlier_rebuild_are_not_taken_for_a_database_that_was_moved_away(
    tmp_path,
):
    bookie = await Bookie.open(config_of(tmp_path))
    await write(bookie, 0, 20, range(LEDGERS))
    await bookie.aclose()
    rebuild_checked(tmp_path)
    await fence_one(tmp_path)
    for name in ("locations", "ledgers"):
        shutil.move(tmp_path / "l/current" / name, tmp_path / name)
    rebuild_checked(tmp_path)
    assert await status_of_add(tmp_path) == Status.FENCED
