"""A recovery from several bookies reads entries at the same time, and few bytes of them."""

from __future__ import annotations

import random

import pytest
import trio

from bookie.api import FLAG_RECOVERY_ADD, LAST_ENTRY
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.tests.fake_bookie import FakeBookie
from ledgers.tests.test_ledgers import Recorder, settle
from metadata.memory_store import MemoryStore
from runtime.clock import SystemClock

SMALL = bytes(10)
LARGE = bytes(512 * 1024)
RUN_BYTES = 4 * 1024 * 1024
LATENCY_S = 0.01


class Meter:
    """Bytes of entries that bookies gave and that were not written again yet."""

    def __init__(self):
        self.held_bytes = 0
        self.most_bytes = 0
        self.read = []

    def gave(self, entry_id, body):
        self.read.append(entry_id)
        self.held_bytes += len(body)
        self.most_bytes = max(self.most_bytes, self.held_bytes)


class MeteredBookie(FakeBookie):
    """Answers after a while, and tells the meter of what it gives and takes."""

    def __init__(self, meter):
        super().__init__()
        self.meter = meter

    async def read_entry(self, ledger_id, entry_id, *, flags=0, master_key=b""):
        await trio.sleep(LATENCY_S)
        body = await super().read_entry(ledger_id, entry_id, flags=flags, master_key=master_key)
        if entry_id != LAST_ENTRY:
            self.meter.gave(entry_id, body)
        return body

    def add_entry(self, ledger_id, entry_id, body, master_key, flags, sink):
        if flags & FLAG_RECOVERY_ADD:
            self.meter.held_bytes = 0
        super().add_entry(ledger_id, entry_id, body, master_key, flags, sink)


async def recovered(entries, sizes=(3, 2, 2)):
    """The meter and the duration of a recovery that finds all entries unconfirmed."""
    meter = Meter()
    bookies = {f"b{number}": MeteredBookie(meter) for number in range(sizes[0])}
    config = LedgerClientConfig(
        ensemble_size=sizes[0], write_quorum_size=sizes[1], ack_quorum_size=sizes[2]
    )
    client = LedgerClient(MemoryStore(), bookies, config, SystemClock())
    writer = await client.create_ledger({}, Recorder())
    writer.add_run(entries)
    await settle()
    begun = trio.current_time()
    metadata = await client.recover(writer.ledger_id)
    duration = trio.current_time() - begun
    assert metadata.last_entry_id == len(entries) - 1
    assert metadata.length == sum(map(len, entries))
    reader = client.reader_of(writer.ledger_id, metadata)
    found = []
    while len(found) < len(entries):
        found += await reader.read(len(found), len(entries) - 1)
    assert found == entries
    return meter, duration


@pytest.mark.parametrize("sizes", [(3, 2, 2), (2, 2, 2)])
@pytest.mark.parametrize("small", [15, 31, 70])
async def test_large_entries_after_small_ones_are_not_all_in_memory_at_once(
    autojump_clock, small, sizes
):
    meter, _ = await recovered([SMALL] * small + [LARGE] * 40, sizes)
    assert meter.most_bytes < RUN_BYTES + 5 * len(LARGE)


@pytest.mark.parametrize("seed", range(8))
async def test_entries_of_any_sizes_are_recovered_within_the_size(autojump_clock, seed):
    rng = random.Random(seed)
    entries: list[bytes] = []
    for _ in range(5):
        largest = rng.choice([0, 100, 10_000, len(LARGE)])
        entries += [bytes(rng.randint(0, largest)) for _ in range(rng.randint(1, 40))]
    meter, _ = await recovered(entries)
    assert meter.most_bytes < RUN_BYTES + 5 * len(LARGE)


async def test_many_small_entries_are_read_at_the_same_time(autojump_clock):
    meter, duration = await recovered([SMALL] * 400)
    assert duration < LATENCY_S * 400 / 8
    assert len(meter.read) < 2 * 400


async def test_a_ledger_without_unconfirmed_entries_costs_one_read_per_bookie(autojump_clock):
    meter, duration = await recovered([])
    assert meter.read == []
    assert duration < LATENCY_S * 5
