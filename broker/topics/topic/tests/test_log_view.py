"""A part of a topic that holds messages back: nobody gets them, whatever the subscription."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from broker.ground.entry import withheld
from broker.net.tests.harness import T, running
from broker.topics.topic.log_view import LogView
from broker.topics.topic.parts import PartKind, TopicPart
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually

TOPIC = "persistent://public/default/t"
ABORTED = "aborted"


class WithoutAborted(LogView):
    def seen(self, entries):
        return [
            withheld(each) if each.metadata.partition_key == ABORTED else each for each in entries
        ]


class HoldingPart(TopicPart):
    name = "holding"

    def view(self, log, *, compacted):
        return WithoutAborted(log)


class HoldingKind(PartKind):
    name = HoldingPart.name

    def wants(self, topic):
        return not topic.name.is_system

    def make(self, topic):
        return HoldingPart()


async def publish(connection, *keys):
    for number, key in enumerate(keys):
        message = c.message(key.encode(), sequence_id=number, partition_key=key)
        await connection.send(c.send(1, number, message))
        await connection.expect(T.SEND_RECEIPT)


async def received(connection, count):
    """The payloads of so many messages; there are no more."""
    payloads = []
    while len(payloads) < count:
        command, payload = await connection.next()
        if command.type != T.ACTIVE_CONSUMER_CHANGE:
            payloads += [each.payload for each in c.received_messages(command, payload)]
    await connection.nothing_more()
    return payloads


KINDS = {
    "Exclusive": {"sub_type": pb.CommandSubscribe.Exclusive},
    "Failover": {"sub_type": pb.CommandSubscribe.Failover},
    "Shared": {"sub_type": pb.CommandSubscribe.Shared},
    "Key_Shared": {"sub_type": pb.CommandSubscribe.Key_Shared},
    "broadcast": {"metadata": {"vela.broadcast": "true"}},
}


@pytest.mark.parametrize("is_backlog", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_view_holds_back_is_delivered_to_nobody_and_holds_up_nobody(kind, is_backlog):
    async with running(part_kinds=(HoldingKind(),)) as broker:
        producer, consumer = await broker.connect(), await broker.connect()
        await producer.producer(TOPIC)
        start = {"initialPosition": pb.CommandSubscribe.Earliest, "consumer_name": "n"}
        start |= KINDS[kind]
        await consumer.subscribe(TOPIC, permits=0 if is_backlog else 100, **start)
        with capture_logs() as logs:
            await publish(producer, "a", ABORTED, "b", ABORTED, ABORTED, "c")
            if is_backlog:
                await broker.service.unload_topic(TopicName.parse(TOPIC))
                consumer = await broker.connect()
                await consumer.subscribe(TOPIC, permits=100, **start)
            assert await received(consumer, 3) == [b"a", b"b", b"c"]
        assert not [each for each in logs if "skipped" in each["event"]]
        ledger = broker.topic(TOPIC).ledger
        subscription = broker.topic(TOPIC).subscriptions["s"]
        await consumer.send(
            c.ack(1, [each.position for each in await all_of(ledger) if kept(each)])
        )
        await eventually(lambda: subscription.backlog_entries == 0)


async def all_of(ledger):
    return await ledger.read(ledger.first_position, 100, 1 << 20)


def kept(entry):
    return entry.metadata.partition_key != ABORTED


async def test_the_newest_message_is_the_newest_one_that_the_view_shows():
    async with running(part_kinds=(HoldingKind(),)) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.subscribe(TOPIC)
        await publish(connection, "a", "b", *[ABORTED] * 20)
        await connection.send(c.get_last_message_id(1, connection.rid()))
        command, _ = await connection.next()
        assert command.getLastMessageIdResponse.last_message_id.entryId == 1
