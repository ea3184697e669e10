"""Members of statistics that follow what happens on the topic."""

import trio

from broker.http.tests.test_topic_layouts import publish
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from runtime.testing.conditions import SECONDS_MAX, eventually

T = "persistent/public/default"
FULL = "persistent://public/default"
ASKED = "getEarliestTimeInBacklog=true"


def earliest_of(stats):
    times = {
        name: row["earliestMsgPublishTimeInBacklog"] for name, row in stats["subscriptions"].items()
    }
    return stats["earliestMsgPublishTimeInBacklogs"], times


async def test_the_earliest_publish_time_of_each_backlog_is_read_when_it_is_asked_for(broker, http):
    await http("PUT", f"{T}/a")
    for name in ("behind", "done"):
        await http("PUT", f"{T}/a/subscription/{name}")
    assert earliest_of((await http("GET", f"{T}/a/stats?{ASKED}"))[1]) == (
        0,
        {"behind": -1, "done": -1},
    )
    await publish(broker, f"{FULL}/a", 3)
    assert await http("POST", f"{T}/a/subscription/done/skip_all") == (204, None)
    times = {"behind": c.PUBLISH_TIME_MS_DEFAULT, "done": -1}
    found = earliest_of((await http("GET", f"{T}/a/stats?{ASKED}"))[1])
    assert found == (c.PUBLISH_TIME_MS_DEFAULT, times)
    found = earliest_of((await http("GET", f"{T}/a/stats"))[1])
    assert found == (0, {"behind": 0, "done": 0})


async def test_the_earliest_publish_time_is_that_of_all_partitions(broker, http):
    await http("PUT", f"{T}/p/partitions", 3)
    await http("PUT", f"{T}/p/subscription/s")
    await publish(broker, f"{FULL}/p-partition-1", 3)
    _, whole = await http("GET", f"{T}/p/partitioned-stats?{ASKED}")
    assert earliest_of(whole) == (c.PUBLISH_TIME_MS_DEFAULT, {"s": c.PUBLISH_TIME_MS_DEFAULT})


async def test_the_consumed_entries_of_a_cursor_are_counted(broker, http):
    await http("PUT", f"{T}/c")
    for name in ("behind", "done"):
        await http("PUT", f"{T}/c/subscription/{name}")
    await publish(broker, f"{FULL}/c", 3)
    assert await http("POST", f"{T}/c/subscription/done/skip_all") == (204, None)
    _, shown = await http("GET", f"{T}/c/internalStats")
    consumed = {name: row["messagesConsumedCounter"] for name, row in shown["cursors"].items()}
    assert consumed == {"behind": 0, "done": 3}


async def converse(running, *steps):
    """Send the frames of each step, and wait for so many commands of its kind. The connection stays
    open for the caller."""
    host, _, port = running.broker_service_url.rpartition("/")[2].rpartition(":")
    codec = c.Client()
    stream = await trio.open_tcp_stream(host, int(port))
    with trio.fail_after(SECONDS_MAX):
        for frames, kind, count in steps:
            await stream.send_all(b"".join(frames))
            while count > 0:
                for command, _ in codec.receive(bytes(await stream.receive_some())):
                    count -= command.type == kind
    return stream


def two_chunks():
    """The frames of a message in two chunks, of producer 1."""
    whole = {"uuid": "u", "num_chunks_from_msg": 2, "total_chunk_msg_size": 2}
    chunks = [c.message(b"x", **whole, chunk_id=number) for number in range(2)]
    return [c.send(1, 0, chunk, is_chunk=True) for chunk in chunks]


async def test_chunks_that_were_published_are_counted(broker, http):
    topic = f"{FULL}/c"
    opened = [c.connect(), c.producer(topic, 1, 1)]
    async with await converse(
        broker,
        (opened, pb.BaseCommand.PRODUCER_SUCCESS, 1),
        (two_chunks(), pb.BaseCommand.SEND_RECEIPT, 2),
    ):
        for each in broker.service.topics[topic].access.producers.values():
            each.update_rates(1.0)
        stats = (await http("GET", f"{T}/c/stats"))[1]
        assert stats["msgChunkPublished"] is True
        assert [each["chunkedMessageRate"] for each in stats["publishers"]] == [2.0]
    await publish(broker, f"{FULL}/plain", 1)
    assert (await http("GET", f"{T}/plain/stats"))[1]["msgChunkPublished"] is False


async def test_chunks_that_were_delivered_are_counted(broker, http):
    types = ("Exclusive", "Failover", "Shared", "Key_Shared")
    for domain, all_types in (("persistent", types), ("non-persistent", types[:3])):
        topic = f"{domain}://public/default/chunks"
        opened = [
            c.subscribe(topic, name, number, number, getattr(pb.CommandSubscribe, name))
            for number, name in enumerate(all_types)
        ]
        flows = [c.flow(number, 10) for number in range(len(all_types))]
        async with await converse(
            broker,
            ([c.connect(), *opened], pb.BaseCommand.SUCCESS, len(all_types)),
            ([*flows, c.producer(topic, 1, 9)], pb.BaseCommand.PRODUCER_SUCCESS, 1),
            (two_chunks(), pb.BaseCommand.MESSAGE, 2 * len(all_types)),
        ):
            subscriptions = broker.service.topics[topic].subscriptions.values()
            for each in subscriptions:
                each.update_rates(broker.service.clock.now() + 1e-3)
            stats = (await http("GET", f"{domain}/public/default/chunks/stats"))[1]
            for name, row in stats["subscriptions"].items():
                [consumer] = row["consumers"]
                assert consumer["chunkedMessageRate"] == consumer["msgRateOut"] > 0, name
                assert row["chunkedMessageRate"] == int(row["msgRateOut"]), name


async def test_skipped_messages_are_not_delayed_any_more(broker, http):
    topic = f"{FULL}/d"
    due_ms = broker.service.clock.wall_ms() + 3_600_000
    delayed = [
        c.send(1, number, c.message(b"x", sequence_id=number, deliver_at_time=due_ms))
        for number in range(3)
    ]
    opened = [c.connect(), c.subscribe(topic, "s", 1, 1, pb.CommandSubscribe.Shared)]
    served = [c.flow(1, 100), c.producer(topic, 1, 2)]

    async def counts():
        row = (await http("GET", f"{T}/d/stats"))[1]["subscriptions"]["s"]
        return row["msgDelayed"], row["msgBacklog"], row["msgBacklogNoDelayed"]

    async with await converse(
        broker,
        (opened, pb.BaseCommand.SUCCESS, 1),
        (served, pb.BaseCommand.PRODUCER_SUCCESS, 1),
        (delayed, pb.BaseCommand.SEND_RECEIPT, 3),
    ):
        assert await counts() == (3, 3, 0)
        assert await http("POST", f"{T}/d/subscription/s/skip/1") == (204, None)
        assert await counts() == (2, 2, 0)
        assert await http("POST", f"{T}/d/subscription/s/skip_all") == (204, None)
        assert await counts() == (0, 0, 0)


def two_received(broker, topic, sub_type):
    """A conversation of a consumer that has got two messages and has no permits left."""
    begin = pb.CommandSubscribe.Earliest
    opened = [c.connect(), c.subscribe(topic, "s", 1, 1, sub_type, initialPosition=begin)]
    return converse(
        broker,
        (opened, pb.BaseCommand.SUCCESS, 1),
        ([c.flow(1, 2)], pb.BaseCommand.MESSAGE, 2),
    )


async def test_the_read_position_of_a_cursor_is_that_of_its_subscription(broker, http):
    topic = f"{FULL}/r"
    await publish(broker, topic, 5)

    async def shown():
        row = (await http("GET", f"{T}/r/internalStats"))[1]["cursors"]["s"]
        read = row["readPosition"].partition(":")[2]
        return read, row["numberOfEntriesSinceFirstNotAckedMessage"]

    for sub_type in (pb.CommandSubscribe.Shared, pb.CommandSubscribe.Exclusive):
        async with await two_received(broker, topic, sub_type):
            assert await shown() == ("2", 3)
        await eventually(lambda: not broker.service.topics[topic].subscriptions["s"].consumers)
    assert await http("POST", f"{T}/r/subscription/s/skip_all") == (204, None)
    assert await shown() == ("5", 1)


async def test_a_cursor_waits_if_its_subscription_has_read_all_and_would_send_more(broker, http):
    topic = f"{FULL}/w"
    await publish(broker, topic, 3)

    async def shown():
        internal = (await http("GET", f"{T}/w/internalStats"))[1]
        row = internal["cursors"]["s"]
        assert row["waitingReadOp"] == row["subscriptionHavePendingRead"]
        assert internal["waitingCursorsCount"] == row["waitingReadOp"]
        return row["waitingReadOp"], row["state"]

    for sub_type in (pb.CommandSubscribe.Shared, pb.CommandSubscribe.Exclusive):
        async with await two_received(broker, topic, sub_type) as stream:
            assert await shown() == (False, "NoLedger")
            await stream.send_all(c.flow(1, 2))
            row = broker.service.topics[topic].subscriptions["s"]
            await eventually(lambda row=row: row.read_position()[1] == 3)
            assert await shown() == (True, "NoLedger")
        await eventually(lambda: not broker.service.topics[topic].subscriptions["s"].consumers)
        assert await shown() == (False, "NoLedger")
