"""Very many consumers at once: all are answered, and an administrator can still read the page."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack

from broker.topics.broadcast.tests.peer import (
    BROADCAST,
    EXCLUSIVE,
    SHARED,
    TOPIC,
    broker,
    peer,
    subscription_of,
)
from broker.topics.broadcast.tests.test_end_to_end import ADMIN, call, settled
from protocol import client
from protocol import pulsar_api_pb2 as pb

SHOWN_MAX = 20
PAGE_BYTES_MAX = 64 * 1024


async def join_as_a_client_does(connection, first, count):
    """Lookup, partition metadata, SUBSCRIBE and FLOW of each, pipelined; ids of the requests."""
    asked, frames = [], []
    for number in range(first, first + count):
        lookup, metadata, subscribe = (connection.codec.next_request_id() for _ in range(3))
        asked += [lookup, metadata, subscribe]
        fields = {"consumer_name": f"v{number}", "metadata": BROADCAST}
        frames += [
            client.partitioned_metadata(TOPIC, metadata),
            client.lookup(TOPIC, lookup),
            client.subscribe(TOPIC, "all", number, subscribe, SHARED, **fields),
            client.flow(number, 1000),
        ]
    await connection.send(*frames)
    return asked


async def storm(connections, consumers_of_each):
    """All join at once on a topic that is not open yet; all are answered and served."""
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(broker())
        peers = [await stack.enter_async_context(peer(running)) for _ in range(connections)]
        asked = {}
        for number, each in enumerate(peers):
            first = number * consumers_of_each
            asked[each] = await join_as_a_client_does(each, first, consumers_of_each)
        for each, requests in asked.items():
            await each.until(lambda each=each, r=requests: each.answers.keys() >= set(r), 60)
            kinds = {answer.type for answer in each.answers.values()}
            assert kinds == {
                pb.BaseCommand.SUCCESS,
                pb.BaseCommand.LOOKUP_RESPONSE,
                pb.BaseCommand.PARTITIONED_METADATA_RESPONSE,
            }
        publisher = await stack.enter_async_context(peer(running, producer=True))
        await publisher.publish(b"0", b"1")
        for number, each in enumerate(peers):
            first = number * consumers_of_each
            mine = range(first, first + consumers_of_each)
            await each.until(
                lambda each=each, mine=mine: all(len(each.received[one]) == 2 for one in mine), 60
            )
            assert all(each.payloads(one) == [b"0", b"1"] for one in mine)


async def test_a_storm_over_few_connections():
    await storm(connections=4, consumers_of_each=750)


async def test_a_storm_over_very_many_connections():
    await storm(connections=300, consumers_of_each=1)


async def test_statistics_over_http_say_who_is_slow_and_stay_short():
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(broker())
        publisher = await stack.enter_async_context(peer(running, producer=True))
        fast = await stack.enter_async_context(peer(running))
        slow = await stack.enter_async_context(peer(running))
        fast.acks = True
        await fast.subscribe(*((one, f"v{one}") for one in range(2_000)), sub_type=EXCLUSIVE)
        await slow.subscribe((1, "lags most"), flow=2)
        await slow.subscribe((2, "never acknowledges"))
        await slow.subscribe((3, "ordinary"), subscription="plain", metadata={}, flow=0)
        await publisher.publish(*(b"%d" % number for number in range(8)))
        await fast.until(lambda: all(len(fast.received[one]) == 8 for one in range(2_000)), 60)
        await slow.until(lambda: len(slow.received[1]) == 2 and len(slow.received[2]) == 8)
        first = slow.received[2][0].message_id
        await slow.send(client.ack(2, [first], cumulative=True))
        subscription = subscription_of(running)
        await settled(lambda: subscription.acks.count == 8 * 2_000 + 1, 60)

        page = await call(running, "GET", f"{ADMIN}/stats")
        assert len(page) < PAGE_BYTES_MAX
        shown = json.loads(page)["subscriptions"]
        mine = shown["all"]
        assert shown["plain"].keys() <= mine.keys()
        assert (mine["type"], mine["msgBacklog"], mine["consumersCount"]) == ("Broadcast", 8, 2_002)
        names = [each["consumerName"] for each in mine["consumers"]]
        assert len(names) <= SHOWN_MAX
        assert names[:2] == ["lags most", "never acknowledges"]
        assert mine["whyNotDispatching"] == "1 consumers without permits"
        broadcast = mine["broadcast"]
        assert (broadcast["consumersConnected"], broadcast["laggards"]) == (2_002, 1)
        assert (broadcast["slowestBacklog"], broadcast["fastestBacklog"]) == (8, 0)
        assert broadcast["slowestPosition"] < broadcast["fastestPosition"]
        internal = await call(running, "GET", f"{ADMIN}/internalStats")
        assert len(internal) < PAGE_BYTES_MAX
        metrics = await call(running, "GET", "/metrics/")
        assert "v1999" not in metrics
        assert "lags most" not in metrics
