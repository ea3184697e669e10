"""What the connections of a bookie hold together is bounded, and waiting costs next to nothing."""

from __future__ import annotations

from contextlib import AsyncExitStack
from struct import pack

import trio

from bookie.net.server import BookieServerConfig
from bookie.net.tests.test_server import batch, fill, peer_of, read, served_bookie
from bookie.tests.conftest import wait_until, whole
from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v3
from runtime.testing.conditions import SECONDS_MAX

KB = 1024
FRAME = 64 * KB
BOUND = 256 * KB
CONFIG = BookieServerConfig(frame_size_max=FRAME, held_bytes_max=BOUND)


async def test_unfinished_frames_of_all_connections_are_bounded_and_a_neighbour_is_served():
    async with AsyncExitStack() as stack:
        bookie, server = await stack.enter_async_context(served_bookie(CONFIG))
        await fill(bookie, 1, 1)
        for _ in range(12):
            peer = await stack.enter_async_context(peer_of(server))
            await peer.send(pack(">I", FRAME), bytes(40 * KB))
        await wait_until(lambda: server.statistics.connections_given_up > 0)
        assert server.held.held_bytes <= BOUND
        neighbour = await stack.enter_async_context(peer_of(server))
        assert (await neighbour.ask(read(1, 0))).body == whole(1, 0)


async def test_answers_that_no_peer_takes_are_bounded_in_all():
    config = BookieServerConfig(held_bytes_max=16 << 20)
    payload = bytes(500_000)
    async with AsyncExitStack() as stack:
        bookie, server = await stack.enter_async_context(
            served_bookie(config, dbStorage_writeCacheMaxSizeMb=16)
        )
        await fill(bookie, 1, 10, payload)
        for _ in range(8):
            peer = await stack.enter_async_context(peer_of(server))
            await peer.send(*[batch(1, 0, 10, 5 << 20)] * 4)
        await wait_until(lambda: server.statistics.connections_given_up > 0)
        assert server.held.held_bytes <= 16 << 20
        neighbour = await stack.enter_async_context(peer_of(server))
        assert (await neighbour.ask(read(1, 0))).body == whole(1, 0, payload)
    assert server.held.held_bytes == 0


def poll(txn_id):
    return v3.encode_request(m.ReadRequest(1, -1, 0, b"", txn_id, 5, 30_000, True))


async def test_long_polls_read_nothing_while_nothing_changes_and_end_with_their_connection():
    async with served_bookie() as (bookie, server):
        await fill(bookie, 1, 2)
        async with peer_of(server, 3) as peer:
            await peer.send(*map(poll, range(16)))
            await wait_until(lambda: server.statistics.reads_pending == 16)
            # One look at the beginning, for each.
            await wait_until(lambda: bookie.statistics().reads >= 16)
            reads = bookie.statistics().reads
            await trio.sleep(0.35)
            assert bookie.statistics().reads == reads
        with trio.fail_after(SECONDS_MAX):
            await wait_until(lambda: server.statistics.connections == 0)
        assert server.statistics.reads_pending == 0


async def test_a_fence_ends_long_polls():
    async with served_bookie(served=lambda bookie: bookie) as (bookie, server):
        await fill(bookie, 1, 2)
        async with peer_of(server, 3) as peer:
            await peer.send(poll(1))
            await wait_until(lambda: server.statistics.reads_pending == 1)
            await bookie.fence_ledger(1, b"k" * 20)
            answer = await peer.answer()
            assert (answer.txn_id, answer.status, answer.max_lac, answer.body) == (1, m.OK, 0, b"")


async def test_a_chunk_of_small_requests_is_answered_in_turns():
    """A neighbour is answered before all of them are."""
    count = 5_000
    async with served_bookie() as (bookie, server):
        await fill(bookie, 1, 1)
        async with peer_of(server, 3) as peer, peer_of(server) as neighbour:
            await neighbour.ask(read(1, 0))
            await peer.send(v3.encode_request(m.StartTlsRequest(1)) * count)
            await wait_until(lambda: server.statistics.requests_refused)
            await neighbour.ask(read(1, 0))
            assert server.statistics.requests_refused < count
            for _ in range(count):
                await peer.answer()
