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
