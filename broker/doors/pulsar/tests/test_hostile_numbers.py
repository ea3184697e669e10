"""Numbers at the edges of their types, in every place where a client may set one.

The client that sends them gets an answer or loses its connection. Other clients are not affected,
and the counts of the broker stay correct.
"""

from __future__ import annotations

import pytest
import trio

from broker.net.tests.harness import T, running
from broker.topics.topic.tests.dedup_of import dedup_of
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.metadata import add_broker_entry_metadata
from runtime.testing.conditions import SECONDS_MAX

TOPIC = "persistent://public/default/t"
INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)
UINT32_MAX = 2**32 - 1
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
UINT64_MAX = 2**64 - 1
TYPES = [
    pb.CommandSubscribe.Exclusive,
    pb.CommandSubscribe.Shared,
    pb.CommandSubscribe.Failover,
    pb.CommandSubscribe.Key_Shared,
]

CLAIMS = {
    "of SEND": (c.message(b"x"), INT32_MAX),
    "of SEND, negative": (c.message(b"x"), -5),
    "of SEND, none": (c.message(b"x"), 0),
    "of the metadata": (c.message(b"x", num_messages_in_batch=INT32_MAX), 1),
    "of the metadata, negative": (c.message(b"x", num_messages_in_batch=INT32_MIN), 1),
    "of the metadata, none": (c.message(b"x", num_messages_in_batch=0), 1),
    "of both, more than have room": (c.message(b"x" * 50, num_messages_in_batch=1000), 1000),
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("sub_type", TYPES, ids=pb.CommandSubscribe.SubType.Name)
async def test_an_impossible_number_of_messages_counts_as_one(claim, sub_type):
    message, claimed = CLAIMS[claim]
    async with running() as broker:
        bad = await broker.connect()
        await bad.producer(TOPIC)
        good = await broker.connect()
        await good.subscribe(TOPIC, sub_type=sub_type, permits=10)
        if sub_type == pb.CommandSubscribe.Failover:
            await good.expect(T.ACTIVE_CONSUMER_CHANGE)
        await bad.send(c.send(1, 0, message, num_messages=claimed))
        await good.expect(T.MESSAGE)
        await good.send(c.consumer_stats(1, good.rid()), c.get_last_message_id(1, good.rid()))
        answers = [
            await good.expect(T.CONSUMER_STATS_RESPONSE, T.GET_LAST_MESSAGE_ID_RESPONSE)
            for _ in range(2)
        ]
        for answer in answers:
            if isinstance(answer, pb.CommandConsumerStatsResponse):
                assert answer.availablePermits == 9
                assert not answer.error_message
                assert answer.unackedMessages <= 1
            else:
                assert answer.last_message_id.batch_index in (-1, 0)
        await bad.expect(T.SEND_RECEIPT)
        await bad.publish(1)
        await good.expect(T.MESSAGE)
        topic = broker.topic(TOPIC)
        assert sum(each.messages_in for each in topic.access.producers.values()) == 2


async def test_entries_stored_with_impossible_numbers_are_read_back_as_one_message():
    """They are in the ledgers of brokers that did not check."""
    async with running(managedLedgerCacheSizeMB=1) as broker:
        bad = await broker.connect()
        await bad.producer(TOPIC)
        for at, (message, claimed) in enumerate(CLAIMS.values()):
            await bad.send(c.send(1, at, message, num_messages=claimed))
            await bad.expect(T.SEND_RECEIPT)
        await broker.service.unload_topic(broker.topic(TOPIC).name)
        good = await broker.connect()
        await good.subscribe(TOPIC, permits=20, initialPosition=pb.CommandSubscribe.Earliest)
        for _ in CLAIMS:
            await good.expect(T.MESSAGE)
        await good.send(c.consumer_stats(1, good.rid()))
        answer = await good.expect(T.CONSUMER_STATS_RESPONSE)
        assert answer.availablePermits == 20 - len(CLAIMS)


async def test_indexes_of_entries_grow_by_what_is_stored():
    names = ("org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",)
    async with running(brokerEntryMetadataInterceptors=names) as broker:
        bad = await broker.connect()
        await bad.producer(TOPIC)
        for at, (message, claimed) in enumerate(CLAIMS.values()):
            await bad.send(c.send(1, at, message, num_messages=claimed))
            await bad.expect(T.SEND_RECEIPT)
        assert broker.topic(TOPIC).message_index == len(CLAIMS) - 1


async def test_an_index_that_a_producer_has_made_up_is_not_continued():
    names = ("org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",)
    async with running(brokerEntryMetadataInterceptors=names) as broker:
        service = broker.service
        services = service.services
        interceptor, services.entry_interceptor = services.entry_interceptor, None
        bad = await broker.connect()
        await bad.producer(TOPIC)
        message = add_broker_entry_metadata(c.message(b"x"), 1, UINT64_MAX)
        await bad.send(c.send(1, 1, message))
        await bad.expect(T.SEND_RECEIPT)
        services.entry_interceptor = interceptor
        await service.unload_topic(broker.topic(TOPIC).name)
        good = await broker.connect()
        await good.producer(TOPIC)
        await good.publish(1)
        await good.expect(T.SEND_RECEIPT)


METADATA = {
    "times": {"publish_time": UINT64_MAX, "event_time": UINT64_MAX},
    "delayed": {"deliver_at_time": INT64_MIN},
    "sizes": {"uncompressed_size": UINT32_MAX, "compression": pb.LZ4},
    "chunks": {
        "uuid": "u",
        "num_chunks_from_msg": INT32_MIN,
        "total_chunk_msg_size": INT32_MAX,
        "chunk_id": INT32_MIN,
    },
    "sequence": {"sequence_id": UINT64_MAX, "highest_sequence_id": UINT64_MAX},
    "transaction": {"txnid_most_bits": UINT64_MAX, "txnid_least_bits": UINT64_MAX},
}


@pytest.mark.parametrize("name", METADATA)
@pytest.mark.parametrize("settings", [{}, {"brokerDeduplicationEnabled": True}], ids=str)
async def test_metadata_at_the_edges_harms_nobody(name, settings):
    settings = {**settings, "broadcastSubscriptionNamePattern": "all"}
    async with running(**settings) as broker:
        bad = await broker.connect()
        await bad.producer(TOPIC, producer_name="producer")  # as in its metadata
        others = await broker.connect()
        kinds = {"all": TYPES[0], "s": TYPES[1], "k": TYPES[3]}
        for number, (subscription, kind) in enumerate(kinds.items()):
            await others.subscribe(TOPIC, subscription, number, permits=100, sub_type=kind)
        fields = {"sequence_id": 1, **METADATA[name]}
        sequence_id = fields["sequence_id"]
        await bad.send(c.send(1, sequence_id, c.message(b"x", **fields)))
        await bad.expect(T.SEND_RECEIPT)
        good = await broker.connect()
        await good.producer(TOPIC, producer_name="good")
        await good.publish(5)
        await good.expect(T.SEND_RECEIPT)
        topic = broker.topic(TOPIC)
        if dedup_of(topic) is not None:
            await dedup_of(topic).snapshot()
        topic.update_rates(1.0, broker.service.clock.now())
        for subscription in topic.subscriptions.values():
            subscription.statistics()
        await broker.service.unload_topic(topic.name)
        again = await broker.connect()
        await again.producer(TOPIC, producer_name="good")
        await again.publish(6)
        await again.expect(T.SEND_RECEIPT)


def requests(topic):
    """Requests with numbers at the edges; the first of each is one that is answered."""
    shared = pb.CommandSubscribe.Shared
    identifier = pb.MessageIdData(
        ledgerId=UINT64_MAX,
        entryId=UINT64_MAX,
        partition=INT32_MIN,
        batch_index=INT32_MIN,
        batch_size=INT32_MIN,
        ack_set=[INT64_MIN] * 1000,
    )
    return {
        "request id": [c.lookup(topic, UINT64_MAX)],
        "producer id": [c.producer(topic, UINT64_MAX, 1)],
        "producer epochs": [c.producer(topic, 3, 1, epoch=UINT64_MAX, topic_epoch=UINT64_MAX)],
        "consumer id": [c.subscribe(topic, "s1", UINT64_MAX, 1), c.flow(UINT64_MAX, 1)],
        "priority": [c.subscribe(topic, "s2", 3, 1, shared, priority_level=INT32_MIN)],
        "priority, largest": [c.subscribe(topic, "s2", 3, 1, shared, priority_level=INT32_MAX)],
        "consumer epoch": [
            c.subscribe(topic, "s3", 3, 1, consumer_epoch=UINT64_MAX),
            c.flow(3, 5),
            c.redeliver_unacknowledged(3, consumer_epoch=UINT64_MAX),
        ],
        "rollback": [
            c.subscribe(topic, "s4", 3, 1, start_message_rollback_duration_sec=UINT64_MAX)
        ],
        "start": [c.subscribe(topic, "s5", 3, 1, durable=False, start_message_id=identifier)],
        "permits": [c.subscribe(topic, "s6", 3, 1), c.flow(3, INT32_MAX), c.flow(3, INT32_MAX)],
        "acks": [
            c.subscribe(topic, "s7", 3, 1),
            c.ack(3, [identifier], request_id=UINT64_MAX),
            c.ack(3, [identifier], cumulative=True, request_id=2),
        ],
        "redelivery": [
            c.subscribe(topic, "s8", 3, 1, shared),
            c.flow(3, 5),
            c.redeliver_unacknowledged(3, [identifier]),
        ],
        "partitions": [c.partitioned_metadata(f"{topic}-partition-{UINT64_MAX}", 1)],
        "partition": [c.producer(f"{topic}-partition-{10**30}", 3, 1)],
    }


@pytest.mark.parametrize("name", requests(TOPIC))
async def test_requests_at_the_edges_are_answered_and_harm_nobody(name):
    async with running() as broker:
        good = await broker.connect()
        await good.producer(TOPIC)
        await good.subscribe(TOPIC, permits=100)
        bad = await broker.connect()
        frames = requests(TOPIC)[name]
        await bad.send(frames[0])
        assert await bad.next() is not None
        await bad.send(*frames[1:])
        for number in range(3):
            await good.publish(number)
            kinds = {(await good.next())[0].type for _ in range(2)}
            assert kinds == {T.SEND_RECEIPT, T.MESSAGE}
        topic = broker.topic(TOPIC)
        for subscription in topic.subscriptions.values():
            for row in subscription.statistics().consumers:
                assert -10 <= row.available_permits <= INT32_MAX
        await good.send(c.consumer_stats(1, 77))
        assert (await good.expect(T.CONSUMER_STATS_RESPONSE)).availablePermits == 97


@pytest.mark.parametrize("time_ms", [0, 1, INT64_MAX, UINT64_MAX])
async def test_a_seek_to_any_time_is_answered(time_ms):
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        await connection.subscribe(TOPIC)
        await connection.send(c.seek(1, 9, publish_time=time_ms))
        with trio.fail_after(SECONDS_MAX):
            await connection.expect(T.CLOSE_CONSUMER)
            await connection.expect(T.SUCCESS, T.ERROR)


async def test_a_delay_of_ages_holds_back_its_message_only():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.subscribe(TOPIC, sub_type=pb.CommandSubscribe.Shared, permits=10)
        for at, when in enumerate((INT64_MAX, INT64_MIN, -1, 0)):
            await connection.send(c.send(1, at, c.message(b"m%d" % at, deliver_at_time=when)))
        arrived = []
        for _ in range(7):
            command, payload = await connection.next()
            if command.type == T.MESSAGE:
                arrived.append(payload[-2:])
        assert sorted(arrived) == [b"m1", b"m2", b"m3"]
