"""Back-pressure: what is kept for bookies that are slow is bounded, and nothing is lost by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie.tests.conftest import wait_until
from ledgers.quorum_writer import BEHIND_BYTES_MAX
from ledgers.tests.test_cluster_over_tcp import CALM, world_of

BOUND_BYTES = 200_000
ENTRY_BYTES = 20_000
SMALL = replace(CALM, bytes_in_flight_max=BOUND_BYTES)
SLACK_BYTES = 2 * ENTRY_BYTES
"""The add that reaches the bound is still sent, and each has a head."""


def payload(number):
    return b"%08d" % number + bytes(ENTRY_BYTES - 8)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 2, 2), (3, 3, 2)])
async def test_slow_bookies_hold_entries_up_and_lose_neither_them_nor_their_places(sizes):
    async with world_of(sizes[0], sizes, SMALL) as world:
        writer, recorder = await world.writer()
        for node in world.nodes:
            node.gate.answers_late = True
        for number in range(60):
            writer.add(payload(number))
        in_flight = [world.pool.remote(node.bookie_id) for node in world.nodes]
        await wait_until(lambda: all(each.bytes_in_flight >= BOUND_BYTES for each in in_flight))
        assert all(each.bytes_in_flight <= BOUND_BYTES + SLACK_BYTES for each in in_flight)
        assert recorder.confirmed == []
        ensemble = writer.metadata.last_ensemble
        for node in world.nodes:
            node.gate.let_answers_go()
        await recorder.wait_for(59)
        assert recorder.failures == []
        assert writer.metadata.last_ensemble == ensemble
        await wait_until(lambda: world.pool.bytes_in_flight == 0)
        await writer.close()
        assert await world.content(writer.ledger_id) == [payload(n) for n in range(60)]


async def test_one_slow_bookie_keeps_a_bounded_part_of_the_ledger_in_memory():
    async with world_of(4, (3, 3, 2), SMALL) as world:
        writer, recorder = await world.writer()
        slow = world.node(writer.metadata.last_ensemble[1][0])
        slow.gate.answers_late = True
        count = 2 * BEHIND_BYTES_MAX // ENTRY_BYTES
        for number in range(count):
            writer.add(payload(number))
            await recorder.wait_for(number)
            kept = sum(len(each) for _, run in writer._runs for each in run)
            assert kept <= BEHIND_BYTES_MAX + BOUND_BYTES + SLACK_BYTES
        assert recorder.failures == []
        assert slow.bookie_id not in writer.metadata.last_ensemble[1]
        await writer.close()
        content = await world.content(writer.ledger_id)
        assert content == [payload(n) for n in range(count)]
