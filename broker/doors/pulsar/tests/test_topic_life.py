"""What the policies of a topic decide about it: when it goes, which delays its messages may have,
whether it deduplicates. In force at once, also while the topic is used."""

from __future__ import annotations

import pytest

from broker.net.tests.harness import T, running
from broker.topics.topic.dedup_store import DEDUP_CURSOR
from broker.topics.topic.housekeeping import Housekeeping, is_unused
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.topic_name import TopicName

E = pb.ServerError
TOPIC = "persistent://public/default/t"
PARTS = TopicName.parse("persistent://public/default/parts")
CAUGHT_UP = "delete_when_subscriptions_caught_up"


async def set_for_topic(broker, field, value, topic=TOPIC):
    await broker.service.namespaces.set_topic_policy(TopicName.parse(topic), field, value)


async def set_for_namespace(broker, **fields):
    await broker.service.namespaces.change_policies(
        "public/default", lambda policies: policies.with_fields(**fields)
    )


def idle(seconds, mode="delete_when_no_subscriptions", deletes=True):
    return {
        "inactiveTopicDeleteMode": mode,
        "maxInactiveDurationSeconds": seconds,
        "deleteWhileInactive": deletes,
    }


async def load(broker, name=TOPIC):
    return await broker.service.get_or_load_topic(TopicName.parse(name), create=True)


async def test_the_nearest_level_decides_when_an_unused_topic_goes():
    async with running(brokerDeleteInactiveTopicsFrequencySeconds=60) as broker:
        topic = await load(broker)
        now = topic.active_at
        assert [is_unused(topic, now + each) for each in (59, 60)] == [False, True]
        await set_for_namespace(broker, inactive_topic_policies=idle(10))
        assert [is_unused(topic, now + each) for each in (9, 10)] == [False, True]
        await set_for_topic(broker, "inactive_topic_policies", idle(5, deletes=False))
        assert not is_unused(topic, now + 1000)
        await set_for_topic(broker, "inactive_topic_policies", idle(5))
        assert [is_unused(topic, now + each) for each in (4, 5)] == [False, True]
        await set_for_topic(broker, "inactive_topic_policies", None)
        await set_for_namespace(broker, inactive_topic_policies=None)
        assert [is_unused(topic, now + each) for each in (59, 60)] == [False, True]


async def test_a_topic_goes_when_its_subscriptions_are_caught_up():
    async with running() as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        topic = await load(broker)
        await set_for_topic(broker, "inactive_topic_policies", idle(0))
        assert not is_unused(topic, topic.active_at + 1)
        await set_for_topic(broker, "inactive_topic_policies", idle(0, CAUGHT_UP))
        assert not is_unused(topic, topic.active_at + 1)  # a consumer is connected
        await connection.send(c.close_consumer(1, connection.rid()))
        await connection.expect(T.SUCCESS)
        assert is_unused(topic, topic.active_at + 1)
        await connection.producer(TOPIC)
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        await connection.send(c.close_producer(1, connection.rid()))
        await connection.expect(T.SUCCESS)
        assert not is_unused(topic, topic.active_at + 1)  # it has a backlog


async def test_retention_of_a_topic_keeps_it():
    retained = {"retentionTimeInMinutes": 1, "retentionSizeInMB": -1}
    async with running(defaultRetentionTimeInMinutes=0, defaultRetentionSizeInMB=0) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        await connection.send(c.close_producer(1, connection.rid()))
        await connection.expect(T.SUCCESS)
        topic = await load(broker)
        await set_for_topic(broker, "inactive_topic_policies", idle(0))
        await set_for_topic(broker, "retention_policies", retained)
        assert topic.ledger.policies.retention.time_minutes == 1
        assert not is_unused(topic, topic.active_at + 59)
        assert is_unused(topic, topic.active_at + 60)


@pytest.mark.parametrize("enabled", [True, False])
async def test_a_partitioned_topic_goes_with_its_last_partition(enabled, mock_clock):
    settings = {"brokerDeleteInactivePartitionedTopicMetadataEnabled": enabled}
    async with running(brokerDeleteInactiveTopicsFrequencySeconds=60, **settings) as broker:
        namespaces = broker.service.namespaces
        await namespaces.create_partitioned_topic(PARTS, 3)
        for index in range(3):
            await load(broker, PARTS.partition(index).full)
        keeper = Housekeeping(broker.service, broker.service.services)
        kept = broker.topic(PARTS.partition(1).full)
        connection = await broker.in_memory()
        await connection.handshake()
        await connection.producer(kept.name.full)
        await set_for_namespace(broker, inactive_topic_policies=idle(0))
        assert list(await keeper._collect_now()) == [PARTS]
        await broker.service.collect_partitioned(PARTS)
        assert await namespaces.partitions_of(PARTS) == 3
        await connection.send(c.close_producer(1, connection.rid()))
        await connection.expect(T.SUCCESS)
        await broker.let_pass(mock_clock, 61, step_seconds=1)
        assert kept.name.full not in broker.service.topics
        assert await namespaces.partitions_of(PARTS) == (0 if enabled else 3)


async def test_a_partition_that_went_is_not_listed_until_it_is_used_again():
    async with running(brokerDeleteInactiveTopicsMaxInactiveDurationSeconds=0) as broker:
        await broker.service.namespaces.create_partitioned_topic(PARTS, 2)
        lists = broker.service.topic_lists
        parts = [PARTS.partition(index).full for index in range(2)]
        assert await lists.existing(PARTS.namespace_name, PARTS.domain) == parts
        await broker.service.collect_idle(await load(broker, parts[0]))
        assert await lists.existing(PARTS.namespace_name, PARTS.domain) == parts[1:]
        await (await broker.connect()).producer(parts[0])
        assert await lists.existing(PARTS.namespace_name, PARTS.domain) == parts


def delayed(sequence_id, delay_ms):
    metadata = {} if delay_ms is None else {"deliver_at_time": 1_000 + delay_ms}
    message = c.message(b"x", sequence_id=sequence_id, publish_time=1_000, **metadata)
    return c.send(1, sequence_id, message)


async def results(connection, *delays):
    await connection.send(*(delayed(*each) for each in enumerate(delays)))
    answers = [await connection.expect(T.SEND_RECEIPT, T.SEND_ERROR) for _ in delays]
    return {each.sequence_id: getattr(each, "message", "") for each in answers}


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_longer_delays_than_a_topic_allows_are_refused_alone(domain):
    topic = f"{domain}://public/default/t"
    refusal = "Exceeds max allowed delivery delay of 500 milliseconds"
    policy = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 500}
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(topic)
        assert set((await results(connection, None, 501)).values()) == {""}
        await set_for_topic(broker, "delayed_delivery_policies", policy, topic)
        told = await results(connection, None, 500, 501, -5, 10**12)
        assert told == {0: "", 1: "", 2: refusal, 3: "", 4: refusal}
        await set_for_topic(broker, "delayed_delivery_policies", {**policy, "active": False}, topic)
        assert set((await results(connection, 501)).values()) == {""}
        await set_for_topic(broker, "delayed_delivery_policies", None, topic)
        [producer] = broker.topic(topic).access.producers.values()
        assert broker.session_of(producer).limited_producers == 0


async def test_deduplication_of_a_topic_begins_and_ends_at_once():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, producer_name="p")
        topic = broker.topic(TOPIC)
        await set_for_topic(broker, "deduplicationEnabled", True)
        assert DEDUP_CURSOR in topic.ledger.cursors
        for sequence_id in (5, 5):
            await connection.publish(sequence_id)
            await connection.expect(T.SEND_RECEIPT)
        assert topic.last_position()[1] == 0
        await set_for_topic(broker, "deduplicationEnabled", False)
        assert DEDUP_CURSOR not in topic.ledger.cursors
