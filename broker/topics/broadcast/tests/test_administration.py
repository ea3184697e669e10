"""Administration of a broadcast over HTTP, and its effect on the consumers."""

from __future__ import annotations

import json

from broker.topics.broadcast.tests.peer import BROADCAST, EXCLUSIVE, TOPIC, broker, peer
from broker.topics.broadcast.tests.test_bad_input import refused
from broker.topics.broadcast.tests.test_end_to_end import (
    ADMIN,
    call,
    settled,
    subscription_of,
)
from protocol import client
from protocol import pulsar_api_pb2 as pb

ALL = f"{ADMIN}/subscription/all"
PARTITIONED = "/admin/v2/persistent/public/default/parts"


async def test_it_is_not_deleted_under_its_consumers_unless_forced():
    async with (
        broker() as running,
        peer(running, producer=True) as publisher,
        peer(running) as consumer,
    ):
        await consumer.subscribe((1, "a"))
        code, reason = await refused(running, "DELETE", ALL)
        assert (code, reason) == (412, "Subscription has active connected consumers")
        await publisher.publish(b"0")
        await consumer.until(lambda: consumer.payloads(1) == [b"0"])
        await call(running, "DELETE", f"{ALL}?force=true")
        await consumer.until(lambda: consumer.closed == [1])
        await publisher.publish(b"1", first=1)
        # Its client subscribes again by itself: to a new subscription, which begins at the tail.
        await consumer.subscribe((1, "a"))
        await publisher.publish(b"2", first=2)
        await consumer.until(lambda: consumer.payloads(1) == [b"0", b"2"])


async def test_skip_all_and_reset_to_a_time_reach_those_who_are_away():
    async with (
        broker() as running,
        peer(running, producer=True) as publisher,
        peer(running) as consumer,
    ):
        async with peer(running) as away:
            await away.subscribe((1, "away"), flow=0)
        await consumer.subscribe((1, "here"), sub_type=EXCLUSIVE, flow=0)
        subscription = subscription_of(running)
        await settled(lambda: len(subscription.consumers) == 1)
        times_ms = [1_000_000, 2_000_000, 3_000_000]
        for number, time_ms in enumerate(times_ms):
            message = client.message(b"%d" % number, sequence_id=number, publish_time=time_ms)
            await publisher.send(client.send(1, number, message))
        await publisher.until(lambda: len(publisher.receipts) == 3)
        assert subscription.backlog_entries == 3
        await call(running, "POST", f"{ALL}/skip_all")
        await settled(lambda: subscription.backlog_entries == 0)
        assert consumer.closed == []

        await call(running, "POST", f"{ALL}/resetcursor/{times_ms[1]}")
        assert consumer.closed == [1]
        assert subscription.backlog_entries == 2
        await consumer.subscribe((1, "here"), (2, "away"), sub_type=EXCLUSIVE)
        await consumer.until(lambda: all(consumer.payloads(one) == [b"1", b"2"] for one in (1, 2)))


async def test_what_an_administrator_moved_stays_moved_over_a_restart(tmp_path):
    async with (
        broker(tmp_path) as running,
        peer(running, producer=True) as publisher,
        peer(running) as consumer,
    ):
        await consumer.subscribe((1, "a"), (2, "b"), flow=0)
        await publisher.publish(b"0", b"1", b"2", b"3")
        await call(running, "POST", f"{ALL}/skip/2")
    async with (
        broker(tmp_path) as running,
        peer(running, producer=True),
        peer(running) as consumer,
    ):
        await consumer.subscribe((1, "a"), (2, "b"))
        await consumer.until(lambda: all(consumer.payloads(one) == [b"2", b"3"] for one in (1, 2)))


async def test_every_partition_of_a_topic_has_its_own():
    async with broker() as running, peer(running) as consumer:
        await call(running, "PUT", f"{PARTITIONED}/partitions", 3)
        await call(running, "PUT", f"{PARTITIONED}/subscription/all", {"properties": BROADCAST})
        topic = TOPIC.replace("areas", "parts")
        for number in range(6):
            request = consumer.codec.next_request_id()
            name, part = f"v{number // 3}", f"{topic}-partition-{number % 3}"
            fields = {"consumer_name": name}
            await consumer.send(
                client.subscribe(part, "all", number, request, EXCLUSIVE, **fields),
                client.flow(number, 10),
            )
            assert (await consumer.answer(request)).type == pb.BaseCommand.SUCCESS
        for partition in range(3):
            part = f"{topic}-partition-{partition}"
            answer = await consumer.ask(
                lambda request, part=part, partition=partition: client.producer(
                    part, partition, request
                )
            )
            assert answer.type == pb.BaseCommand.PRODUCER_SUCCESS
            message = client.message(b"%d" % partition)
            await consumer.send(client.send(partition, 0, message))
        await consumer.until(
            lambda: all(consumer.payloads(one) == [b"%d" % (one % 3)] for one in range(6))
        )
        shown = json.loads(await call(running, "GET", f"{PARTITIONED}/partitioned-stats"))
        mine = shown["subscriptions"]["all"]
        assert (mine["type"], mine["msgBacklog"]) == ("Broadcast", 3)
        await call(running, "POST", f"{PARTITIONED}/subscription/all/skip_all")
        shown = json.loads(await call(running, "GET", f"{PARTITIONED}/partitioned-stats"))
        assert shown["subscriptions"]["all"]["msgBacklog"] == 0
