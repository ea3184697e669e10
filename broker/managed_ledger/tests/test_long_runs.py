"""A run of thousands of small entries is made in slices."""

import trio

from broker.ground.entry import entries_read
from broker.managed_ledger import backlog_reader
from broker.managed_ledger.tests.world import World, append_run, open_ledger
from protocol.position import LATEST

PER_SLICE = backlog_reader.ENTRIES_PER_SLICE
COUNT = 4 * PER_SLICE


async def test_no_turn_makes_more_entries_than_a_slice(autojump_clock, monkeypatch):
    made = [0]

    def noted_entries(ledger_id, first_entry_id, payloads):
        made[-1] += len(payloads)
        return entries_read(ledger_id, first_entry_id, payloads)

    class Turns(trio.abc.Instrument):
        def before_io_wait(self, timeout):
            made.append(0)

    async with World().broker() as factory:
        ledger = await open_ledger(factory)
        await ledger.open_cursor("s", LATEST)
        payloads = [b"%d" % number for number in range(COUNT)]
        append_run(ledger, *payloads)
        await ledger.listener.until(COUNT)
        await trio.sleep(60)
        turns = Turns()
        trio.lowlevel.add_instrument(turns)
        monkeypatch.setattr(backlog_reader, "entries_read", noted_entries)
        found = await ledger.read(ledger.first_position, COUNT, 1 << 20)
        trio.lowlevel.remove_instrument(turns)
    assert [entry.data for entry in found] == payloads
    assert [entry.position[1] for entry in found] == list(range(COUNT))
    assert [each for each in made if each] == [PER_SLICE] * 4
