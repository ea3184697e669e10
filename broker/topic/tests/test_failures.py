"""A failure that is one topic's: it is logged, and the broker and other topics do not feel it."""

from __future__ import annotations

from structlog.testing import capture_logs

from broker.net.tests.harness import T, eventually, running
from broker.topic.housekeeping import Housekeeping
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.topic_name import TopicName

TOPIC = "persistent://public/default/t"
OTHER = "persistent://public/default/other"


async def full(*_arguments, **_options):
    raise Exception("IO error: No space left on device")


async def load(broker, name=TOPIC):
    return await broker.service.get_or_load_topic(TopicName.parse(name), create=True)


async def test_an_idle_topic_that_cannot_be_deleted_does_not_end_the_broker(monkeypatch):
    async with running() as broker:
        topic = await load(broker)
        with monkeypatch.context() as patch, capture_logs() as logs:
            patch.setattr(broker.store, "delete", full)
            await broker.service.collect_idle(topic)
        (line,) = [each for each in logs if each["log_level"] == "error"]
        assert line["topic"] == TOPIC
        assert not [each for each in logs if each["event"] == "deleted idle topic"]
        connection = await broker.connect()
        await connection.producer(TOPIC)


async def test_a_deduplication_snapshot_that_fails_does_not_end_the_broker(monkeypatch):
    async with running(brokerDeduplicationEnabled=True) as broker:
        topic = await load(broker)
        monkeypatch.setattr(type(topic.dedup), "snapshot", full)
        monkeypatch.setattr(type(topic.dedup), "wants_snapshot", True)
        with capture_logs() as logs:
            await Housekeeping(broker.service)._snapshot(topic, topic.dedup)
        assert [each["topic"] for each in logs] == [TOPIC]
        monkeypatch.undo()


async def test_a_reader_whose_cursor_cannot_be_dropped_does_not_end_the_broker(monkeypatch):
    async with running() as broker:
        topic = await load(broker)
        connection = await broker.connect()
        await connection.subscribe(TOPIC, "reader", durable=False)
        with monkeypatch.context() as patch, capture_logs() as logs:
            patch.setattr(topic, "delete_cursor", full)
            await connection.send(c.close_consumer(1, connection.rid()))
            await connection.expect(T.SUCCESS)
            await eventually(lambda: len(logs) > 0)
        assert (logs[0]["topic"], logs[0]["subscription"]) == (TOPIC, "reader")
        await connection.producer(TOPIC)


async def test_a_lost_topic_that_cannot_be_unloaded_does_not_end_the_broker(monkeypatch):
    async with running() as broker:
        topic = await load(broker)
        connection = await broker.connect()
        await connection.producer(TOPIC)
        monkeypatch.setattr(topic, "close_storage", full)
        with capture_logs() as logs:
            topic.ledger.appender.fence("taken over")
            await connection.publish(0)
            await connection.expect(T.SEND_ERROR)
            await connection.expect(T.CLOSE_PRODUCER)
            await eventually(
                lambda: [each["topic"] for each in logs if "unload" in each["event"]] == [TOPIC]
            )
        assert TOPIC not in broker.service.topics
        await connection.producer(OTHER)


async def test_storage_that_fails_in_a_new_way_is_tried_again(monkeypatch):
    async with running() as broker:
        topic = await load(broker)
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        reader = topic.ledger._reader
        topic.ledger._cache.clear()
        with monkeypatch.context() as patch, capture_logs() as logs:
            patch.setattr(reader, "_reader_of", full)
            await connection.subscribe(
                TOPIC, permits=10, initialPosition=pb.CommandSubscribe.Earliest
            )
            await eventually(lambda: len(logs) > 0)
            assert (logs[0]["topic"], logs[0]["subscription"]) == (TOPIC, "s")
        await connection.expect(T.MESSAGE)


def raising():
    raise ValueError("a bug in the dispatcher")


async def test_a_subscription_that_cannot_be_told_of_entries_starts_again_alone():
    async with running() as broker:
        topic = await load(broker)
        publisher, one, two = [await broker.connect() for _ in range(3)]
        await publisher.producer(TOPIC)
        await one.subscribe(TOPIC, "broken", permits=10)
        await two.subscribe(TOPIC, "whole", permits=10)
        broken = topic.subscriptions["broken"]
        broken.tail_moved = raising
        with capture_logs() as logs:
            await publisher.publish(0)
            await publisher.publish(1)
            for number in range(2):
                assert (await publisher.expect(T.SEND_RECEIPT)).sequence_id == number
                await two.expect(T.MESSAGE)
            assert (await one.expect(T.CLOSE_CONSUMER)).consumer_id == 1
            await eventually(lambda: topic.subscriptions.get("broken") not in (None, broken))
        (line,) = [each for each in logs if each["log_level"] == "error"]
        assert (line["topic"], line["subscription"]) == (TOPIC, "broken")
        assert "a bug in the dispatcher" in str(line["exc_info"])
        await one.subscribe(TOPIC, "broken", permits=10)
        for _ in range(2):
            await one.expect(T.MESSAGE)
        await publisher.publish(2)
        await publisher.expect(T.SEND_RECEIPT)
        await one.expect(T.MESSAGE)


async def test_a_reader_that_cannot_be_told_of_entries_is_sent_away_with_its_cursor():
    async with running() as broker:
        topic = await load(broker)
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.subscribe(TOPIC, "reader", durable=False)
        topic.subscriptions["reader"].tail_moved = raising
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        await connection.expect(T.CLOSE_CONSUMER)
        await eventually(lambda: "reader" not in topic.ledger.cursors)
        assert not topic.subscriptions


async def test_a_subscription_that_cannot_start_again_unloads_its_topic(monkeypatch):
    async with running() as broker:
        topic = await load(broker)
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.subscribe(TOPIC, "broken")
        broken = topic.subscriptions["broken"]
        broken.tail_moved = raising
        monkeypatch.setattr(broken, "close", full)
        with capture_logs() as logs:
            await connection.publish(0)
            await connection.expect(T.SEND_RECEIPT)
            kinds = {await one_kind(connection) for _ in range(2)}
            await eventually(lambda: broker.service.topics.get(TOPIC) is not topic)
        assert kinds == {T.CLOSE_CONSUMER, T.CLOSE_PRODUCER}
        assert [line["topic"] for line in logs if line["log_level"] == "error"][:2] == [TOPIC] * 2
        await connection.subscribe(TOPIC, "broken", consumer_id=2, permits=10)
        await connection.expect(T.MESSAGE)


async def one_kind(connection):
    command, _ = await connection.next()
    return command.type
