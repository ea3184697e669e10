"""A persistent topic between its producers and its ledger: policies, and failures of the ledger."""

from __future__ import annotations

import pytest
import trio

from broker.net.tests.harness import T, running
from broker.topics.topic.dedup_store import DEDUP_CURSOR
from broker.topics.topic.persistent import TOPIC_EPOCH_PROPERTY
from broker.topics.topic.tests.dedup_of import dedup_of
from protocol import client as c
from protocol.errors import BrokerError, MetadataError, ServerError
from protocol.metadata import broker_entry_metadata
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually

TOPIC = "persistent://public/default/t"
SMALL_LEDGERS = {
    "managedLedgerMaxEntriesPerLedger": 2,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
}
DELETE_CONSUMED = {"defaultRetentionTimeInMinutes": 0, "defaultRetentionSizeInMB": 0}
FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


async def set_retention(broker, policies):
    await broker.service.namespaces.change_policies(
        "public/default", lambda p: p.with_fields(retention_policies=policies)
    )


class HeldAppends:
    """Keeps back what a topic appends."""

    def __init__(self, topic):
        self._ledger = topic.ledger
        self._append_run = topic.ledger.append_run
        self._held = []
        topic.ledger.append_run = lambda *run: self._held.extend(zip(*run, strict=True))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.fail()  # else a broker that a failed test takes down would wait for them

    def __len__(self):
        return len(self._held)

    def release(self, count=None):
        """All, or only the first so many while the rest stay held."""
        if count is None:
            self._ledger.append_run = self._append_run
        held, self._held = self._held[:count], self._held[len(self._held[:count]) :]
        self._append_run([entry for entry, _ in held], [context for _, context in held])

    def fail(self, count=None):
        """The first so many, or all."""
        self._ledger.append_run = self._append_run
        error = BrokerError(ServerError.PersistenceError, "not stored")
        failed = self._held[:count]
        del self._held[:count]
        for _, context in failed:
            self._ledger.listener.on_append_failed(context, error)


def set_disk_full(broker, is_full):
    """The action of the disk monitor."""
    (bookie,) = broker.factory._client._bookies.values()
    for storage in bookie._storages:
        storage.writable = not is_full
    bookie._adds.writable_changed()


async def publish(connection, count):
    for number in range(count):
        await connection.publish(number)
        await connection.expect(T.SEND_RECEIPT)


async def test_the_retention_of_the_namespace_keeps_what_nobody_subscribes_to():
    async with running(**SMALL_LEDGERS, **DELETE_CONSUMED) as broker:
        await set_retention(broker, FOR_EVER)
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await publish(connection, 6)
        await broker.topic(TOPIC).ledger.trim()
        assert broker.topic(TOPIC).ledger.entries == 6
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        await connection.expect(T.CLOSE_PRODUCER)
        await connection.producer(TOPIC)
        await broker.topic(TOPIC).ledger.trim()
        assert broker.topic(TOPIC).ledger.entries == 6


async def test_a_changed_retention_takes_effect_on_a_loaded_topic():
    async with running(**SMALL_LEDGERS, **DELETE_CONSUMED) as broker:
        await set_retention(broker, FOR_EVER)
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await publish(connection, 6)
        ledger = broker.topic(TOPIC).ledger
        await set_retention(broker, None)
        await eventually(lambda: len(ledger.statistics().ledgers) == 1)
        await set_retention(broker, FOR_EVER)
        before = ledger.entries
        await publish(connection, 4)
        await ledger.trim()
        assert ledger.entries == before + 4


async def test_a_chunked_message_counts_once_its_last_chunk_is_stored():
    async with running(brokerDeduplicationEnabled=True) as broker:
        connection = await broker.connect()

        async def send_chunk(chunk):
            fields = {"chunk_id": chunk, "num_chunks_from_msg": 2, "uuid": "producer-7"}
            message = c.message(b"x", sequence_id=7, **fields)
            await connection.send(c.send(1, 7, message, is_chunk=True))
            return (await connection.expect(T.SEND_RECEIPT)).message_id.entryId

        async def reload():
            dedup_of(broker.topic(TOPIC))._since_snapshot = 0  # as after a crash
            await broker.service.unload_topic(TopicName.parse(TOPIC))
            await connection.expect(T.CLOSE_PRODUCER)
            return (await connection.producer(TOPIC, producer_name="producer")).last_sequence_id

        await connection.producer(TOPIC, producer_name="producer")
        assert await send_chunk(0) == 0
        assert await reload() == -1
        assert await send_chunk(1) != 2**64 - 1
        assert await reload() == 7
        assert [await send_chunk(0), await send_chunk(1)] == [2**64 - 1] * 2
        assert broker.topic(TOPIC).ledger.entries == 2


async def test_copies_of_a_message_in_flight_hold_back_their_connection():
    async with running(brokerDeduplicationEnabled=True) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        (session,) = broker.service.connections.open
        with HeldAppends(broker.topic(TOPIC)) as appends:
            for _ in range(6):
                await connection.publish(0)
            await eventually(lambda: session.publishes.count == 6)
            size = session.publishes.size_bytes // 6
            assert size > 0
            assert broker.service.connections.publish_budget.pending_bytes == 6 * size
            appends.release()
            for _ in range(6):
                assert (await connection.expect(T.SEND_RECEIPT)).sequence_id == 0
            assert (session.publishes.count, session.publishes.size_bytes) == (0, 0)
            assert broker.service.connections.publish_budget.pending_bytes == 0
            assert broker.topic(TOPIC).ledger.entries == 1


async def test_copies_of_a_message_in_flight_are_answered_before_what_follows_it():
    """A producer that came back and has sent everything again gets its receipts in that order."""
    async with running(brokerDeduplicationEnabled=True) as broker:
        before, connection = await broker.connect(), await broker.connect()
        await before.producer(TOPIC, producer_name="p")
        with HeldAppends(broker.topic(TOPIC)) as appends:
            for number in range(2):
                await before.publish(number)
            await eventually(lambda: len(appends) == 2)
            await before.stream.aclose()
            await eventually(lambda: not broker.topic(TOPIC).access.producers)
            await connection.producer(TOPIC, producer_name="p")
            for number in range(4):
                await connection.publish(number)
            await eventually(lambda: len(appends) == 4)
            appends.release()
        receipts = [await connection.expect(T.SEND_RECEIPT) for _ in range(4)]
        assert [each.sequence_id for each in receipts] == [0, 1, 2, 3]
        assert broker.topic(TOPIC).ledger.entries == 4


async def test_a_producer_that_came_back_twice_gets_its_receipts_in_order():
    """Copies that its second connection sent wait for messages that its third has yet to send."""
    async with running(brokerDeduplicationEnabled=True) as broker:

        async def come_and_send(count):
            connection = await broker.connect()
            (session,) = broker.service.connections.open
            await connection.producer(TOPIC, producer_name="p")
            for number in range(count):
                await connection.publish(number)
            return connection, session

        async def come_and_leave(count):
            connection, session = await come_and_send(count)
            await eventually(lambda: session.publishes.count == count)
            await connection.stream.aclose()
            await eventually(lambda: not broker.service.connections.open)

        await come_and_leave(0)
        with HeldAppends(broker.topic(TOPIC)) as appends:
            await come_and_leave(4)
            await come_and_leave(4)
            connection, session = await come_and_send(1)
            await eventually(lambda: session.publishes.count == 1)
            appends.release(2)
            await eventually(lambda: broker.topic(TOPIC).last_sequence_id("p") == 1)
            for number in (1, 2, 3):
                await connection.publish(number)
            appends.release()
        receipts = [await connection.expect(T.SEND_RECEIPT) for _ in range(4)]
        assert [each.sequence_id for each in receipts] == [0, 1, 2, 3]
        assert broker.topic(TOPIC).ledger.entries == 4
        await eventually(lambda: broker.service.connections.publish_budget.pending_bytes == 0)


async def test_requests_for_the_newest_message_share_its_reading():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await publish(connection, 2)
        topic = broker.topic(TOPIC)
        read = topic.ledger.read
        reads = []

        async def counted(*arguments):
            reads.append(arguments)
            await trio.lowlevel.checkpoint()
            return await read(*arguments)

        found = []

        async def ask():
            found.append((await topic.newest_message()).position)

        topic.ledger.read = counted
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(ask)
        assert set(found) == {topic.ledger.last_confirmed}
        assert len(found) == 100
        assert len(reads) <= 2


async def test_refused_copies_no_longer_hold_back_their_connection():
    async with running(brokerDeduplicationEnabled=True) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        (session,) = broker.service.connections.open
        with HeldAppends(broker.topic(TOPIC)) as appends:
            for _ in range(3):
                await connection.publish(0)
            await eventually(lambda: session.publishes.count == 3)
            appends.fail()
            for _ in range(3):
                assert (await connection.expect(T.SEND_ERROR)).sequence_id == 0
            assert (session.publishes.count, session.publishes.size_bytes) == (0, 0)
            assert broker.service.connections.publish_budget.pending_bytes == 0


async def test_copies_in_flight_are_answered_when_deduplication_is_switched_off():
    async with running(brokerDeduplicationEnabled=True) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        (session,) = broker.service.connections.open
        with HeldAppends(broker.topic(TOPIC)) as appends:
            for _ in range(3):
                await connection.publish(0)
            await eventually(lambda: session.publishes.count == 3)
            await broker.service.namespaces.change_policies(
                "public/default", lambda p: p.with_fields(deduplicationEnabled=False)
            )
            for _ in range(2):  # sent again, they are messages like any other
                assert (await connection.expect(T.SEND_ERROR)).sequence_id == 0
            appends.release()
            await connection.expect(T.SEND_RECEIPT)
            assert (session.publishes.count, session.publishes.size_bytes) == (0, 0)


@pytest.mark.parametrize("is_loaded", [True, False])
async def test_a_topic_without_deduplication_keeps_no_cursor_for_it(is_loaded):
    """It would hold storage, because nothing moves it any more."""
    async with running(
        brokerDeduplicationEnabled=True, **SMALL_LEDGERS, **DELETE_CONSUMED
    ) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await publish(connection, 6)
        if not is_loaded:
            await broker.service.unload_topic(TopicName.parse(TOPIC))
            await connection.expect(T.CLOSE_PRODUCER)
        await broker.service.namespaces.change_policies(
            "public/default", lambda p: p.with_fields(deduplicationEnabled=False)
        )
        if not is_loaded:
            await connection.producer(TOPIC)
        ledger = broker.topic(TOPIC).ledger
        await eventually(lambda: DEDUP_CURSOR not in ledger.cursors)
        await eventually(lambda: len(ledger.statistics().ledgers) == 1)
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        await connection.expect(T.CLOSE_PRODUCER)
        await connection.producer(TOPIC)
        assert DEDUP_CURSOR not in broker.topic(TOPIC).ledger.cursors


async def test_a_failed_append_sends_its_producers_away_and_drops_what_follows():
    async with running() as broker:
        one, two = await broker.connect(), await broker.connect()
        await one.producer(TOPIC)
        await two.producer(TOPIC)
        await publish(one, 1)
        topic = broker.topic(TOPIC)
        set_disk_full(broker, True)
        await one.publish(1)
        error = await one.expect(T.SEND_ERROR)
        assert (error.sequence_id, error.error) == (1, ServerError.PersistenceError)
        await one.publish(2)  # the client does not know yet
        assert (await one.expect(T.CLOSE_PRODUCER)).producer_id == 1
        assert (await two.expect(T.CLOSE_PRODUCER)).producer_id == 1
        assert not topic.access.producers
        set_disk_full(broker, False)
        await one.publish(3)  # still after the gap
        await one.nothing_more()
        assert topic.ledger.entries == 1
        await trio.sleep(0.3)  # the topic tries the storage again after 0.2 s
        await one.producer(TOPIC, 2)
        for number in (1, 2, 3):
            await one.publish(number, b"again %d" % number, producer_id=2)
        for number in (1, 2, 3):
            assert (await one.expect(T.SEND_RECEIPT)).sequence_id == number
        entries = await topic.ledger.read((-1, -1), 10, 10_000)
        entries += await topic.ledger.read(
            topic.ledger.next_position(entries[-1].position), 10, 10_000
        )
        assert [entry.metadata.sequence_id for entry in entries] == [0, 1, 2, 3]


async def test_what_comes_while_producers_are_sent_away_is_dropped():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        topic = broker.topic(TOPIC)
        with HeldAppends(topic) as appends:
            await connection.publish(0)
            await connection.publish(1)
            await eventually(lambda: len(appends._held) == 2)
            appends.fail(1)  # the second is still under way, so the producer stays
            assert (await connection.expect(T.SEND_ERROR)).sequence_id == 0
            await connection.publish(2)
            await connection.nothing_more()
            assert topic.ledger.entries == 0
            appends.fail()
            assert (await connection.expect(T.SEND_ERROR)).sequence_id == 1
            await connection.expect(T.CLOSE_PRODUCER)
            await connection.producer(TOPIC, 2)
            for number in range(3):
                await connection.publish(number, producer_id=2)
                assert (await connection.expect(T.SEND_RECEIPT)).sequence_id == number
            entries = await topic.ledger.read((-1, -1), 10, 10_000)
            assert [entry.metadata.sequence_id for entry in entries] == [0, 1, 2]


@pytest.mark.parametrize(
    "kinds", [{"Index"}, {"BrokerTimestamp"}, {"Index", "BrokerTimestamp"}], ids=sorted
)
async def test_an_entry_metadata_interceptor_adds_its_own_field_only(kinds):
    package = "org.apache.pulsar.common.intercept"
    names = tuple(f"{package}.Append{kind}MetadataInterceptor" for kind in sorted(kinds))
    async with running(brokerEntryMetadataInterceptors=names) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        for _ in range(2):  # the second time after a reload
            await publish(connection, 1)
            (entry,) = await broker.topic(TOPIC).ledger.read(
                broker.topic(TOPIC).last_position(), 1, 10_000
            )
            metadata = broker_entry_metadata(entry.data)
            assert metadata.HasField("index") == ("Index" in kinds)
            assert metadata.HasField("broker_timestamp") == ("BrokerTimestamp" in kinds)
            await broker.service.unload_topic(TopicName.parse(TOPIC))
            await connection.expect(T.CLOSE_PRODUCER)
            await connection.producer(TOPIC)


@pytest.mark.parametrize("epoch", ["", "x", "1.5", "1_000", " 1", "\u0661", "9223372036854775808"])
async def test_a_topic_epoch_that_is_no_number_is_damage_that_is_named(epoch):
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        property_ = TOPIC_EPOCH_PROPERTY
        await broker.topic(TOPIC).ledger.change_properties(lambda old: {**old, property_: epoch})
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        await connection.expect(T.CLOSE_PRODUCER)
        with pytest.raises(MetadataError, match=rf"{property_}.*Remove"):
            await broker.service.get_or_load_topic(TopicName.parse(TOPIC), create=False)
