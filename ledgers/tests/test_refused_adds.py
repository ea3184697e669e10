"""Adds that a bookie has no room for: sent again to the same ledger, in order, without a storm."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from bookie.api import Status
from ledgers.awaited_ledger import RUN_BYTES_MAX, AwaitedLedger, runs_of
from ledgers.errors import LedgerError
from ledgers.held_adds import DELAY_FIRST_S, DELAY_MAX_S, WINDOW_MAX, HeldAdds
from ledgers.tests.test_ledgers import World, settle


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans()), max_size=80))
def test_every_held_entry_is_sent_exactly_once_per_refusal_and_lowest_first(steps):
    held = HeldAdds()
    waiting = set()
    next_id = 0
    for count, is_refused in steps:
        held.hold(next_id, count)
        waiting |= set(range(next_id, next_id + count))
        next_id += count
        window = [e for first, n in held.take_window() for e in range(first, first + n)]
        assert window == sorted(waiting)[: len(window)]
        assert bool(window) == bool(waiting)
        waiting -= set(window)
        if is_refused and window:
            held.refused(window[-1], 1)
            waiting.add(window[-1])
            assert DELAY_FIRST_S <= held.delay_s() <= DELAY_MAX_S
        else:
            assert held.delay_s() == 0
        assert len(held) == len(waiting)


def test_no_turn_sends_more_than_a_window_again_however_much_was_refused():
    """It was half of everything that was held."""
    held = HeldAdds()
    held.refused(0, 100_000)
    held.delay_s()
    sizes = []
    while held:
        sizes.append(sum(count for _, count in held.take_window()))
        assert held.delay_s() == 0
    assert sum(sizes) == 100_000
    assert max(sizes) == WINDOW_MAX


async def test_refused_adds_are_sent_again_to_the_same_ledger(autojump_clock):
    world = World()
    writer = await world.writer()
    full = True

    def status(_ledger_id, entry_id):
        return Status.TOO_MANY_REQUESTS if full and entry_id >= 3 else Status.OK

    world.bookie.add_status = status
    for number in range(10):
        writer.add(b"%d" % number)
    await settle()
    assert world.recorder.confirmed == [(2, 3)]
    assert world.recorder.delays == [DELAY_FIRST_S]
    for number in range(10, 200):  # held back: nothing is sent while the bookie is full
        writer.add(b"%d" % number)
    await settle()
    assert world.bookie.adds == 10
    full = False
    writer.retry()
    await settle()
    assert world.recorder.confirmed[-1][0] == 199
    assert world.recorder.failures == []
    writer.add(b"200")
    await settle()
    assert world.bookie.adds == 201 + 7
    await writer.close()
    reader = await world.client().reader(writer.ledger_id)
    found = []
    while len(found) < 201:
        found += await reader.read(len(found), 200)
    assert found == [b"%d" % number for number in range(201)]


@pytest.mark.parametrize("seed", range(30))
async def test_an_entry_refused_between_others_is_not_overtaken(seed):
    rng = random.Random(seed)
    world = World()
    writer = await world.writer()
    world.bookie.add_status = lambda _ledger_id, _entry_id: (
        Status.TOO_MANY_REQUESTS if rng.random() < 0.5 else Status.OK
    )
    for number in range(40):
        writer.add(b"%d" % number)
        if rng.random() < 0.3:
            await settle()
    while writer.last_add_confirmed < 39:
        await settle()
        if world.recorder.delays:
            world.recorder.delays.clear()
            writer.retry()
    confirmed = [entry_id for entry_id, _ in world.recorder.confirmed]
    assert confirmed == sorted(set(confirmed))
    await writer.close()
    stored = await world.client().metadata_of(writer.ledger_id)
    assert (stored.last_entry_id, stored.length) == (39, 10 + 60)


async def test_a_bookie_that_stays_full_is_asked_about_once_a_second(autojump_clock):
    """5.2 million adds were refused in such a run, and 800 ledgers made."""
    world = World()
    world.bookie.add_status = lambda *_: Status.TOO_MANY_REQUESTS
    ledger = await AwaitedLedger.create(world.client(), {}, "ledger")
    with trio.move_on_after(60):
        await ledger.append([b"x"] * 1000)
    assert world.bookie.adds < 1000 + 200
    assert not ledger.failed
    world.bookie.add_status = lambda *_: Status.OK
    await ledger.append([b"y"])
    assert ledger.confirmed == 1000


async def test_a_ledger_that_fails_while_adds_are_held_says_so(autojump_clock):
    world = World()
    world.bookie.add_status = lambda *_: Status.TOO_MANY_REQUESTS
    ledger = await AwaitedLedger.create(world.client(), {}, "ledger")
    async with trio.open_nursery() as nursery:

        async def append():
            with pytest.raises(LedgerError, match="FENCED"):
                await ledger.append([b"x"] * 10)

        nursery.start_soon(append)
        await settle()
        world.bookie.fenced.add(ledger.ledger_id)
    assert ledger.failed


def test_what_is_appended_together_is_written_as_one_run_within_its_bound():
    together = [b"names", b"positions", b"commit"]
    assert list(runs_of(together)) == [together]
    half = bytes(RUN_BYTES_MAX // 2)
    larger = half + half + b"x"
    entries = [half, half, b"x", larger, b"y"]
    assert list(runs_of(entries)) == [[half, half], [b"x"], [larger], [b"y"]]
    assert list(runs_of([])) == []
