"""A read of thousands of small entries leaves turns to others while it checks them."""

import trio
import trio.testing

from ledgers.ledger_reader import VERIFIED_PER_SLICE
from ledgers.tests.test_ledgers import World, settle

SLICES = 4
COUNT = SLICES * VERIFIED_PER_SLICE


class Turns(trio.abc.Instrument):
    """Counts the passes of the event loop."""

    def __init__(self):
        self.count = 0

    def before_io_wait(self, timeout):
        self.count += 1


async def turns_during(work):
    """The result, and how many passes the event loop made meanwhile."""
    turns = Turns()
    trio.lowlevel.add_instrument(turns)
    try:
        return await work(), turns.count
    finally:
        trio.lowlevel.remove_instrument(turns)


async def long_ledger(world):
    writer = await world.writer()
    for number in range(COUNT):
        writer.add(b"%d" % number)
    await settle()
    await writer.close()
    return await world.client().reader(writer.ledger_id)


async def test_others_have_their_turn_after_every_slice():
    reader = await long_ledger(World())
    few, turns_of_few = await turns_during(lambda: reader.read(0, VERIFIED_PER_SLICE - 1))
    assert few == [b"%d" % number for number in range(VERIFIED_PER_SLICE)]
    found, turns = await turns_during(lambda: reader.read(0, COUNT - 1))
    assert found == [b"%d" % number for number in range(COUNT)]
    assert turns == turns_of_few + SLICES - 1


async def test_what_is_before_a_damaged_entry_of_a_later_slice_is_read():
    world = World()
    reader = await long_ledger(world)
    damaged = 2 * VERIFIED_PER_SLICE + 1
    entries = world.bookie.ledgers[reader.ledger_id]
    entries[damaged] = entries[damaged][:-1] + b"?"
    assert await reader.read(1, COUNT - 1) == [b"%d" % number for number in range(1, damaged)]
