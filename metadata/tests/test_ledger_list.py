"""All ledgers of a store: other tasks run while their names are read."""

from __future__ import annotations

import trio

from metadata.ledger_list import LEDGERS_PER_SLICE, live_ledgers
from metadata.memory_store import MemoryStore
from protocol.bookkeeper.paths import ledger_path

SLICES = 4


class Rounds(trio.abc.Instrument):
    """Counts the rounds of the event loop."""

    def __init__(self):
        self.count = 0

    def before_io_wait(self, timeout):
        self.count += 1


async def rounds_of_a_list(count):
    store = MemoryStore()
    for ledger_id in range(count):
        await store.put(ledger_path(ledger_id), b"", None)
    rounds = Rounds()
    trio.lowlevel.add_instrument(rounds)
    found = await live_ledgers(store)
    trio.lowlevel.remove_instrument(rounds)
    assert found == set(range(count))
    return rounds.count


async def test_others_have_their_turn_after_every_slice_of_ledgers():
    few = await rounds_of_a_list(1)
    assert await rounds_of_a_list(SLICES * LEDGERS_PER_SLICE) >= few + SLICES - 1
