"""Deduplication and messages whose metadata name another producer than the one that sends them."""

from __future__ import annotations

import trio

from broker.net.tests.harness import T, running
from broker.topics.topic.tests.dedup_of import dedup_of
from protocol import client as c
from protocol.errors import ServerError
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually

TOPIC = "persistent://public/default/t"
NOT_STORED = 2**64 - 1


async def crash_and_load(broker, *connections):
    """Load the topic again, without a snapshot of what deduplication knows."""
    topic = broker.topic(TOPIC)
    if dedup_of(topic) is not None:
        dedup_of(topic)._since_snapshot = 0
    await broker.service.unload_topic(TopicName.parse(TOPIC))
    for connection in connections:
        await connection.expect(T.CLOSE_PRODUCER)


async def send_as(connection, name, sequence_id):
    """A message of producer 1 in the name of another."""
    message = c.message(b"x", producer_name=name, sequence_id=sequence_id)
    await connection.send(c.send(1, 0, message))
    return await connection.expect(T.SEND_RECEIPT, T.SEND_ERROR)


async def stored(connection, sequence_id):
    await connection.publish(sequence_id)
    receipt = await connection.expect(T.SEND_RECEIPT)
    return receipt.message_id.entryId != NOT_STORED


async def test_nobody_has_the_messages_of_another_producer_dropped():
    async with running(brokerDeduplicationEnabled=True) as broker:
        victim, evil = await broker.connect(), await broker.connect()
        await victim.producer(TOPIC, producer_name="victim")
        await evil.producer(TOPIC, producer_name="evil")
        assert await stored(victim, 0)
        await send_as(evil, "victim", 2**62)
        assert await stored(victim, 1)
        await crash_and_load(broker, victim, evil)
        answer = await victim.producer(TOPIC, producer_name="victim")
        assert answer.last_sequence_id == 1
        assert await stored(victim, 2)


async def test_a_message_in_the_name_of_another_producer_is_refused_and_others_are_stored():
    async with running(brokerDeduplicationEnabled=True) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        refusal = await send_as(connection, "q", 7)
        assert refusal.error == ServerError.NotAllowedError
        assert "'p'" in refusal.message
        assert (await send_as(connection, "p", 7)).message_id.entryId == 0
        assert broker.topic(TOPIC).ledger.entries == 1


async def test_without_deduplication_any_name_is_stored():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        assert (await send_as(connection, "q", 7)).message_id.entryId == 0


async def test_the_number_in_the_metadata_counts_before_a_restart_as_after_it():
    """Else a restart would know more than was known before, and messages would be dropped."""
    async with running(brokerDeduplicationEnabled=True) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        assert (await send_as(connection, "p", 9)).message_id.entryId == 0
        assert (await send_as(connection, "p", 9)).message_id.entryId == NOT_STORED
        assert broker.topic(TOPIC).last_sequence_id("p") == 9
        await crash_and_load(broker, connection)
        assert (await connection.producer(TOPIC, producer_name="p")).last_sequence_id == 9
        assert await stored(connection, 10)


async def test_a_message_taken_before_deduplication_is_on_counts_for_nobody():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        topic = broker.topic(TOPIC)
        held = []
        append_run, topic.ledger.append_run = topic.ledger.append_run, lambda *run: held.append(run)
        message = c.message(b"x", producer_name="victim", sequence_id=2**62)
        await connection.send(c.send(1, 0, message))
        await eventually(lambda: held)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                broker.service.namespaces.change_policies,
                "public/default",
                lambda p: p.with_fields(deduplicationEnabled=True),
            )
            await eventually(lambda: topic.parts)
            assert dedup_of(topic) is None
            topic.ledger.append_run = append_run
            append_run(*held[0])
            await connection.expect(T.SEND_RECEIPT)
        await crash_and_load(broker, connection)
        answer = await connection.producer(TOPIC, producer_name="victim")
        assert answer.last_sequence_id == -1


async def test_a_command_above_the_number_in_its_metadata_is_refused_and_counts_for_nothing():
    """The entry would not have the command's number, and a restart would judge by another one."""
    async with running(brokerDeduplicationEnabled=True) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        for fields in ({"sequence_id": 9}, {"sequence_id": 5, "highest_sequence_id": 9}):
            message = c.message(b"x", producer_name="p", sequence_id=5)
            await connection.send(c.send(1, headers_and_payload=message, **fields))
            refusal = await connection.expect(T.SEND_RECEIPT, T.SEND_ERROR)
            assert refusal.error == ServerError.NotAllowedError
            assert "sequence id" in refusal.message
        assert broker.topic(TOPIC).last_sequence_id("p") == -1
        assert await stored(connection, 6)
        await crash_and_load(broker, connection)
        assert (await connection.producer(TOPIC, producer_name="p")).last_sequence_id == 6
        assert await stored(connection, 7)
