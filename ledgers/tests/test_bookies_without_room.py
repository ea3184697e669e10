"""A bookie that stays without room stops a ledger only until another one has its place."""

from __future__ import annotations

import trio

from bookie.api import Status
from ledgers.tests.test_quorum_writer import World
from protocol.bookkeeper.paths import ledger_path

LONG_SECONDS = 60.0


async def retry_until(writer, recorder, confirmed):
    """Do what the owner of the writer does, until so much is confirmed or it has failed."""
    while writer.last_add_confirmed < confirmed and not recorder.failures:
        await trio.sleep(1.0)
        writer.retry()


async def three(nursery):
    """A ledger on two of three bookies, all of whose entries need both."""
    world = World(nursery, 3, (2, 2, 2))
    writer = await world.writer()
    return world, writer, list(writer.metadata.last_ensemble[1])


async def test_a_bookie_that_stays_without_room_loses_its_place(nursery, autojump_clock):
    world, writer, (full, other) = await three(nursery)
    world.bookies[full].add_status = lambda *_: Status.TOO_MANY_REQUESTS
    world.add(writer, 50)
    with trio.fail_after(LONG_SECONDS):
        await retry_until(writer, world.recorder, 49)
    assert not world.recorder.failures
    assert full not in writer.metadata.last_ensemble[1]
    assert other in writer.metadata.last_ensemble[1]
    await writer.close()
    world.check_copies(writer.ledger_id, writer.metadata, 49)


async def test_it_keeps_its_place_while_no_other_bookie_can_be_had(nursery, autojump_clock):
    world, writer, ensemble = await three(nursery)
    [spare] = set(world.bookies) - set(ensemble)
    del world.bookies[spare]
    world.bookies[ensemble[0]].add_status = lambda *_: Status.TOO_MANY_REQUESTS
    world.add(writer, 50)
    with trio.move_on_after(LONG_SECONDS):
        await retry_until(writer, world.recorder, 49)
    assert writer.last_add_confirmed == -1
    assert not world.recorder.failures
    world.bookies[ensemble[0]].add_status = lambda *_: Status.OK
    with trio.fail_after(LONG_SECONDS):
        await retry_until(writer, world.recorder, 49)
    assert list(writer.metadata.last_ensemble[1]) == ensemble


async def test_it_keeps_its_place_while_it_takes_an_entry_now_and_then(nursery, autojump_clock):
    world, writer, ensemble = await three(nursery)
    asked = []

    def one_in_ten(*_):
        asked.append(1)
        return Status.OK if len(asked) % 10 == 0 else Status.TOO_MANY_REQUESTS

    world.bookies[ensemble[0]].add_status = one_in_ten
    world.add(writer, 20)
    with trio.fail_after(20 * LONG_SECONDS):
        await retry_until(writer, world.recorder, 19)
    assert list(writer.metadata.last_ensemble[1]) == ensemble


async def test_refusals_of_entries_that_it_took_later_do_not_count(nursery, autojump_clock):
    world, writer, ensemble = await three(nursery)
    asked = []

    def every_other(*_):
        asked.append(1)
        return Status.OK if len(asked) % 2 == 0 else Status.TOO_MANY_REQUESTS

    world.bookies[ensemble[0]].add_status = every_other
    for entry_id in range(40):
        world.add(writer, 1)
        with trio.fail_after(LONG_SECONDS):
            await retry_until(writer, world.recorder, entry_id)
    assert list(writer.metadata.last_ensemble[1]) == ensemble


async def test_bookies_that_are_all_without_room_cost_few_changes(nursery, autojump_clock):
    world = World(nursery, 5, (2, 2, 2))
    writer = await world.writer()
    for bookie in world.bookies.values():
        bookie.add_status = lambda *_: Status.TOO_MANY_REQUESTS
    world.add(writer, 50)
    with trio.move_on_after(10 * LONG_SECONDS):
        await retry_until(writer, world.recorder, 49)
    assert not world.recorder.failures
    assert writer.last_add_confirmed == -1
    _, version = await world.tree.get(ledger_path(writer.ledger_id))
    assert version <= 3  # each spare bookie was tried once
    for bookie in world.bookies.values():
        bookie.add_status = lambda *_: Status.OK
    with trio.fail_after(LONG_SECONDS):
        await retry_until(writer, world.recorder, 49)
    await writer.close()
    world.check_copies(writer.ledger_id, writer.metadata, 49)
