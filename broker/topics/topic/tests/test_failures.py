"""A failure that is one topic's: it is logged, and the broker and other topics do not feel it."""

from __future__ import annotations

import pytest
import trio
from structlog.testing import capture_logs

from broker.managed_ledger.kept_readers import BookieReaders
from broker.net.tests.harness import T, running
from broker.topics.topic.dedup_part import DEDUPLICATION
from broker.topics.topic.persistent import PersistentTopic
from broker.topics.topic.publishing import FINISH_SECONDS_MAX
from metadata.store import MetadataUnavailable
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.errors import ServerError
from protocol.topic_name import TopicName
from runtime.testing.conditions import SECONDS_MAX, eventually

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


async def test_topics_that_close_while_their_store_is_away_are_one_line_each(monkeypatch):
    async def away(*_arguments, **_options):
        raise MetadataUnavailable("the metadata store is away")

    async with running() as broker:
        topic = await load(broker)
        other = await load(broker, OTHER)
        with monkeypatch.context() as patch, capture_logs() as logs:
            patch.setattr(broker.factory, "close", away)
            patch.setattr(broker.store, "delete", away)
            await broker.service.close_topics(lambda name: name == topic.name, "the owner changed")
            await broker.service.collect_idle(other)
        lines = [each for each in logs if each["log_level"] == "error"]
        assert [each["topic"] for each in lines] == [TOPIC, OTHER]
        assert ["exc_info" in each for each in lines] == [False, False]
        assert all(each["error"] == "the metadata store is away" for each in lines)


async def test_what_fails_with_a_topic_whose_store_is_away_is_one_line_each(monkeypatch):
    async def away(*_arguments, **_options):
        raise MetadataUnavailable("the metadata store is away")

    async with running() as broker:
        topic = await load(broker)
        await (await broker.connect()).subscribe(TOPIC)
        with monkeypatch.context() as patch, capture_logs() as logs:
            patch.setattr(topic.subscriptions["s"], "close", away)
            patch.setattr(broker.factory, "close", away)
            await topic._unload_failed()
        lines = [each for each in logs if each["log_level"] == "error"]
        assert [each["event"] for each in lines] == [
            "subscription not closed in order",
            "cannot unload failed topic",
        ]
        assert not any("exc_info" in each for each in lines)
        assert {each["error"] for each in lines} == {"the metadata store is away"}


async def test_a_deduplication_snapshot_that_fails_does_not_end_the_broker(monkeypatch):
    async with running(brokerDeduplicationEnabled=True) as broker:
        topic = await load(broker)
        part = topic.part(DEDUPLICATION)
        monkeypatch.setattr(type(part.store), "snapshot", full)
        monkeypatch.setattr(type(part.store), "wants_snapshot", True)
        (kind,) = (each for each in topic.services.part_kinds if part in each.loaded)
        with capture_logs() as logs:
            await kind.keep(by_age=False)
        assert [each["topic"] for each in logs] == [TOPIC]
        monkeypatch.undo()


async def test_a_reader_whose_cursor_cannot_be_dropped_does_not_end_the_broker(monkeypatch):
    async with running() as broker:
        topic = await load(broker)
        connection = await broker.connect()
        await connection.subscribe(TOPIC, "reader", durable=False)
        with monkeypatch.context() as patch, capture_logs() as logs:
            patch.setattr(topic.ledger, "delete_cursor", full)
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
        with monkeypatch.context() as patch, capture_logs() as logs:
            patch.setattr(broker.factory, "close", full)
            topic.ledger.appender.fence("taken over")
            await connection.expect(T.CLOSE_PRODUCER)
            await eventually(
                lambda: [each["topic"] for each in logs if "unload" in each["event"]] == [TOPIC]
            )
        assert TOPIC not in broker.service.topics
        await connection.producer(OTHER)


@pytest.mark.parametrize("properties", [{}, {"vela.broadcast": "true"}], ids=["stock", "broadcast"])
async def test_a_topic_lost_while_nothing_is_published_is_opened_again(properties):
    """Its consumers would go on, and no acknowledgement would be stored."""
    async with running() as broker:
        topic = await load(broker)
        connection = await broker.connect()
        await connection.subscribe(TOPIC, permits=10, metadata=properties)
        topic.ledger.appender.fence("its cursors were written by another")
        await connection.expect(T.CLOSE_CONSUMER)
        await connection.subscribe(TOPIC, permits=10, metadata=properties)
        assert broker.service.topics[TOPIC] is not topic


async def test_a_topic_lost_while_it_is_loaded_is_opened_again(monkeypatch):
    async with running() as broker:
        topics = []

        async def recover(topic):
            topics.append(topic)
            if len(topics) == 1:
                topic.ledger.appender.fence("taken over")
                await trio.testing.wait_all_tasks_blocked()

        monkeypatch.setattr(PersistentTopic, "recover", recover)
        await load(broker)
        await eventually(lambda: TOPIC not in broker.service.topics)
        topic = await load(broker)
        assert topics[0] is not topic
        assert not topic.ledger.fenced


async def test_a_topic_lost_before_it_listens_to_its_ledger_is_opened_again(monkeypatch):
    async with running() as broker:
        opened = broker.factory._open

        async def open_and_lose(*arguments):
            ledger = await opened(*arguments)
            ledger.appender.fence("taken over")
            return ledger

        with monkeypatch.context() as patch:
            patch.setattr(broker.factory, "_open", open_and_lose)
            await load(broker)
        await eventually(lambda: TOPIC not in broker.service.topics)
        assert not (await load(broker)).ledger.fenced


async def test_storage_that_fails_in_a_new_way_is_tried_again(monkeypatch):
    async with running() as broker:
        topic = await load(broker)
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        topic.ledger._cache.clear()
        with monkeypatch.context() as patch, capture_logs() as logs:
            patch.setattr(BookieReaders, "reader_of", full)
            await connection.subscribe(
                TOPIC, permits=10, initialPosition=pb.CommandSubscribe.Earliest
            )
            await eventually(lambda: len(logs) > 0)
            assert (logs[0]["topic"], logs[0]["subscription"]) == (TOPIC, "s")
        await connection.expect(T.MESSAGE)


def raising(*_arguments):
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


def failing_once(call):
    """Raises for the first call, and is the given function afterwards."""
    calls = []

    def first_raises(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise ValueError("a bug in the storage client")
        return call(*arguments)

    return first_raises


async def expect_refused_and_sent_away(connection, count):
    for sequence_id in range(count):
        error = await connection.expect(T.SEND_ERROR)
        assert (error.sequence_id, error.error) == (sequence_id, ServerError.PersistenceError)
        assert "send it again" in error.message
        assert "a bug in the storage client" in error.message
    await connection.expect(T.CLOSE_PRODUCER)


async def test_a_fault_at_the_end_of_a_ledger_refuses_each_message_of_the_run(monkeypatch):
    """Two of them were begun, and the others, with the same context, were not."""
    async with running(managedLedgerMaxEntriesPerLedger=2) as broker:
        await load(broker)
        connection = await broker.connect()
        await connection.producer(TOPIC)
        (bookie,) = broker.factory._client._bookies.values()
        monkeypatch.setattr(bookie, "add_entries", failing_once(bookie.add_entries))
        message = c.message(b"x", sequence_id=0)
        await connection.send(b"".join(c.send(1, number, message) for number in range(5)))
        await expect_refused_and_sent_away(connection, 5)
        (session,) = broker.service.connections.open
        assert (session.publishes.count, session.publishes.size_bytes) == (0, 0)


@pytest.mark.parametrize("step", ["add_entries", "kick"])
async def test_a_fault_while_messages_are_stored_refuses_them_and_opens_the_topic_anew(
    monkeypatch, step
):
    async with running() as broker:
        topic = await load(broker)
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        (bookie,) = broker.factory._client._bookies.values()
        with capture_logs() as logs:
            if step == "kick":
                turns = broker.service.turns
                turns.kick_storage = failing_once(turns.kick_storage)
            else:
                monkeypatch.setattr(bookie, step, failing_once(getattr(bookie, step)))
            message = c.message(b"x", sequence_id=0)
            await connection.send(b"".join(c.send(1, number, message) for number in range(3)))
            await expect_refused_and_sent_away(connection, 3)
            with trio.fail_after(SECONDS_MAX):
                await broker.service.unload_topic(TopicName.parse(TOPIC))
        assert "a bug in the storage client" in str([line.get("exc_info") for line in logs])
        (session,) = broker.service.connections.open
        assert (session.publishes.count, session.publishes.size_bytes) == (0, 0)
        await connection.producer(TOPIC)
        assert broker.service.topics[TOPIC] is not topic
        for sequence_id in range(3):
            await connection.publish(sequence_id)
            await connection.expect(T.SEND_RECEIPT)
        await connection.subscribe(TOPIC, permits=10, initialPosition=pb.CommandSubscribe.Earliest)
        for _ in range(4):
            await connection.expect(T.MESSAGE)


async def test_a_fault_while_messages_move_to_a_new_ledger_refuses_them(monkeypatch):
    async with running() as broker:
        topic = await load(broker)
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        (bookie,) = broker.factory._client._bookies.values()
        monkeypatch.setattr(bookie, "add_entries", failing_once(bookie.add_entries))
        topic.ledger.appender.roll()
        await connection.publish(0)
        await expect_refused_and_sent_away(connection, 1)
        await eventually(lambda: broker.service.topics.get(TOPIC) is not topic)
        await connection.producer(TOPIC)
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)


def unloading(broker):
    """The event of its end."""
    unloaded = trio.Event()

    async def unload():
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        unloaded.set()

    broker.nursery.start_soon(unload)
    return unloaded


async def test_a_topic_whose_turn_fails_is_unloaded_all_the_same(monkeypatch, mock_clock):
    mock_clock.rate = 1
    async with running() as broker:
        topic = await load(broker)
        publisher, other = await broker.connect(), await broker.connect()
        await publisher.producer(TOPIC)
        await other.producer(TOPIC, producer_name="other")
        with capture_logs() as logs, monkeypatch.context() as patch:
            patch.setattr(topic.ledger, "append_run", raising)
            await publisher.publish(0)
            await publisher.closed()  # whose client publishes again
            mock_clock.rate = 0
            unloaded = unloading(broker)  # waits for the message that nobody has
            await broker.let_pass(mock_clock, FINISH_SECONDS_MAX + 1, step_seconds=0.5)
            assert unloaded.is_set()
            mock_clock.rate = 1
        assert "session failed" in [line["event"] for line in logs]
        await other.expect(T.CLOSE_PRODUCER)
        await other.producer(TOPIC)
        assert broker.service.topics[TOPIC] is not topic
        await other.publish(0)
        await other.expect(T.SEND_RECEIPT)


async def test_an_unload_waits_for_no_answer_that_does_not_come(mock_clock):
    async with running() as broker:
        topic = await load(broker)
        connection = await broker.in_memory()
        await connection.handshake()
        await connection.producer(TOPIC)
        topic._taken += 1
        unloaded = unloading(broker)
        await broker.let_pass(mock_clock, FINISH_SECONDS_MAX - 1, step_seconds=0.5)
        assert not unloaded.is_set()
        await broker.let_pass(mock_clock, 2, step_seconds=0.5)
        assert unloaded.is_set()
        await connection.expect(T.CLOSE_PRODUCER)
        await connection.producer(TOPIC)
        assert broker.service.topics[TOPIC] is not topic
