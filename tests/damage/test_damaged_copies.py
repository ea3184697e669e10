"""Damaged files of one bookie of a real machine: reads go around them, and the copies become whole.

Six ledgers have copies on both bookies. One copy of each is damaged on disk while the machine is
stopped, each at another place. The audit must find the five in entry logs without a reader's help.
The sixth, rows of the index of the bookie that is asked first, is met by a read that begins there:
in one copy of the machine by a reader of the topic, in the other one by the audit, if the few
entries that it reads alone are among the misled ones.
"""

import re
import shutil
from contextlib import asynccontextmanager, closing

import pulsar
import trio

from autorecovery.records import MARKS_ROOT
from bookie.index import pack_location_key, pack_u64
from bookie.index_rocksdb import RocksIndex
from cli.machine.plan import bookie_directory, bookie_name, read_machine
from cli.machine.running import running_machine, socket_path_in
from cli.machine.tests.guarded import client, credentials, layouts, read, send
from inspection.bookie_directory import BookieDirectory
from metadata.socket_store import SocketStore
from protocol.bookkeeper.digests import Digest
from protocol.bookkeeper.ledger_metadata import DigestType
from runtime.line_writer import LineWriter
from runtime.testing.conditions import eventually

SECONDS_MAX = 240.0
PORTS = {"brokerServicePort": 0, "webServicePort": 0}
TOPICS = [f"persistent://public/default/topic-{number}" for number in range(6)]
ENTRIES = 40
ALL = list(range(ENTRIES))
MISLED = range(10, 13)
"""Entries whose rows of the index point to others. A read of the second one may begin at the first
one."""
_SESSION_S = 30.0


class Output:
    """What the processes say."""

    def __init__(self):
        self.text = b""

    def write(self, data):
        self.text += data
        return len(data)

    def found(self, pattern):
        return re.findall(pattern, self.text.decode())


@asynccontextmanager
async def a_machine(data, output, **keys):
    """Two bookies that other users do not reach, which autorecovery has to."""
    socket_path = socket_path_in(data)
    settings = credentials(auditorReadBytesPerSecond="0", **keys)
    machine, _ = read_machine(1, 2, settings, PORTS, socket_path, strict=True)
    with trio.fail_after(SECONDS_MAX):
        async with running_machine(
            machine, data, socket_path, "info", LineWriter(output.write)
        ) as running:
            yield running


def missed_copies(output):
    """(ledger id, bookie) of the entries that were looked for in a copy and were not there."""
    found = output.found(r"copy not there +bookie=(\S+) .*ledger_id=(\d+)")
    return {(int(ledger_id), bookie_id) for bookie_id, ledger_id in found}


async def in_thread(work, *arguments):
    return await trio.to_thread.run_sync(work, *arguments)


async def read_all(running):
    return [await in_thread(read, running.urls[0], topic, ENTRIES) for topic in TOPICS]


def read_from(service_url, topic, ledger_id, entry_id):
    before = pulsar.MessageId(-1, ledger_id, entry_id - 1, -1)
    with client(service_url) as made, closing(made.create_reader(topic, before)) as reader:
        return int(reader.read_next(60_000).data())


def overwrite(current, log_id, offset, data):
    with (current / f"{log_id:x}.log").open("r+b") as file:
        file.seek(offset)
        file.write(data)


def damage_logs(current, ledger_ids):
    """`current` of the ledger directory of a stopped bookie."""
    first, middle, last, in_head, in_log = ledger_ids
    directory = BookieDirectory(current)
    places = {each: list(directory.locations(each, 0, ENTRIES)) for each in ledger_ids}
    directory.close()
    assert [len(each) for each in places.values()] == [ENTRIES] * len(ledger_ids)
    for ledger_id, entry_id, within in (
        (first, 0, 60),  # after the digest's head: only the digest shows it
        (middle, ENTRIES // 2, 60),
        (last, ENTRIES - 1, 60),
        (in_head, 3, 0),  # the bookie sees that this is not the entry
    ):
        _entry, log_id, offset = places[ledger_id][entry_id]
        overwrite(current, log_id, offset + within, b"\x55\xaa")
    # The records of three entries, with their lengths.
    _entry, log_id, offset = places[in_log][7]
    overwrite(current, log_id, offset - 4, bytes(places[in_log][10][2] - offset))


def damage_index(current, ledger_id):
    """The same. Some rows point to other entries."""
    index = RocksIndex(str(current))
    batch = index.new_batch()
    for entry_id in MISLED:
        wrong = index.location(ledger_id, entry_id + len(MISLED))
        batch.put(pack_location_key(ledger_id, entry_id), pack_u64(wrong))
    index.write_locations(batch)
    index.sync()
    index.close()


def require_whole(current, ledger_ids):
    """Every entry is where the index says, and intact. The bookie is stopped."""
    directory = BookieDirectory(current)
    for ledger_id in ledger_ids:
        entries = dict(directory.entries(ledger_id, 0, ENTRIES))
        assert sorted(entries) == ALL
        for entry_id, body in entries.items():
            Digest(DigestType.CRC32C).verify(body, ledger_id, entry_id)
    directory.close()


async def until_no_marks(socket_path):
    store = await SocketStore.open(socket_path, _SESSION_S)
    changed = trio.Event()
    stop = store.watch(MARKS_ROOT, lambda _path: changed.set())
    try:
        while await store.children(MARKS_ROOT):
            await changed.wait()
            changed = trio.Event()
    finally:
        stop()
        await store.aclose()


async def test_copies_damaged_anywhere_are_read_around_found_and_repaired(tmp_path):
    data, copy = tmp_path / "data", tmp_path / "copy"
    directories = {
        bookie_name(number): data / bookie_directory(number) / "ledgers" / "current"
        for number in (1, 2)
    }
    async with a_machine(data, Output(), autoRecoveryDaemonEnabled="false") as running:
        for topic in TOPICS:
            await in_thread(send, running.urls[0], topic, range(ENTRIES))
        told = [await in_thread(layouts, running.urls[1], topic) for topic in TOPICS]
        ledgers = [each["ledgers"][0] for each in told]
    *in_logs, in_index = [each["ledgerId"] for each in ledgers]
    await in_thread(damage_logs, directories[bookie_name(2)], in_logs)
    asked_first = ledgers[5]["ensembles"][0]["bookies"][in_index % 2]
    await in_thread(damage_index, directories[asked_first], in_index)
    damaged_logs = {(each, bookie_name(2)) for each in in_logs}
    damaged_rows = {(in_index, asked_first)}
    await in_thread(shutil.copytree, data, copy)

    async with a_machine(copy, output := Output(), auditorPeriodicCheckInterval="0") as running:
        found = await in_thread(read_from, running.urls[0], TOPICS[5], in_index, MISLED[1])
        assert found == MISLED[1]
        marked = rf"damaged copy marked for repair .*entry_id=1[0-2] ledger_id={in_index}"
        await eventually(lambda: output.found(marked), SECONDS_MAX)
        assert await read_all(running) == [ALL] * len(TOPICS)
        await until_no_marks(socket_path_in(copy))
        assert missed_copies(output) <= damaged_logs | damaged_rows
    copied = copy / directories[asked_first].relative_to(data)
    await in_thread(require_whole, copied, [in_index])

    async with a_machine(data, output := Output()) as running:
        checked = r"copies of all ledgers checked +ledgers_marked=(\d+)"
        await eventually(lambda: output.found(checked), SECONDS_MAX)
        await until_no_marks(socket_path_in(data))
        by_audit = missed_copies(output)
        assert by_audit in (damaged_logs, damaged_logs | damaged_rows)
        assert output.found(checked) == [str(len(by_audit))]
        assert await read_all(running) == [ALL] * len(TOPICS)
    repaired = [ledger_id for ledger_id, _ in by_audit]
    for current in directories.values():
        await in_thread(require_whole, current, repaired)
