"""One bookie of a ledger answers what it should not. The ledger goes on with the others, and
nothing that was confirmed is lost."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
from structlog.testing import capture_logs

from bookie.api import Status
from bookie.tests.conftest import wait_until
from ledgers.tests.lying_bookie import added, lying_bookie, restated
from ledgers.tests.test_cluster_over_tcp import QUICK, payload, world_of
from protocol.bookkeeper import v2
from protocol.bookkeeper.paths import available_path

BIG = 2**63 - 1
COUNT = 40
SIZES = [(3, 3, 2), (2, 2, 2)]


@asynccontextmanager
async def world_with_a_liar(sizes):
    """Three good bookies, and one that gets a place in every new ledger."""
    async with world_of(3, sizes, QUICK) as world, lying_bookie() as (liar, bookie_id):
        await world.store.put_ephemeral(available_path(bookie_id), b"")
        pool = world.pool
        await wait_until(lambda: bookie_id in pool.writable)
        pool.writable = tuple(each for each in pool.writable if each != bookie_id)
        pool.choose = lambda size, quorum, groups=None: (bookie_id, *pool.writable)[:size]
        yield world, liar


async def written(world):
    """A writer that has confirmed `COUNT` entries."""
    writer, recorder = await world.writer()
    for first in range(0, COUNT, 10):
        writer.add_run([payload(number) for number in range(first, first + 10)])
        await trio.lowlevel.checkpoint()
    await recorder.wait_for(COUNT - 1)
    assert recorder.failures == []
    return writer


def problems(logs):
    """What was logged with a traceback."""
    return [each for each in logs if "exc_info" in each]


ADD_LIES = {
    "of the next entry": lambda ledger, entry: added(ledger, entry + 1),
    "of entry -1": lambda ledger, entry: added(ledger, -1),
    "of the largest entry": lambda ledger, entry: added(ledger, BIG),
    "of ledger -1": lambda ledger, entry: added(-1, entry),
    "twice": lambda ledger, entry: 2 * added(ledger, entry),
    "half": lambda ledger, entry: added(ledger, entry)[:13],
    "only to odd entries": lambda ledger, entry: added(ledger, entry) if entry % 2 else b"",
    "of an unknown operation": lambda ledger, entry: added(ledger, entry, operation=9),
    "of version 3": lambda ledger, entry: added(ledger, entry, version=3),
    "of a read": lambda ledger, entry: v2.encode_read_response_head(0, ledger, entry),
    "authentication": lambda ledger, entry: v2.encode_auth_response("x", b"y"),
    "a negative size": lambda ledger, entry: b"\xff\xff\xff\xff",
    "an enormous size": lambda ledger, entry: b"\x7f\x00\x00\x00",
} | {
    f"status {status}": lambda ledger, entry, status=status: added(ledger, entry, status)
    for status in (1, 2, 100, 101, 103, 105, 107, 3, 108, 2**32 - 1)
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("lie", ADD_LIES.values(), ids=ADD_LIES)
async def test_wrong_answers_to_adds_cost_a_bookie_its_place(lie, sizes):
    with capture_logs() as logs:
        async with world_with_a_liar(sizes) as (world, liar):
            liar.on_add = lie
            writer = await written(world)
            await writer.close()
            expected = [payload(number) for number in range(COUNT)]
            assert await world.content(writer.ledger_id) == expected
    assert problems(logs) == []


@pytest.mark.parametrize("greeting", [b"\x00\x4f\x00\x00" + bytes(1 << 16), 1000 * added(1, 1)])
async def test_a_bookie_that_sends_without_end_costs_its_connection(greeting):
    async with world_with_a_liar((2, 2, 2)) as (world, liar):
        liar.greeting = greeting
        writer = await written(world)
        await writer.close()
        assert len(await world.content(writer.ledger_id)) == COUNT


READ_LIES = {
    "nothing": lambda body, is_last: None,
    "an empty entry": lambda body, is_last: (Status.OK, b""),
    "a short entry": lambda body, is_last: (Status.OK, body[:31]),
    "only a head": lambda body, is_last: (Status.OK, body[:35]),
    "a wrong digest": lambda body, is_last: (Status.OK, body[:33] + b"zz" + body[35:]),
    "another entry": lambda body, is_last: (Status.OK, restated(body, entry_id=BIG)),
    "another ledger": lambda body, is_last: (Status.OK, restated(body, ledger_id=77)),
} | {
    f"{confirmed} is confirmed": lambda body, is_last, confirmed=confirmed: (
        Status.OK,
        restated(body, confirmed=confirmed),
    )
    for confirmed in (COUNT, 500, BIG, -2, -BIG)
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("lie", READ_LIES.values(), ids=READ_LIES)
async def test_recovery_goes_by_the_bookies_that_tell_the_truth(lie, sizes):
    with capture_logs() as logs:
        async with world_with_a_liar(sizes) as (world, liar):
            writer = await written(world)
            liar.on_read = lie
            closed = await world.client().recover(writer.ledger_id)
            assert closed.last_entry_id == COUNT - 1
            expected = [payload(number) for number in range(COUNT)]
            assert await world.content(writer.ledger_id) == expected
    assert problems(logs) == []
