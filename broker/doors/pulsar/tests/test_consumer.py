"""Consumers over the wire: subscribing, acks, seek, questions, the end of topics."""

from __future__ import annotations

import json
from math import inf

import pytest
import trio
from crc32c import crc32c
from structlog.testing import capture_logs

from broker.doors.pulsar.tests.filled_topics import TOPIC, entries, filled
from broker.ground.slices import STEPS_PER_SLICE
from broker.net.tests.harness import T, running
from broker.topics.topic.errors import TopicBusy
from metadata.store import MetadataUnavailable
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually

E = pb.ServerError
S = pb.CommandSubscribe


async def test_ack_with_a_request_id_is_answered():
    async with running() as broker:
        await filled(broker)
        connection = await broker.connect()
        await connection.subscribe(TOPIC, permits=10, initialPosition=S.Earliest)
        await entries(connection, 5)
        await connection.send(c.ack(1, [(0, 0), (0, 1)], request_id=77))
        answer = await connection.expect(T.ACK_RESPONSE)
        assert (answer.request_id, answer.HasField("error")) == (77, False)
        await connection.send(c.ack(9, [(0, 0)], request_id=78))
        assert (await connection.expect(T.ACK_RESPONSE)).HasField("error")
        await connection.send(c.ack(1, [(0, -1)], cumulative=True), c.ping())
        await connection.expect(T.PONG)


async def test_a_busy_subscription_leaves_nothing_behind():
    async with running(connectionLivenessCheckTimeoutMillis=60_000) as broker:
        await filled(broker, 0)
        one, two = await broker.connect(), await broker.connect()
        await one.subscribe(TOPIC, "s")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.nothing_more, inf)  # answers the broker's PING
            await two.send(c.subscribe(TOPIC, "s", 1, two.rid()))
            assert (await two.error()).error == E.ConsumerBusy
            nursery.cancel_scope.cancel()
        await one.stream.aclose()
        await eventually(lambda: not broker.topic(TOPIC).subscriptions["s"].consumers)
        await two.subscribe(TOPIC, "s", 1)


async def test_the_subscription_of_a_dead_connection_is_taken_over():
    async with running(connectionLivenessCheckTimeoutMillis=100) as broker:
        await filled(broker, 0)
        dead, alive = await broker.connect(), await broker.connect()
        await dead.subscribe(TOPIC, "s")
        await alive.subscribe(TOPIC, "s")
        assert len(broker.topic(TOPIC).subscriptions["s"].consumers) == 1


@pytest.mark.parametrize("broadcast", [False, True])
async def test_an_unsubscribe_that_fails_leaves_the_subscription_as_it_was(monkeypatch, broadcast):
    properties = {"vela.broadcast": "true"} if broadcast else {}
    async with running() as broker:
        await filled(broker)
        connection = await broker.connect()
        how = {"initialPosition": S.Earliest, "consumer_name": "c", "metadata": properties}
        await connection.subscribe(TOPIC, "s", permits=10, **how)
        found = await entries(connection, 5)
        await connection.send(c.ack(1, [(0, found[0])]))

        async def full(*_arguments):
            raise MetadataUnavailable("the disk is full")

        topic = broker.topic(TOPIC)
        with monkeypatch.context() as patch:
            patch.setattr(broker.store, "delete", full)
            await connection.send(c.unsubscribe(1, connection.rid()))
            assert "the disk is full" in (await connection.error()).message
            assert (await connection.expect(T.CLOSE_CONSUMER)).consumer_id == 1
        assert list(topic.subscriptions) == list(topic.ledger.cursors) == ["s"]
        await connection.subscribe(TOPIC, "s", permits=10, **how)
        assert await entries(connection, 4) == found[1:]
        await connection.send(c.unsubscribe(1, connection.rid()))
        await connection.expect(T.SUCCESS)
        assert not topic.subscriptions
        assert not topic.ledger.cursors


@pytest.mark.parametrize("sub_type", [S.Shared, S.Key_Shared])
async def test_a_fresh_entry_without_readable_metadata_is_skipped_and_acknowledged(sub_type):
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.subscribe(TOPIC, "s", permits=10, subType=sub_type)
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        await connection.expect(T.MESSAGE)
        checked = (4).to_bytes(4, "big") + b"\x0a\xff\xff\xff" + b"payload"
        broken = b"\x0e\x01" + crc32c(checked).to_bytes(4, "big") + checked
        await connection.send(c.send(1, 1, broken))
        assert (await connection.expect(T.SEND_RECEIPT)).sequence_id == 1
        await connection.publish(2)
        await connection.expect(T.SEND_RECEIPT)
        message, _ = await connection.expect(T.MESSAGE)
        assert message.message_id.entryId == 2
        cursor = broker.topic(TOPIC).ledger.cursors["s"]
        assert cursor.is_acked((message.message_id.ledgerId, 1))
        assert not cursor.is_acked((message.message_id.ledgerId, 2))


async def test_readers_leave_no_subscription_behind():
    async with running() as broker:
        await filled(broker)
        connection = await broker.connect()
        for number in range(20):
            await connection.subscribe(
                TOPIC,
                f"reader-{number}",
                number,
                permits=10,
                durable=False,
                start_message_id=(0, 3),
            )
            assert await entries(connection, 2) == [3, 4]
            await connection.send(c.close_consumer(number, connection.rid()))
            await connection.expect(T.SUCCESS)
        topic = broker.topic(TOPIC)
        await eventually(lambda: not topic.subscriptions and not topic.ledger.cursors)


async def test_a_reader_can_use_its_name_again_at_once():
    async with running() as broker:
        await filled(broker)
        connection = await broker.connect()
        for number in range(20):
            fields = {"durable": False, "start_message_id": (0, number % 5)}
            await connection.subscribe(TOPIC, "reader", number, permits=10, **fields)
            assert await entries(connection, 5 - number % 5) == list(range(number % 5, 5))
            await connection.send(c.close_consumer(number, connection.rid()))
            await connection.expect(T.SUCCESS)


async def test_consumer_stats():
    async with running() as broker:
        await filled(broker)
        connection = await broker.connect()
        await connection.subscribe(
            TOPIC, "s", permits=2, initialPosition=S.Earliest, sub_type=S.Shared, consumer_name="me"
        )
        await entries(connection, 2)
        await connection.send(c.consumer_stats(1, connection.rid()))
        stats = await connection.expect(T.CONSUMER_STATS_RESPONSE)
        assert (stats.msgBacklog, stats.type, stats.consumerName) == (5, "Shared", "me")
        assert (stats.availablePermits, stats.unackedMessages) == (0, 2)
        assert stats.connectedSince


async def test_without_permission_nothing_is_created():
    async with running(allowAutoSubscriptionCreation=False, allowAutoTopicCreation=False) as broker:
        connection = await broker.connect()
        await connection.send(c.subscribe(TOPIC, "s", 1, connection.rid()))
        assert (await connection.error()).error == E.TopicNotFound
        namespaces = broker.service.namespaces
        await namespaces.change_policies(
            "public/default",
            lambda p: p.with_fields(
                autoTopicCreationOverride={
                    "allowAutoTopicCreation": True,
                    "topicType": "non-partitioned",
                }
            ),
        )
        await connection.send(
            c.subscribe(TOPIC, "s", 1, connection.rid(), force_topic_creation=False)
        )
        assert (await connection.error()).error == E.TopicNotFound
        await connection.send(c.subscribe(TOPIC, "s", 1, connection.rid()))
        assert (await connection.error()).error == E.SubscriptionNotFound
        await connection.subscribe(TOPIC, "reader", durable=False, start_message_id=(-1, -1))


async def test_a_consumer_closed_before_it_was_there_leaves_nothing():
    async with running() as broker:
        connection = await broker.connect()
        await connection.send(
            c.subscribe(TOPIC, "s", 1, connection.rid()), c.close_consumer(1, connection.rid())
        )
        await connection.expect(T.SUCCESS)
        await connection.nothing_more()
        await eventually(lambda: TOPIC in broker.service.topics)
        await connection.subscribe(TOPIC, "s", 1)


async def test_flow_that_comes_with_the_subscribe_counts():
    async with running() as broker:
        await filled(broker)
        connection = await broker.connect()
        await connection.send(
            c.subscribe(TOPIC, "s", 1, connection.rid(), initialPosition=S.Earliest),
            c.flow(1, 3),
        )
        await connection.expect(T.SUCCESS)
        assert await entries(connection, 3) == [0, 1, 2]
        await connection.nothing_more()


async def test_an_unload_sends_consumers_away_and_they_go_on_where_they_were():
    async with running() as broker:
        await filled(broker)
        connection = await broker.connect()
        await connection.subscribe(TOPIC, permits=2, initialPosition=S.Earliest)
        assert await entries(connection, 2) == [0, 1]
        await connection.send(c.ack(1, [(0, 0), (0, 1)], request_id=5))
        await connection.expect(T.ACK_RESPONSE)
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        assert (await connection.expect(T.CLOSE_CONSUMER)).consumer_id == 1
        assert TOPIC not in broker.service.topics
        await connection.subscribe(TOPIC, permits=10)
        assert await entries(connection, 3) == [2, 3, 4]


async def test_the_end_of_a_terminated_topic_is_announced():
    async with running() as broker:
        await filled(broker)
        connection = await broker.connect()
        await connection.subscribe(TOPIC, permits=10, initialPosition=S.Earliest)
        await entries(connection, 5)
        await connection.send(c.ack(1, [(0, 4)], cumulative=True))
        await broker.topic(TOPIC).terminate()
        await connection.expect(T.REACHED_END_OF_TOPIC)


async def test_deleting_a_topic_in_use_needs_force_and_leaves_nothing():
    async with running() as broker:
        publisher = await filled(broker)
        name = TopicName.parse(TOPIC)
        with pytest.raises(TopicBusy, match="1 connected producers"):
            await broker.service.delete_topic(name)
        await broker.service.delete_topic(name, force=True)
        await publisher.expect(T.CLOSE_PRODUCER)
        assert TOPIC not in broker.service.topics
        assert not await broker.service.namespaces.topic_exists(name)
        await publisher.producer(TOPIC)
        assert broker.topic(TOPIC).ledger.entries == 0


async def test_non_persistent_messages_reach_who_is_there():
    topic = "non-persistent://public/default/np"
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(topic)
        await connection.publish(0, b"nobody")
        receipt = await connection.expect(T.SEND_RECEIPT)
        assert (receipt.message_id.ledgerId, receipt.message_id.entryId) == (0, 0)
        await connection.subscribe(topic, permits=10)
        await connection.publish(1, b"somebody")
        kinds = {(await connection.next())[0].type for _ in range(2)}
        assert kinds == {T.SEND_RECEIPT, T.MESSAGE}


async def test_an_idle_topic_is_collected_and_one_in_use_or_of_brokers_is_not():
    settings = {
        "defaultRetentionTimeInMinutes": 0,
        "brokerDeleteInactiveTopicsFrequencySeconds": 1,
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": 1,
    }
    async with running(**settings) as broker:
        used = await filled(broker, 1, "used")
        system = await filled(broker, 1, "__change_events")
        await system.stream.aclose()
        gone = await filled(broker, 1, "gone")
        await gone.stream.aclose()
        await eventually(lambda: len(broker.service.topics) == 2)
        await used.publish(1)
        await used.expect(T.SEND_RECEIPT)
        exists = broker.service.namespaces.topic_exists
        assert not await exists(TopicName.parse("gone"))
        assert await exists(TopicName.parse("__change_events"))  # brokers keep policies in it


async def test_statistics_show_who_is_there():
    from broker.http.topics.internal_json import internal_stats
    from broker.http.topics.topic_json import TopicStats

    def topic_stats():
        return json.loads("".join(TopicStats(broker.topic(TOPIC), "here:8080").pieces()))

    async with running() as broker:
        publisher = await filled(broker)
        connection = await broker.connect(client_version="test-client")
        await connection.subscribe(TOPIC, "s", permits=2, initialPosition=S.Earliest)
        await entries(connection, 2)
        await connection.send(c.ack(1, [(0, 0)], request_id=5))
        await connection.expect(T.ACK_RESPONSE)
        stats = topic_stats()
        assert stats["msgInCounter"] == 5
        assert stats["msgOutCounter"] == 2
        (row,) = stats["publishers"]
        assert "127.0.0.1" in row["address"]
        assert row["producerName"] == "standalone-0-0"
        subscription = stats["subscriptions"]["s"]
        assert subscription["msgBacklog"] == 4
        assert 0 < subscription["backlogSize"] < stats["storageSize"]
        assert subscription["consumers"][0]["clientVersion"] == "test-client"
        internal = json.loads("".join(internal_stats(broker.topic(TOPIC), {})))
        assert internal["currentLedgerEntries"] == 5
        assert internal["cursors"]["s"]["markDeletePosition"] == "0:0"
        await publisher.stream.aclose()
        await eventually(lambda: not broker.topic(TOPIC).access.producers)
        assert topic_stats()["msgInCounter"] == 5


async def test_a_consumer_that_is_refused_for_now_is_told_to_come_again():
    """The C++ library does not retry a first SUBSCRIBE after a retryable error, because it takes
    the consumer for connected: a topic that could not be loaded cost its clients 30 s."""
    async with running() as broker:
        connection = await broker.connect()
        broker.service._stopping = True
        await connection.send(c.subscribe(TOPIC, "s", 7, connection.rid()))
        assert (await connection.error()).error == pb.ServiceNotReady
        assert (await connection.expect(T.CLOSE_CONSUMER)).consumer_id == 7
        broker.service._stopping = False
        await connection.subscribe(TOPIC, consumer_id=7)
        await connection.send(c.subscribe(TOPIC, "s", 8, connection.rid()))
        assert (await connection.error()).error == pb.ConsumerBusy
        await connection.nothing_more()


async def test_a_subscribe_whose_turn_comes_while_its_connection_ends_needs_no_answer():
    """The connection detaches its consumers in slices. Another task may run between two of them."""
    async with running(connectionLivenessCheckTimeoutMillis=100) as broker:
        await filled(broker, 0)
        holder, ending = await broker.connect(), await broker.connect()
        await holder.subscribe(TOPIC, "s")
        before = 8 * STEPS_PER_SLICE  # detached in so many slices that the turn comes meanwhile
        for number in range(before):
            await ending.subscribe(TOPIC, "many", number, subType=S.Shared)
        earlier_ends = trio.Event()
        operations = broker.topic(TOPIC).operations
        earlier = operations.start("s", earlier_ends.wait)
        await ending.send(c.subscribe(TOPIC, "s", before, ending.rid()))
        many = broker.topic(TOPIC).subscriptions["many"]
        (session,) = {broker.session_of(consumer) for consumer in many.consumers}
        await eventually(lambda: before in session.consumers)
        with capture_logs() as logs:
            await ending.stream.aclose()
            while len(many.consumers) == before:
                await trio.lowlevel.checkpoint()
            earlier_ends.set()
            await earlier
            assert before in session.consumers
            await eventually(lambda: not session.consumers and "s" not in operations)
        assert not [each for each in logs if each["log_level"] == "error"]


@pytest.mark.parametrize("name", ["pulsar.dedup", "__compaction", "pulsar.repl", "pulsar.repl.b"])
async def test_a_cursor_of_the_broker_is_nobody_s_subscription(name):
    """A subscription of this name would move or remove the state of deduplication, or keep a
    backlog that is no subscription after a restart."""
    async with running(brokerDeduplicationEnabled=True) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        cursors = set(broker.topic(TOPIC).ledger.cursors)
        for fields in ({}, {"sub_type": pb.CommandSubscribe.Shared}, {"durable": False}):
            await connection.send(c.subscribe(TOPIC, name, 1, connection.rid(), **fields))
            refusal = await connection.error()
            assert refusal.error == pb.ServerError.ProducerBusy
            assert refusal.message == "Subscription with reserved subscription name attempted"
        await connection.send(
            c.producer(TOPIC, 2, connection.rid(), initial_subscription_name=name)
        )
        assert (await connection.error()).error == pb.ServerError.ProducerBusy
        assert not broker.topic(TOPIC).subscriptions
        assert set(broker.topic(TOPIC).ledger.cursors) == cursors
