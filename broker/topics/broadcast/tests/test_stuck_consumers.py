"""Consumers that stop: others notice nothing, they miss nothing, storage is freed in the end."""

from __future__ import annotations

from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import trio

from broker.topics.broadcast.tests.peer import (
    BROADCAST,
    EXCLUSIVE,
    TOPIC,
    Peer,
    broker,
    peer,
)
from broker.topics.broadcast.tests.test_end_to_end import (
    ADMIN,
    call,
    settled,
    subscription_of,
)
from protocol import client

SMALL_LEDGERS = {
    "managedLedgerMaxEntriesPerLedger": 10,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "broadcastSnapshotIntervalMillis": 50,
}
SECOND_OF_MINUTES = 1 / 60
MESSAGES = [b"%03d" % number + bytes(10_000) for number in range(60)]


def ledger_count(running):
    return len(running.service.topics[TOPIC].ledger.ledger_ids)


async def all_received(peers, consumers):
    count = len(MESSAGES)
    for each in peers:
        await each.until(
            lambda each=each: all(len(each.received[one]) >= count for one in consumers), 30
        )


async def test_one_percent_that_stops_costs_the_others_nothing_and_misses_nothing(tmp_path):
    """198 consumers at work; one gives 3 permits and no more, one never acknowledges."""
    settings = SMALL_LEDGERS | {"broadcastVirtualCursorRetentionMinutes": SECOND_OF_MINUTES}
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(broker(tmp_path, **settings))
        publisher = await stack.enter_async_context(peer(running, producer=True))
        peers = [await stack.enter_async_context(peer(running)) for _ in range(4)]
        for number, each in enumerate(peers):
            each.acks = True
            names = ((one, f"v{number}-{one}") for one in range(50 if number < 3 else 48))
            await each.subscribe(*names, sub_type=EXCLUSIVE)
        stuck = await stack.enter_async_context(peer(running))
        await stuck.subscribe((1, "few permits"), flow=3)
        await stuck.subscribe((2, "never acknowledges"))
        await publisher.publish(*MESSAGES)
        await all_received(peers, range(48))
        assert all(each.payloads(one) == MESSAGES for each in peers for one in range(48))
        assert stuck.payloads(1) == MESSAGES[:3]
        await all_received([stuck], [2])

        subscription = subscription_of(running)
        assert subscription.backlog_entries == len(MESSAGES)
        assert subscription.statistics().as_json()["broadcast"]["laggards"] == 1
        assert ledger_count(running) >= 6
        await stuck.send(client.flow(1, 1000))
        await all_received([stuck], [1])
        assert stuck.payloads(1) == MESSAGES
        ids = [message.message_id for message in stuck.received[1]]
        await stuck.send(client.ack(1, ids[-1:], cumulative=True))

        # The one that never acknowledged holds everything, until it is gone for long enough.
        await settled(
            lambda: subscription.cursors.acked[subscription.cursors.slot_of("few permits")] == 60
        )
        assert subscription.backlog_entries == len(MESSAGES)
        await stuck.stream.aclose()
        await settled(lambda: subscription.backlog_entries == 0)
        await settled(lambda: ledger_count(running) == 1)
        assert len(subscription.consumers) == 198


async def test_a_connection_that_does_not_read_gets_everything_when_it_does(tmp_path):
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(broker(tmp_path, **SMALL_LEDGERS))
        publisher = await stack.enter_async_context(peer(running, producer=True))
        reading = await stack.enter_async_context(peer(running))
        reading.acks = True
        await reading.subscribe(*((one, f"reads-{one}") for one in range(10)))
        url = urlsplit(running.broker_service_url)
        silent = Peer(await trio.open_tcp_stream(url.hostname, url.port))
        stack.push_async_callback(trio.aclose_forcefully, silent.stream)
        names = 50
        frames = [client.connect()]
        for one in range(names):
            fields = {"consumer_name": f"silent-{one}", "metadata": BROADCAST}
            frames.append(client.subscribe(TOPIC, "all", one, one, EXCLUSIVE, **fields))
            frames.append(client.flow(one, 1000))
        await silent.send(*frames)
        subscription = subscription_of(running)
        await settled(lambda: len(subscription.consumers) == 10 + names)
        await publisher.publish(*MESSAGES)
        await all_received([reading], range(10))
        assert all(reading.payloads(one) == MESSAGES for one in range(10))
        # It holds what the kernel and its own bound take, and no more.
        waiting = max(session.outbox.pending_bytes for session in running.service.connections.open)
        assert (
            0
            < waiting
            <= running.service.connections.limits.output_high_water_bytes + 2 * 1024 * 1024
        )

        stack.push_async_callback(silent.stream.aclose)
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(silent.run)
        silent.acks = True
        await all_received([silent], range(names))
        assert all(silent.payloads(one) == MESSAGES for one in range(names))
        await settled(lambda: subscription.backlog_entries == 0)
        nursery.cancel_scope.cancel()


async def test_what_is_expired_is_freed_although_somebody_never_acknowledges(tmp_path):
    """POST .../expireMessages acknowledges for all consumers and disconnects none."""
    async with (
        broker(tmp_path, **SMALL_LEDGERS) as running,
        peer(running, producer=True) as publisher,
        peer(running) as consumer,
    ):
        await consumer.subscribe((1, "never acknowledges"))
        await consumer.subscribe((2, "few permits"), flow=3)
        await publisher.publish(*MESSAGES)
        await all_received([consumer], [1])
        subscription = subscription_of(running)
        assert ledger_count(running) >= 6
        await call(running, "POST", f"{ADMIN}/subscription/all/expireMessages/60")
        await settled(lambda: subscription.backlog_entries == 0)
        await settled(lambda: ledger_count(running) == 1)
        assert consumer.closed == []
        await publisher.publish(b"new", first=len(MESSAGES))
        await consumer.until(lambda: consumer.payloads(1)[-1] == b"new")
        await consumer.send(client.flow(2, 10))
        await consumer.until(lambda: consumer.payloads(2) == [*MESSAGES[:3], b"new"])


async def test_what_is_not_old_enough_is_not_expired(tmp_path):
    async with (
        broker(tmp_path) as running,
        peer(running, producer=True) as publisher,
        peer(running) as consumer,
    ):
        await consumer.subscribe((1, "a"), flow=0)
        now_ms = int(running.service.clock.wall_ms())
        fresh = client.message(b"fresh", sequence_id=1, publish_time=now_ms)
        await publisher.publish(b"old")
        await publisher.send(client.send(1, 1, fresh))
        await publisher.until(lambda: len(publisher.receipts) == 2)
        await call(running, "POST", f"{ADMIN}/all_subscription/expireMessages/600")
        subscription = subscription_of(running)
        await settled(lambda: subscription.backlog_entries == 1)
        await consumer.send(client.flow(1, 10))
        await consumer.until(lambda: consumer.payloads(1) == [b"fresh"])
