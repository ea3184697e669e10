"""The log of policies at a broker by itself."""

from __future__ import annotations

import contextlib
import dataclasses
import json

import pytest
import structlog
import trio

from broker.assembly.app import running_broker
from broker.http.tests.conftest import CONFIG
from broker.net.tests.harness import running
from broker.peers.owner_connection import LinkLost
from broker.tenancy.change_events.log_part import PERMITS
from broker.tenancy.change_events.namespace_log import FLAWS_TOLD_MAX
from broker.tenancy.namespaces.names import topic_policies_path
from broker.tenancy.policies.change_event_schema import EVENT_SCHEMA_TEXT
from broker.tenancy.policies.topic_events import (
    BATCH_MAX,
    EventSchema,
    event_of,
    policies_in,
)
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.errors import MetadataError, ServiceNotReady, TopicNotFound
from protocol.topic_name import PERSISTENT, TopicName
from runtime.testing.conditions import SECONDS_MAX, eventually

NAME = "public/default"
LOG = TopicName.parse(f"persistent://{NAME}/__change_events")
A = TopicName.parse("a")
LIMIT = "max_producers_per_topic"
CLUSTER = "standalone"
SCHEMA = EventSchema()


async def level_of(broker):
    return (await broker.service.namespaces.get(NAME)).topic_level


async def load(broker, name=A):
    return await broker.service.get_or_load_topic(name, create=True)


async def set_limit(broker, value, name=A):
    await broker.service.namespaces.set_topic_policy(name, LIMIT, value)


def limit_of(topic):
    return topic.policies.effective.counts.producers_max


async def messages_in_log(connection, name=LOG):
    """(key, has no value, policies) of each message, as a client sees them."""
    await connection.subscribe(
        name.full, "r", permits=1000, durable=False, start_message_id=c._wire((-1, -1))
    )
    await connection.send(c.get_last_message_id(1, connection.rid()))
    found = []
    last = None
    while last is None or not found or found[-1][0] < last:
        command, payload = await connection.next()
        if command.type == pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE:
            last = command.getLastMessageIdResponse.last_message_id.entryId
            continue
        (message,) = c.received_messages(command, payload)
        found.append((command.message.message_id.entryId, message))
    return [message for _entry, message in found]


async def test_a_namespace_without_policies_of_topics_has_no_log():
    async with running() as broker:
        await load(broker)
        await set_limit(broker, None)
        assert not await broker.service.namespaces.topic_exists(LOG)
        assert (await level_of(broker)).is_current


async def test_a_change_is_in_force_when_it_is_answered_and_kept_in_pulsars_form():
    async with running() as broker:
        topic = await load(broker)
        for value in (5, 6):
            await set_limit(broker, value)
            assert limit_of(topic) == value
        await broker.service.namespaces.set_topic_policy(A, LIMIT, 7, is_global=True)
        assert limit_of(topic) == 6
        await set_limit(broker, None)
        assert limit_of(topic) == 7
        connection = await broker.connect()
        messages = await messages_in_log(connection)
        keys = [each.metadata.partition_key for each in messages]
        assert keys == [A.full, A.full, f"__G__{A.full}", A.full]
        first, _second, for_all, end = messages
        assert policies_in(SCHEMA.read(first.payload), A.full) == {"maxProducerPerTopic": 5}
        assert list(first.metadata.replicate_to) == [CLUSTER]
        assert not for_all.metadata.replicate_to
        assert (end.metadata.null_value, end.payload) == (True, b"")
        version = first.metadata.schema_version
        await connection.send(c.get_schema(LOG.full, connection.rid(), version))
        answer = await connection.expect(pb.BaseCommand.GET_SCHEMA_RESPONSE)
        assert answer.schema.schema_data.decode() == EVENT_SCHEMA_TEXT


async def test_the_log_keeps_its_messages_and_has_no_limits_of_tenants():
    async with running(maxConsumersPerTopic=1, maxProducersPerTopic=1) as broker:
        await set_limit(broker, 5)
        log = broker.service.topics[LOG.full]
        assert log.ledger.cursors["__compaction"].mark_delete[1] == -1
        assert log.policies.effective.counts.consumers_max == 0
        assert log.policies.effective.schema_strategy == "ALWAYS_COMPATIBLE"
        names = await broker.service.namespaces.topics(NAME, PERSISTENT, with_system=False)
        assert LOG.full not in names


async def test_no_rate_of_the_namespace_its_group_or_the_broker_holds_up_policies():
    """A group whose budget is used up by its messages, or a rate of a byte a second, would keep the
    policies of topics from being set and read, and so topics from being loaded."""
    slow = {
        "publishMaxMessageRate": {CLUSTER: {"publishThrottlingRateInByte": 1}},
        "topicDispatchRate": {
            CLUSTER: {"dispatchThrottlingRateInByte": 1, "ratePeriodInSecond": 1000}
        },
        "clusterSubscribeRate": {
            CLUSTER: {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 1000}
        },
        "resource_group_name": "g",
    }
    broker_rates = {"brokerPublisherThrottlingMaxByteRate": 1, "dispatchThrottlingRateInByte": 1}
    async with running(**broker_rates) as broker:
        namespaces = broker.service.namespaces
        await namespaces.resource_groups.create_or_change(
            "g", {"publishRateInBytes": 1, "dispatchRateInBytes": 1}
        )
        topic = await load(broker)
        await namespaces.change_policies(NAME, lambda record: record.with_fields(**slow))
        with trio.fail_after(SECONDS_MAX):
            for value in range(1, 9):
                await set_limit(broker, value)
                assert limit_of(topic) == value
            await broker.service.unload_topic(LOG)
            await broker.service.unload_topic(A)
            assert limit_of(await load(broker)) == 8


async def test_policies_of_a_deleted_topic_are_deleted_and_those_of_others_stay():
    async with running() as broker:
        other = TopicName.parse("b")
        for name in (A, other):
            await load(broker, name)
            await set_limit(broker, 5, name)
        await broker.service.delete_topic(A)
        level = await level_of(broker)
        assert list(level.map.fields) == [(PERSISTENT, "b")]
        assert limit_of(await load(broker)) == 0


async def test_a_log_that_is_unloaded_is_followed_again():
    async with running() as broker:
        topic = await load(broker)
        await set_limit(broker, 5)
        await broker.service.unload_topic(LOG)
        await set_limit(broker, 6)
        assert limit_of(topic) == 6
        level = await level_of(broker)
        await eventually(lambda: level.is_live)


async def test_without_the_log_topics_have_no_policies_of_their_own():
    async with running() as broker:
        topic = await load(broker)
        await set_limit(broker, 5)
        await broker.service.delete_topic(LOG, force=True)
        await eventually(lambda: limit_of(topic) == 0)
        with trio.fail_after(SECONDS_MAX):
            while limit_of(topic) != 6:
                # The producer of the log may learn later than its reader that the log is gone.
                with contextlib.suppress(ServiceNotReady):
                    await set_limit(broker, 6)
                await trio.lowlevel.checkpoint()
        assert limit_of(topic) == 6


async def publish(connection, sequence_id, key, payload, **fields):
    message = c.message(payload, sequence_id=sequence_id, partition_key=key, **fields)
    await connection.send(c.send(9, sequence_id, message))
    await connection.expect(pb.BaseCommand.SEND_RECEIPT)


async def test_damaged_messages_concern_their_topic_alone_until_a_change_replaces_them():
    async with running() as broker:
        topic, other = await load(broker), TopicName.parse("b")
        await set_limit(broker, 5)
        connection = await broker.connect()
        await connection.producer(LOG.full, 9)
        for number, (key, payload) in enumerate(
            [("", b"x"), ("no://topic", b"x"), (A.full, b"\xff" * 9), (other.full, b"")]
        ):
            await publish(connection, number, key, payload)
        level = await level_of(broker)
        await eventually(lambda: level.map.damage)
        assert limit_of(topic) == 5
        with pytest.raises(MetadataError, match="damaged"):
            await broker.service.namespaces.of_topic(A)
        await load(broker, other)
        await broker.service.unload_topic(A)
        with pytest.raises(MetadataError, match="damaged"):
            await load(broker)
        await set_limit(broker, 6)
        assert limit_of(await load(broker)) == 6


async def test_policies_that_cannot_be_in_force_or_whose_schema_is_of_no_use_are_replaced():
    """Both say that any change replaces them."""
    loop = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}
    definition = json.loads(EVENT_SCHEMA_TEXT)
    definition["fields"].append({"name": "z", "type": loop})
    schema = pb.Schema(name="s", type=pb.Schema.Avro, schema_data=json.dumps(definition).encode())
    quorums = dict.fromkeys(
        ("bookkeeperAckQuorum", "bookkeeperEnsemble", "bookkeeperWriteQuorum"), 0
    )
    bad = {"persistence": {**quorums, "managedLedgerMaxMarkDeleteRate": 0.0}}
    for is_unreadable in (False, True):
        async with running() as broker:
            await load(broker)
            await set_limit(broker, 5)
            connection = await broker.connect()
            version = b""
            if is_unreadable:
                answer = await connection.producer(LOG.full, 9, schema=schema)
                version = answer.schema_version
            else:
                await connection.producer(LOG.full, 9)
            payload = b"x" if is_unreadable else SCHEMA.write(event_of(A.full, bad, CLUSTER))
            await publish(connection, 0, A.full, payload, schema_version=version)
            level = await level_of(broker)
            await eventually(lambda level=level: level.map.damage)
            await set_limit(broker, 6)
            assert not level.map.damage
            assert limit_of(await load(broker)) == 6


async def test_of_many_messages_that_cannot_be_used_the_first_are_told():
    async with running() as broker:
        await set_limit(broker, 5)
        connection = await broker.connect()
        await connection.producer(LOG.full, 9)
        with structlog.testing.capture_logs() as logs:
            for number in range(FLAWS_TOLD_MAX + 20):
                await publish(connection, number, A.full + "x" * 5_000, b"x")
            await set_limit(broker, 6)
        told = [each for each in logs if each["log_level"] == "error"]
        assert len(told) == FLAWS_TOLD_MAX + 1
        assert max(len(str(each)) for each in told) < 1_000


async def test_messages_that_cannot_be_of_pulsar_are_ignored_and_the_log_is_read_on():
    """A text that is no UTF-8 is bytes, a batch may have a million messages, and a key may name
    a topic of another namespace."""
    async with running() as broker:
        topic = await load(broker)
        await set_limit(broker, 5)
        connection = await broker.connect()
        await connection.producer(LOG.full, 9)
        elsewhere = "persistent://public/other/a"
        value = SCHEMA.write(event_of(elsewhere, {"maxProducerPerTopic": 1}, CLUSTER))
        await publish(connection, 0, elsewhere, value)
        for number, null_value in enumerate((True, False), 1):
            message = c.message(
                b"x",
                checksum=False,
                sequence_id=number,
                partition_key="kkkk",
                null_value=null_value,
            )
            broken = message.replace(b"kkkk", b"\xff\xfe\xff\xfe")
            await connection.send(c.send(9, number, broken))
            await connection.expect(pb.BaseCommand.SEND_RECEIPT)
        many = c.batch([b""] * (BATCH_MAX + 1), sequence_id=3)
        await connection.send(c.send(9, 3, many, num_messages=BATCH_MAX + 1))
        await connection.expect(pb.BaseCommand.SEND_RECEIPT)
        level = await level_of(broker)
        await set_limit(broker, 6)
        assert limit_of(topic) == 6
        assert not level.map.damage
        await broker.service.unload_topic(LOG)
        await set_limit(broker, 7)
        assert limit_of(topic) == 7


async def test_what_another_wrote_in_between_is_kept():
    """The owner of a topic makes one change after another; but its bundle may have just moved."""
    async with running() as broker:
        topic = await load(broker)
        await set_limit(broker, 5)
        connection = await broker.connect()
        await connection.producer(LOG.full, 9)
        level = await level_of(broker)
        log = next(iter(broker.service.namespaces.policy_log._logs.values()))
        publish_own, others = log._publish, [{"maxConsumerPerTopic": 3, "maxProducerPerTopic": 5}]

        async def after_another(key, policies, base):
            while others:
                event = event_of(A.full, others.pop(), CLUSTER)
                await publish(connection, 0, A.full, SCHEMA.write(event))
            return await publish_own(key, policies, base)

        log._publish = after_another
        await set_limit(broker, 6)
        counts = topic.policies.effective.counts
        assert (counts.producers_max, counts.consumers_max) == (6, 3)
        fields = {LIMIT: 6, "max_consumers_per_topic": 3}
        assert level.map.own_fields(A, is_global=False) == fields


async def test_a_change_that_may_have_been_made_is_not_called_impossible():
    """When the broker stops between a change and its answer."""
    async with running() as broker:
        await load(broker)
        await set_limit(broker, 5)
        log = next(iter(broker.service.namespaces.policy_log._logs.values()))
        publish_own = log._publish

        async def lost(key, policies, base):
            await publish_own(key, policies, base)
            log._has_ended = True
            raise LinkLost("the broker stops")

        log._publish = lost
        with pytest.raises(ServiceNotReady, match="The change may have been made"):
            await set_limit(broker, 6)
        with pytest.raises(ServiceNotReady) as caught:
            await set_limit(broker, 7)
        assert "may have been made" not in str(caught.value)


async def test_policies_of_very_many_topics_are_read():
    count = 5 * PERMITS
    async with running() as broker:
        await load(broker)
        await set_limit(broker, 5)
        connection = await broker.connect()
        await connection.producer(LOG.full, 9)
        for number in range(count):
            key = f"persistent://{NAME}/t{number}"
            event = event_of(key, {"maxProducerPerTopic": number + 1}, CLUSTER)
            await publish(connection, number, key, SCHEMA.write(event))
        level = await level_of(broker)
        await broker.service.unload_topic(LOG)
        await eventually(lambda: not level.is_live)  # messages of others are in force once read
        last = TopicName.parse(f"t{count - 1}")
        assert limit_of(await load(broker, last)) == count
        assert len((await level_of(broker)).map.fields) == count + 1


NODES = topic_policies_path(NAME, PERSISTENT)


async def test_records_of_the_metadata_store_are_taken_over_once(tmp_path):
    async with running_broker(CONFIG, tmp_path) as broker:
        store = broker.admin.store
        for name in ("a", "p", "kept"):
            await load(broker, TopicName.parse(name))
        await set_limit(broker, 8, TopicName.parse("kept"))
    async with running_broker(CONFIG, tmp_path) as broker:
        store = broker.admin.store
        for name, record in (
            (
                "a",
                {LIMIT: 5, "publishMaxMessageRate": {CLUSTER: {"publishThrottlingRateInMsg": 3}}},
            ),
            ("kept", {LIMIT: 1}),
            ("gone", {}),
            ("odd", {"unheard_of": 1}),
        ):
            await store.put(f"{NODES}/{name}", json.dumps(record).encode(), None)
        topic = await load(broker)
        assert limit_of(topic) == 5
        assert topic.policies.effective.rates.publish.messages_per_second == 3
        assert limit_of(await load(broker, TopicName.parse("kept"))) == 8
        assert await store.children(NODES) == ["odd"]
        with pytest.raises(MetadataError, match="unheard_of"):
            await load(broker, TopicName.parse("odd"))
    async with running_broker(CONFIG, tmp_path) as broker:
        assert limit_of(await load(broker)) == 5


async def test_policies_survive_restarts(tmp_path):
    for value in (5, 6, None):
        async with running_broker(CONFIG, tmp_path) as broker:
            topic = await load(broker)
            await set_limit(broker, value)
            assert limit_of(topic) == (value or 0)
        async with running_broker(CONFIG, tmp_path) as broker:
            assert limit_of(await load(broker)) == (value or 0)


async def test_a_change_whose_answer_was_lost_is_in_force_or_not_made(tmp_path):
    async with running_broker(CONFIG, tmp_path) as broker:
        topic = await load(broker)
        await set_limit(broker, 5)
        with trio.move_on_after(0) as scope:
            await set_limit(broker, 6)
        assert scope.cancelled_caught
    async with running_broker(CONFIG, tmp_path) as broker:
        assert limit_of(await load(broker)) in (5, 6)
        await set_limit(broker, 7)
        assert limit_of(await load(broker)) == 7
    assert topic.closing


@pytest.mark.parametrize("key", ["topicLevelPoliciesEnabled", "systemTopicEnabled"])
async def test_switched_off_topics_have_no_policies(key, tmp_path):
    async with running_broker(CONFIG, tmp_path) as broker:
        await load(broker)
        await set_limit(broker, 5)
    off = dataclasses.replace(CONFIG, **{key: False})
    async with running_broker(off, tmp_path) as broker:
        assert limit_of(await load(broker)) == 0
        await broker.service.delete_topic(A)


async def test_a_partitioned_log_is_read_and_written():
    """A broker of Pulsar partitions it if it partitions all topics that it creates."""
    async with running() as broker:
        await broker.service.namespaces.create_partitioned_topic(LOG, 3)
        names = [TopicName.parse(f"t{number}") for number in range(6)]
        for number, name in enumerate(names):
            await load(broker, name)
            await set_limit(broker, number + 1, name)
        found = [limit_of(await load(broker, name)) for name in names]
        assert found == [1, 2, 3, 4, 5, 6]
        written = [each for each in broker.service.topics if each.startswith(LOG.full)]
        assert sorted(written) == [f"{LOG.full}-partition-{index}" for index in range(3)]


async def test_clients_may_not_create_topics_but_policies_can_be_set():
    async with running(allowAutoTopicCreation=False) as broker:
        with pytest.raises(TopicNotFound):
            await load(broker)
        name = TopicName.parse("p-partition-0")
        await broker.service.namespaces.create_partitioned_topic(TopicName.parse("p"), 1)
        await set_limit(broker, 5, TopicName.parse("p"))
        assert limit_of(await load(broker, name)) == 5
