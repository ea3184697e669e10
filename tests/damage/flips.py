"""One flipped bit in a file that holds state: refused in one line, isolated, or without effect.

`python -m tests.damage.flips --places 300` fills a data directory with a server that is killed with
SIGKILL, then flips one bit at a random place of a copy, again and again, for each kind of file, and
opens what is left: metadata store and bookie, every node, every entry, before and after a garbage
collection. It prints a table; exit status 1: data was missing without a word, or an error was not
one of those that a user is told of.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import structlog
import trio

from bookie.api import BookieError, Status
from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.errors import StorageError
from ledgers.client import LedgerClient, LedgerClientConfig
from metadata.rocks_store import RocksStore
from metadata.store import MetadataUnavailable
from protocol.bookkeeper.digests import has_valid_crc
from runtime.clock import SystemClock
from tests.crash.load import quiet_client
from tests.server_process import VELA, ServerProcess

METADATA = "metadata"
JOURNAL = "bookkeeper/journal/current"
LEDGERS = "bookkeeper/ledgers/current"
KINDS = {
    f"{name} {kind}": f"{directory}/{pattern}"
    for name, directory in (
        ("metadata", METADATA),
        ("locations", f"{LEDGERS}/locations"),
        ("ledgers", f"{LEDGERS}/ledgers"),
    )
    for kind, pattern in (
        ("WAL", "*.log"),
        ("SST", "*.sst"),
        ("MANIFEST", "MANIFEST-*"),
        ("CURRENT", "CURRENT"),
        ("OPTIONS", "OPTIONS-*"),
    )
} | {
    "journal": f"{JOURNAL}/*.txn",
    "journal tail": f"{JOURNAL}/*.txn",
    "entry log": f"{LEDGERS}/*.log",
    "entry log header": f"{LEDGERS}/*.log",
    "entry log map": f"{LEDGERS}/*.log",
    "lastMark": f"{LEDGERS}/lastMark",
    "lastId": f"{LEDGERS}/lastId",
    "newestJournal": f"{LEDGERS}/newestJournal",
    "indexProgress": f"{LEDGERS}/indexProgress",
    "entryLogs": f"{LEDGERS}/entryLogs",
    "cookie": "bookkeeper/*/current/VERSION",
}
"""Which files are damaged, by the name in the table."""
SECONDS_MAX = 240.0
JOURNAL_ALIGNMENT = 4096


@final
@dataclass(frozen=True)
class Content:
    """Everything that a start finds."""

    nodes: dict[str, bytes] = field(default_factory=dict)
    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    fenced: frozenset[int] = frozenset()


@final
@dataclass(frozen=True)
class Outcome:
    """`kind`: refused, isolated, unchanged, or failed."""

    kind: str
    detail: str = ""


def fill(directory: Path) -> Path:
    """A data directory of a killed server, with acknowledged data in every kind of file."""
    configuration = directory / "often.conf"
    configuration.write_text("flushInterval=300\n")
    server = ServerProcess(directory, f"{VELA} --config {configuration}")
    try:
        for life in range(3):
            server.start()
            server.wait_ready(SECONDS_MAX)
            _publish(server, directory, life)
            if life:
                server.kill()
            else:
                os.kill(server.pid, signal.SIGTERM)  # which leaves entry logs with a map
            server.wait_ended()
    finally:
        server.kill()
    return directory / "data"


def _publish(server: ServerProcess, directory: Path, life: int) -> None:
    client = quiet_client(server.service_url, directory / "client.log")
    try:
        for number in range(8):
            topic = f"persistent://public/default/topic-{number}"
            consumer = client.subscribe(topic, f"subscription-{life}")
            producer = client.create_producer(topic)
            for message in range(60):
                producer.send(f"{life}:{number}:{message}:".encode() * 20)
            for _message in range(20):
                consumer.acknowledge(consumer.receive(10_000))
        # Until a checkpoint has brought most of it to the entry logs.
        mark = server.directory / "data" / LEDGERS / "lastMark"
        before = mark.read_bytes() if mark.exists() else b""
        deadline = time.monotonic() + SECONDS_MAX
        while (mark.read_bytes() if mark.exists() else b"") == before:
            assert time.monotonic() < deadline, "the server wrote no checkpoint"
            time.sleep(0.02)
        producer.send(b"only in the journal")
    finally:
        client.close()


def bookie_config(data: Path) -> BookieConfig:
    """As the server's, without work in the background."""
    return BookieConfig(
        journalDirectories=(str(data / "bookkeeper/journal"),),
        ledgerDirectories=(str(data / "bookkeeper/ledgers"),),
        flushInterval=3_600_000,
        gcWaitTime=3_600_000,
        journalPreAllocSizeMB=1,
    )


async def _read(data: Path, expected: Content | None) -> tuple[Content, list[str]]:
    """What a start finds, and what of it is an error although it was expected."""
    errors: list[str] = []
    store = await RocksStore.open(data / METADATA, may_create=expected is None)
    try:
        nodes: dict[str, bytes] = {}
        await _walk(store, "/", nodes)
        config = bookie_config(data)
        bookie = await Bookie.open(config)
        try:
            client = LedgerClient(
                store, {config.bookieId: bookie}, LedgerClientConfig(), SystemClock()
            )
            bookie.set_live_ledgers(client.live_ledgers)
            content = await _entries(bookie, nodes, expected, errors)
            await bookie.collect_garbage(major=True)
            again = await _entries(bookie, nodes, content, errors)
            live = await client.live_ledgers()
            lost = {key for key in content.entries if key[0] in live} - again.entries.keys()
            assert not lost, f"garbage collection deleted {sorted(lost)[:3]}"
            return again, errors
        finally:
            await bookie.aclose()
    finally:
        await store.aclose()


async def _walk(store: RocksStore, path: str, nodes: dict[str, bytes]) -> None:
    for name in await store.children(path):
        child = f"{path.rstrip('/')}/{name}"
        found = await store.get(child)
        if found is not None:
            nodes[child] = found[0]
        await _walk(store, child, nodes)


async def _entries(
    bookie: Bookie, nodes: dict[str, bytes], expected: Content | None, errors: list[str]
) -> Content:
    if expected is None:
        wanted = []
        for ledger_id in bookie.ledger_ids():
            wanted += [(ledger_id, entry) for entry in await bookie.list_entry_ids(ledger_id)]
    else:
        wanted = list(expected.entries)
    entries = {}
    for ledger_id, entry_id in wanted:
        try:
            body = await bookie.read_entry(ledger_id, entry_id)
        except BookieError as error:
            if error.status in (Status.NO_ENTRY, Status.NO_LEDGER):
                continue  # said to be absent: the caller compares
            errors.append(str(error))
            body = expected.entries[ledger_id, entry_id] if expected is not None else b""
        if expected is not None and not has_valid_crc(body):  # which every reader checks
            errors.append(f"digest of {ledger_id}:{entry_id}")
            body = expected.entries[ledger_id, entry_id]
        entries[ledger_id, entry_id] = body
    fenced = frozenset(h.ledger_id for h in bookie._handles.values() if h.fenced)
    return Content(nodes, entries, fenced)


def content_of(data: Path) -> Content:
    """Everything in an undamaged directory."""
    content, errors = trio.run(_read, data, None)
    assert not errors
    return content


def outcome_of(data: Path, name: str, expected: Content) -> Outcome:
    """What comes of a start on a directory with damage in the file `name`."""
    refusal: BaseException | None = None
    try:
        found, errors = trio.run(_read, data, expected)
    except* Exception as group:
        refusal = group
    while isinstance(refusal, BaseExceptionGroup):
        refusal = refusal.exceptions[0]
    if isinstance(refusal, StorageError | MetadataUnavailable):
        line = str(refusal)
        if "\n" in line or name not in line:
            return Outcome("failed", f"a refusal that does not say which file: {line}")
        return Outcome("refused", line)
    if refusal is not None:
        return Outcome("failed", f"{refusal!r}")
    if found.nodes != expected.nodes:
        return Outcome("failed", f"{len(found.nodes)} of {len(expected.nodes)} nodes, or others")
    missing = expected.entries.keys() - found.entries.keys()
    if missing:
        return Outcome("failed", f"said to be absent: {sorted(missing)[:3]}")
    if found.entries != expected.entries:
        return Outcome("failed", "other entries than were written")
    if not expected.fenced <= found.fenced:
        return Outcome("failed", "a fence is forgotten")
    return Outcome("isolated", errors[0]) if errors else Outcome("unchanged")


def places_of(name: str, content: bytes) -> range:
    """Where a file of this kind is damaged: anywhere, but in space that was reserved and holds
    nothing, or in one part of it."""
    if name == "entry log header":
        return range(28)
    if name == "entry log map":
        start = int.from_bytes(content[8:16], "big")
        return range(start, len(content)) if start else range(0)
    used = len(content.rstrip(b"\0"))
    if name == "journal tail":  # the last group, which is acknowledged and nowhere else
        return range((used - 1) // JOURNAL_ALIGNMENT * JOURNAL_ALIGNMENT, used)
    return range(max(1, used))


def flip_one(source: Path, name: str, expected: Content, rng: random.Random) -> Outcome:
    """One flipped bit in a file of this kind of one copy."""
    with tempfile.TemporaryDirectory(prefix="vela-damage-") as place:
        data = Path(place) / "data"
        shutil.copytree(source, data)
        found = [path for path in sorted(data.glob(KINDS[name])) if path.stat().st_size]
        if name == "journal tail":
            found = found[-1:]
        sizes = [len(places_of(name, path.read_bytes())) for path in found]
        (path,) = rng.choices(found, sizes)
        content = bytearray(path.read_bytes())
        offset = rng.choice(places_of(name, content))
        bit = rng.randrange(8)
        content[offset] ^= 1 << bit
        path.write_bytes(content)
        outcome = outcome_of(data, path.name, expected)
        where = f"{path.relative_to(data)} at {offset} bit {bit}"
        return Outcome(outcome.kind, f"{where}: {outcome.detail}")


def main() -> None:
    """See the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, default=300, help="per kind of file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds whose name contains this")
    options = parser.parse_args()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.CRITICAL
        ),  # what is refused is in the table
    )
    failed = False
    with tempfile.TemporaryDirectory(prefix="vela-damage-") as place:
        source = fill(Path(place))
        shutil.copytree(source, Path(place) / "whole")
        expected = content_of(Path(place) / "whole")
        print(f"{len(expected.nodes)} nodes, {len(expected.entries)} entries", flush=True)
        print("| file | places | refused | isolated | without effect | failed |")
        print("|---|---|---|---|---|---|", flush=True)
        for name in KINDS:
            if options.only not in name:
                continue
            rng = random.Random(f"{options.seed} {name}")
            outcomes = [flip_one(source, name, expected, rng) for _place in range(options.places)]
            counts = Counter(outcome.kind for outcome in outcomes)
            row = [counts[kind] for kind in ("refused", "isolated", "unchanged", "failed")]
            print(f"| {name} | {options.places} | {' | '.join(map(str, row))} |", flush=True)
            for outcome in outcomes:
                if outcome.kind == "failed":
                    failed = True
                    print(outcome.detail, file=sys.stderr, flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
