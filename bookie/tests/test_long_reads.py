"""A read of thousands of small entries leaves turns to others while they are looked for."""

from __future__ import annotations

import trio

from bookie.reader import FOUND_PER_SLICE
from bookie.tests.conftest import KEY, RecordingSink, entry

SLICES = 4
COUNT = SLICES * FOUND_PER_SLICE


class Turns(trio.abc.Instrument):
    """Counts the passes of the event loop."""

    def __init__(self):
        self.count = 0

    def before_io_wait(self, timeout):
        self.count += 1


async def test_others_have_their_turn_after_every_slice(machine):
    sink = RecordingSink()
    async with machine.running() as bookie:
        for entry_id in range(COUNT):
            bookie.add_entry(1, entry_id, entry(1, entry_id), KEY, 0, sink)
        await sink.wait_for(COUNT)
        turns = Turns()
        trio.lowlevel.add_instrument(turns)
        found = await bookie.read_batch(1, 0, COUNT, 1 << 20)
        trio.lowlevel.remove_instrument(turns)
        assert turns.count >= SLICES
        assert found == [bytes(b"".join(entry(1, number))) for number in range(COUNT)]
