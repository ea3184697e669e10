"""Where a consumer begins, and what its topic's last message is: seeks and searches."""

from __future__ import annotations

import pytest

from broker.doors.pulsar.tests.filled_topics import TOPIC, entries, filled
from broker.net.tests.harness import T, running
from protocol import client as c
from protocol import pulsar_api_pb2 as pb

S = pb.CommandSubscribe
E = pb.ServerError


async def test_earliest_latest_and_resuming():
    async with running() as broker:
        publisher = await filled(broker)
        connection = await broker.connect()
        await connection.subscribe(TOPIC, "e", 1, permits=10, initialPosition=S.Earliest)
        assert await entries(connection, 5) == [0, 1, 2, 3, 4]
        await connection.subscribe(TOPIC, "l", 2, permits=10)
        await publisher.publish(5)
        assert await entries(connection, 2) == [5, 5]
        await connection.send(c.ack(1, [(0, 2)], cumulative=True))
        await connection.send(c.close_consumer(1, connection.rid()))
        await connection.expect(T.SUCCESS)
        await connection.subscribe(TOPIC, "e", 3, permits=2)
        assert await entries(connection, 2) == [3, 4]
        await connection.nothing_more()


async def test_seek_closes_the_consumers_before_it_answers():
    async with running() as broker:
        await filled(broker)
        connection = await broker.connect()
        await connection.subscribe(TOPIC, permits=10, initialPosition=S.Earliest)
        await entries(connection, 5)
        request_id = connection.rid()
        await connection.send(c.seek(1, request_id, (0, 3)))
        closed = await connection.expect(T.CLOSE_CONSUMER)
        assert (closed.consumer_id, closed.request_id) == (1, 2**64 - 1)
        assert (await connection.expect(T.SUCCESS)).request_id == request_id
        await connection.subscribe(TOPIC, permits=10)
        assert await entries(connection, 2) == [3, 4]
        await connection.send(c.seek(1, connection.rid(), publish_time=1))
        await connection.expect(T.CLOSE_CONSUMER)
        await connection.expect(T.SUCCESS)
        await connection.subscribe(TOPIC, permits=10)
        assert await entries(connection, 5) == [0, 1, 2, 3, 4]


async def test_seek_to_an_entry_that_does_not_exist_yet():
    async with running() as broker:
        publisher = await filled(broker)
        connection = await broker.connect()
        fields = {"durable": False, "start_message_id": (0, 4)}
        await connection.subscribe(TOPIC, "reader-1", permits=10, **fields)
        assert await entries(connection, 1) == [4]
        await connection.send(c.seek(1, connection.rid(), (0, 5)))
        await connection.expect(T.CLOSE_CONSUMER)
        await connection.expect(T.SUCCESS)
        fields["start_message_id"] = (0, 5)
        await connection.subscribe(TOPIC, "reader-1", permits=10, **fields)
        await connection.nothing_more()
        await publisher.publish(5)
        assert await entries(connection, 1) == [5]


async def test_last_message_id():
    async with running() as broker:
        publisher = await broker.connect()
        await publisher.producer(TOPIC)
        connection = await broker.connect()
        await connection.subscribe(TOPIC)

        async def last():
            await connection.send(c.get_last_message_id(1, connection.rid()))
            return await connection.expect(T.GET_LAST_MESSAGE_ID_RESPONSE)

        empty = await last()
        assert empty.last_message_id.entryId == 2**64 - 1
        assert empty.HasField("consumer_mark_delete_position")
        await publisher.publish(0)
        await publisher.expect(T.SEND_RECEIPT)
        single = (await last()).last_message_id
        assert (single.entryId, single.batch_index, single.partition) == (0, -1, -1)
        await publisher.send(c.send(1, 1, c.batch([b"a", b"b", b"c"], sequence_id=1), 3))
        await publisher.expect(T.SEND_RECEIPT)
        batch = (await last()).last_message_id
        assert (batch.entryId, batch.batch_index) == (1, 2)


@pytest.mark.parametrize("entries_per_ledger", [50_000, 2])
async def test_the_last_message_is_none_that_no_client_gets(entries_per_ledger):
    """A reader that was told of a marker would wait for it in vain."""
    async with running(managedLedgerMaxEntriesPerLedger=entries_per_ledger) as broker:
        publisher = await broker.connect()
        await publisher.producer(TOPIC)
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        marker = c.message(b"", marker_type=22)

        async def last_after(*datas):
            for data in datas:
                await publisher.send(c.send(1, 0, data))
                await publisher.expect(T.SEND_RECEIPT)
            await connection.send(c.get_last_message_id(1, connection.rid()))
            found = await connection.expect(T.GET_LAST_MESSAGE_ID_RESPONSE)
            return found.last_message_id

        assert (await last_after(marker)).entryId == 2**64 - 1
        batch = await last_after(c.batch([b"a", b"b"]))
        assert batch.batch_index == 1
        assert await last_after(marker) == batch
        assert await last_after(*[marker] * 5) == batch
        assert (await last_after(c.message(b"x"), marker)).batch_index == -1


async def test_searches_for_the_last_message_pass_over_each_entry_once():
    """One connection may have 1,000 of them under way, on a topic with millions of such entries."""
    async with running() as broker:
        publisher = await broker.connect()
        await publisher.producer(TOPIC)
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        marker = c.message(b"", marker_type=22)
        await publisher.send(*[c.send(1, number, marker) for number in range(100)])
        for _ in range(100):
            await publisher.expect(T.SEND_RECEIPT)
        ledger = broker.topic(TOPIC).ledger
        read, counts = ledger.read, []

        async def counted(*place):
            entries = await read(*place)
            counts.append(len(entries))
            return entries

        ledger.read = counted
        requests = [c.get_last_message_id(1, connection.rid()) for _ in range(50)]
        await connection.send(*requests)
        for _ in requests:
            found = await connection.expect(T.GET_LAST_MESSAGE_ID_RESPONSE)
            assert found.last_message_id.entryId == 2**64 - 1
        assert 100 <= sum(counts) <= 102  # the last entry once per reading that they share


async def test_unsubscribe_forgets_the_position():
    async with running() as broker:
        await filled(broker)
        connection = await broker.connect()
        await connection.subscribe(TOPIC, "s", permits=10, initialPosition=S.Earliest)
        await entries(connection, 5)
        await connection.send(c.unsubscribe(1, connection.rid()))
        await connection.expect(T.SUCCESS)
        topic = broker.topic(TOPIC)
        assert not topic.subscriptions
        assert not topic.ledger.cursors
        await connection.send(c.unsubscribe(1, connection.rid()))
        assert (await connection.error()).error == E.MetadataError
