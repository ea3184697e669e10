"""What `vela ledger` shows of files and stores that Vela wrote, intact, damaged and in use."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys

import pytest
import trio
from click.testing import CliRunner

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.disk import RealDisk
from bookie.tests.conftest import RecordingSink
from inspection.command import command
from inspection.output import Output
from metadata.rocks_store import RocksStore
from metadata.store import MUST_NOT_EXIST
from protocol import ml_formats_pb2 as formats
from protocol.bookkeeper.digests import Digest, DigestType, master_key
from protocol.bookkeeper.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
)
from protocol.bookkeeper.paths import ledger_path

ENTRIES = 40
LEDGER = 7
KEY = master_key(b"")
NAME = "public/default/persistent/a+b"
TOPIC = "persistent://public/default/a b"


def payload(entry_id):
    return b"payload of %d" % entry_id


def body(entry_id, digest=DigestType.CRC32C):
    length = sum(len(payload(each)) for each in range(entry_id + 1))
    head = Digest(digest).head(LEDGER, entry_id, entry_id - 1, length, payload(entry_id))
    return head, payload(entry_id)


async def fill(directory):
    """A bookie's directories, checkpointed, and a metadata store, as of a standalone broker."""
    config = BookieConfig(
        journalDirectories=(str(directory / "journal"),),
        ledgerDirectories=(str(directory / "ledgers"),),
        dbStorage_writeCacheMaxSizeMb=1,
        journalPreAllocSizeMB=0,
        diskUsageThreshold=0.999,
        diskUsageWarnThreshold=0.999,
    )
    bookie = await Bookie.open(config, RealDisk())
    async with trio.open_nursery() as nursery:
        await nursery.start(bookie.run)
        sink = RecordingSink()
        for entry_id in range(ENTRIES):
            bookie.add_entry(LEDGER, entry_id, body(entry_id), KEY, 0, sink)
        bookie.kick()
        await sink.wait_for(ENTRIES)
        await bookie.fence_ledger(LEDGER, KEY)
        nursery.cancel_scope.cancel()
    shutil.copytree(directory / "journal", directory / "journal-before")
    await bookie.aclose()
    store = await RocksStore.open(directory / "metadata")
    metadata = LedgerMetadata(
        ensemble_size=1,
        write_quorum_size=1,
        ack_quorum_size=1,
        ensembles={0: ("127.0.0.1:3181",)},
        state=LedgerState.CLOSED,
        last_entry_id=ENTRIES - 1,
        length=500,
        password=b"secret",
        custom_metadata={"application": b"pulsar"},
    )
    for ledger_id in (LEDGER, 2**33):
        record = encode_ledger_metadata(metadata)
        await store.put(ledger_path(ledger_id), record, MUST_NOT_EXIST)
    await store.put(ledger_path(8), b"rubbish", MUST_NOT_EXIST)
    info = formats.ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=LEDGER, entries=ENTRIES, size=500, timestamp=1)
    info.ledgerInfo.add(ledgerId=9)
    await store.put(f"/managed-ledgers/{NAME}", info.SerializeToString(), MUST_NOT_EXIST)
    cursor = formats.ManagedCursorInfo(
        cursorsLedgerId=-1, markDeleteLedgerId=LEDGER, markDeleteEntryId=3
    )
    path = f"/managed-ledgers/{NAME}/sub"
    await store.put(path, cursor.SerializeToString(), MUST_NOT_EXIST)
    await store.aclose()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    directory = tmp_path_factory.mktemp("written")
    trio.run(fill, directory)
    return directory


def look(*arguments):
    """(rows as parsed JSON, the last line of stderr); the exit code must fit."""
    done = CliRunner().invoke(command, [*map(str, arguments), "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    lines = done.stderr.splitlines()
    assert len(lines) == (done.exit_code != 0), done.output
    return [json.loads(line) for line in done.stdout.splitlines()], "".join(lines)


def rows(*arguments):
    found, problem = look(*arguments)
    assert not problem
    return found


def journals(directory):
    return sorted((directory / "journal-before" / "current").glob("*.txn"))


def logs(directory):
    return sorted((directory / "ledgers" / "current").glob("*.log"))


def snapshot(directory):
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in directory.rglob("*")}


def test_a_journal_shows_its_records_and_where_they_are(written):
    [path] = journals(written)
    found = rows("journal", path, "--payload", "text")
    content = path.read_bytes()
    for row in found:
        assert int.from_bytes(content[row["offset"] : row["offset"] + 4], "big") == row["bytes"]
    entries = [row for row in found if row["kind"] == "entry"]
    assert [row["entry"] for row in entries] == list(range(ENTRIES))
    assert all(row["crc"] and row["body"].endswith(f"of {row['entry']}") for row in entries)
    assert [row["kind"] for row in found if row["kind"] != "entry"] == ["master-key", "fence"]
    assert rows("journal", path, "--ledger", 1) == []


def test_an_entry_log_shows_its_entries(written):
    found = [row for path in logs(written) for row in rows("log", path, "--payload", "hex")]
    assert [(row["ledger"], row["entry"]) for row in found] == [
        (LEDGER, entry_id) for entry_id in range(ENTRIES)
    ]
    assert bytes.fromhex(found[3]["body"]) == b"".join(body(3))


def test_the_index_shows_ledgers_and_leads_to_entries(written):
    directory = written / "ledgers"
    before = snapshot(written)
    [ledger] = rows("index", directory)
    assert (ledger["ledger"], ledger["fenced"], ledger["exists"]) == (LEDGER, True, True)
    assert ledger["masterKey"] == KEY.hex()
    found = rows("index", directory, "--ledger", LEDGER)[1:]
    assert [row["entry"] for row in found] == list(range(ENTRIES))
    entries = ("entries", LEDGER, "--directory", directory, "--payload", "text")
    assert [row["payload"].encode() for row in rows(*entries)] == list(map(payload, range(ENTRIES)))
    some = rows(*entries, "--first", 5, "--last", 6)
    assert [row["entry"] for row in some] == [5, 6]
    assert snapshot(written) == before


def test_a_metadata_store_shows_ledgers_topics_and_cursors(written):
    before = snapshot(written)
    store = ("--data-dir", written)
    listed = rows("list", *store)
    assert [(row["kind"], row["ledger"]) for row in listed] == [
        ("ledger", LEDGER),
        ("damaged", 8),
        ("ledger", 2**33),
    ]
    [row] = rows("metadata", LEDGER, *store)
    assert (row["state"], row["lastEntry"]) == ("CLOSED", ENTRIES - 1)
    assert row["ensembles"] == {"0": ["127.0.0.1:3181"]}
    assert "secret" not in json.dumps(row)
    for name in (TOPIC, NAME):
        found = rows("topic", name, *store)
        assert [each["kind"] for each in found] == ["managed-ledger", "ledger", "ledger", "cursor"]
        assert found[1]["entries"] == ENTRIES
        assert "entries" not in found[2]
        assert (found[3]["name"], found[3]["markDelete"]) == ("sub", f"{LEDGER}:3")
    assert rows("list", "--metadata-store", f"rocksdb://{written}/metadata") == listed
    assert snapshot(written) == before


def test_text_is_one_line_per_row(written):
    done = CliRunner().invoke(command, ["topic", TOPIC, "--data-dir", str(written)])
    assert done.stdout.splitlines()[1] == f"ledger ledger={LEDGER} entries={ENTRIES} bytes=500 " + (
        "closedAt=1"
    )


HOSTILE = "\x1b]0;owned\x07\x9b2J\u202e"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_strangers_wrote_does_not_reach_the_terminal_as_commands(capsys, options):
    output = Output(as_json=bool(options))
    output.row("entry", {"payload": HOSTILE, "custom": {HOSTILE: [HOSTILE]}, "name": "größe"})
    line = capsys.readouterr().out
    assert line.removesuffix("\n").isprintable()
    assert "\\u001b]0;owned" in line
    if options:
        assert json.loads(line)["payload"] == HOSTILE
    else:
        assert "name=größe" in line


@pytest.mark.parametrize("arguments", [["entries", 2**63], ["entries", 5, "--first", 2**63]])
def test_a_number_that_no_ledger_has_is_refused(written, arguments):
    arguments = [*map(str, arguments), "--directory", str(written / "ledgers")]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert "is not in the range" in done.stderr


def test_a_reader_who_has_seen_enough_gets_no_traceback(written):
    """As with `vela ledger log ... | head -1`."""
    [path] = logs(written)[:1]
    script = "from inspection.command import command; import sys; command(sys.argv[1:])"
    many = [sys.executable, "-c", script, "log", str(path), "--payload", "hex"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(many, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == b""


def test_what_a_process_has_open_is_refused(written):
    async def hold(do):
        store = await RocksStore.open(written / "metadata")
        try:
            await trio.to_thread.run_sync(do)
        finally:
            await store.aclose()

    def try_it():
        _, problem = look("list", "--data-dir", written)
        assert "metadata" in problem
        assert "stop the process" in problem

    trio.run(hold, try_it)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("journal", "none.txn"), "none.txn: No such file"),
        (("log", "none.log"), "none.log: No such file"),
        (("index", "none"), "is not a database"),
        (("list", "--data-dir", "none"), "is not a database"),
        (("list",), "name a metadata store"),
        (("metadata", "5", "--metadata-store", "memory:"), "ledger 5 does not exist"),
        (("topic", "persistent://a", "--metadata-store", "memory:"), "persistent://a"),
        (("topic", "x", "--metadata-store", "memory:"), "no managed ledger x"),
        (("entries", "5", "--metadata-store", "memory:"), "ledger 5 does not exist"),
        (("entries", "5", "--metadata-store", "etcd:x"), "no etcd store"),
    ],
)
def test_what_cannot_be_read_is_one_line(arguments, complaint):
    found, problem = look(*arguments)
    assert found == []
    assert complaint in problem


@pytest.mark.parametrize("kind", ["journal", "log"])
def test_a_damaged_file_is_told_with_its_place_after_what_is_intact(written, tmp_path, kind):
    [path] = journals(written) if kind == "journal" else logs(written)[:1]
    offsets = [row["offset"] for row in rows(kind, path)]
    content = bytearray(path.read_bytes())
    content[offsets[-2] : offsets[-2] + 4] = b"\x7f\xff\xff\xff"
    damaged = tmp_path / path.name
    damaged.write_bytes(content)

    found, problem = look(kind, damaged)

    assert f"vela: {damaged}: damage at offset " in problem
    assert len(found) < len(offsets)


@pytest.mark.parametrize("map_offset", [-(2**62), -1, 1, 2**62])
@pytest.mark.parametrize("options", [(), ("--map",)])
def test_a_map_that_cannot_be_in_the_file_is_told(written, tmp_path, map_offset, options):
    content = bytearray(logs(written)[0].read_bytes())
    content[8:16] = map_offset.to_bytes(8, "big", signed=True)
    damaged = tmp_path / "1.log"
    damaged.write_bytes(content)

    found, problem = look("log", damaged, *options)

    assert (found, f"a map of ledgers at {map_offset}" in problem) == ([], True)


@pytest.mark.parametrize("kind", ["journal", "log"])
def test_any_damage_is_rows_or_one_line(written, tmp_path, kind):
    [path] = journals(written) if kind == "journal" else logs(written)[:1]
    content = path.read_bytes()
    chance = random.Random(3)
    for number in range(60):
        broken = bytearray(content)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        if number % 3 == 0:
            del broken[chance.randrange(len(broken)) :]
        damaged = tmp_path / f"{number}{path.suffix}"
        damaged.write_bytes(broken)
        look(kind, damaged)


def test_a_damaged_location_is_told(written, tmp_path):
    copy = tmp_path / "ledgers"
    shutil.copytree(written / "ledgers", copy)
    path = copy / "current" / logs(written)[0].name
    offset = next(row["offset"] for row in rows("log", path) if row["entry"] == 9)
    with open(path, "r+b") as file:
        os.pwrite(file.fileno(), b"\0" * 12, offset)

    found, problem = look("entries", LEDGER, "--directory", copy)

    assert [row["entry"] for row in found] == list(range(9))
    assert f"{path}: damage at offset {offset}" in problem
