"""Counts, sizes and types that the policies of a topic limit: in force at once, also while it is
used."""

from __future__ import annotations

import pytest

from broker.net.tests.harness import T, running
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually

E = pb.ServerError
S = pb.CommandSubscribe
TOPIC = "persistent://public/default/t"
DOMAINS = ("persistent", "non-persistent")


async def limit_topic(broker, field, value, topic=TOPIC):
    await broker.service.namespaces.set_topic_policy(TopicName.parse(topic), field, value)


async def limit_namespace(broker, **fields):
    await broker.service.namespaces.change_policies(
        "public/default", lambda policies: policies.with_fields(**fields)
    )


async def refused(connection, frame):
    await connection.send(frame)
    answer = await connection.error()
    return answer.error, answer.message


async def publish_result(connection, sequence_id, payload):
    await connection.publish(sequence_id, payload)
    answer = await connection.expect(T.SEND_RECEIPT, T.SEND_ERROR)
    return getattr(answer, "error", None)


@pytest.mark.parametrize("domain", DOMAINS)
async def test_a_message_above_the_size_of_its_topic_is_refused_alone(domain):
    topic = f"{domain}://public/default/t"
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(topic)
        assert await publish_result(connection, 0, b"x" * 500) is None
        await limit_topic(broker, "max_message_size", 200, topic)
        assert await publish_result(connection, 1, b"x" * 500) == E.NotAllowedError
        assert await publish_result(connection, 2, b"x" * 50) is None
        await limit_topic(broker, "max_message_size", None, topic)
        assert await publish_result(connection, 3, b"x" * 500) is None
        [producer] = broker.topic(topic).access.producers.values()
        assert (producer.messages_in, broker.session_of(producer).limited_producers) == (3, 0)


async def test_messages_around_a_refused_one_keep_their_order():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await limit_topic(broker, "max_message_size", 200)
        sizes = [10, 500, 20, 500, 30]
        await connection.send(
            *(
                c.send(1, number, c.message(b"x" * size, sequence_id=number))
                for number, size in enumerate(sizes)
            )
        )
        answers = [await connection.expect(T.SEND_RECEIPT, T.SEND_ERROR) for _ in sizes]
        kept = [each.sequence_id for each in answers if isinstance(each, pb.CommandSendReceipt)]
        assert kept == [0, 2, 4]
        assert sorted(each.sequence_id for each in answers) == [0, 1, 2, 3, 4]


async def test_types_of_subscriptions_that_are_not_enabled_are_refused():
    async with running() as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC, "before", 1, subType=S.Key_Shared)
        await limit_namespace(broker, subscription_types_enabled=["Shared", "Exclusive"])
        code, text = await refused(
            connection,
            c.subscribe(TOPIC, "f", 2, connection.rid(), subType=S.Key_Shared),
        )
        assert code == E.NotAllowedError
        assert text == f"Topic[{{{TOPIC}}}] doesn't support Key_Shared sub type!"
        await connection.subscribe(TOPIC, "s", 3, subType=S.Shared)
        await limit_topic(broker, "subscription_types_enabled", ["Key_Shared"])
        await connection.subscribe(TOPIC, "f", 4, subType=S.Key_Shared)
        code, _ = await refused(
            connection, c.subscribe(TOPIC, "s", 5, connection.rid(), subType=S.Shared)
        )
        assert code == E.NotAllowedError
        assert broker.topic(TOPIC).consumer_count() == 3


async def test_a_non_persistent_topic_takes_subscriptions_of_any_type_and_number():
    topic = f"non-{TOPIC}"
    async with running(maxSubscriptionsPerTopic=1, subscriptionTypesEnabled=("Shared",)) as broker:
        connection = await broker.connect()
        await connection.subscribe(topic, "s", 1, subType=S.Shared)
        await connection.subscribe(topic, "k", 2, subType=S.Key_Shared)
        assert len(broker.topic(topic).subscriptions) == 2


async def test_a_consumer_over_a_limit_leaves_no_subscription():
    busy = (E.ConsumerBusy, "Topic reached max consumers limit")
    async with running() as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC, "s", sub_type=S.Shared)
        await limit_topic(broker, "max_consumers_per_topic", 1)
        await limit_topic(broker, "max_subscriptions_per_topic", 1)
        await limit_topic(broker, "subscription_types_enabled", ["Exclusive"])
        for durable in (True, False):
            frame = c.subscribe(TOPIC, "other", 2, connection.rid(), durable=durable)
            assert await refused(connection, frame) == busy
        # As in Pulsar, a consumer for whom there is no room is told so, whatever its type.
        frame = c.subscribe(TOPIC, "s", 2, connection.rid(), sub_type=S.Shared)
        assert await refused(connection, frame) == busy
        assert list(broker.topic(TOPIC).subscriptions) == ["s"]


async def test_a_topic_with_more_subscriptions_than_its_limit_is_loaded_with_all_of_them():
    async with running() as broker:
        connection = await broker.connect()
        for number, name in enumerate(("a", "b", "c")):
            await connection.subscribe(TOPIC, name, number)
        await limit_topic(broker, "max_subscriptions_per_topic", 1)
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        other = await broker.connect()
        for number, name in enumerate(("a", "b", "c")):
            await other.subscribe(TOPIC, name, number)
        code, _ = await refused(other, c.subscribe(TOPIC, "d", 4, other.rid()))
        assert code == E.NotAllowedError
        assert sorted(broker.topic(TOPIC).subscriptions) == ["a", "b", "c"]


async def test_a_subscription_that_nobody_made_is_missed_before_the_type_is_refused():
    missing = (E.SubscriptionNotFound, "Subscription does not exist")
    async with running(
        allowAutoSubscriptionCreation=False, subscriptionTypesEnabled=("Shared",)
    ) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        for compacted in (True, False):
            frame = c.subscribe(TOPIC, "s", 1, connection.rid(), read_compacted=compacted)
            assert await refused(connection, frame) == missing


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        ("persistent", "readCompacted only allowed on failover or exclusive subscriptions"),
        ("non-persistent", "readCompacted only valid on persistent topics"),
    ],
)
async def test_who_cannot_read_compacted_is_told_after_there_is_room(domain, text):
    topic = f"{domain}://public/default/t"
    async with running(subscriptionTypesEnabled=("Exclusive",)) as broker:
        connection = await broker.connect()
        await connection.subscribe(topic, "s")

        async def compacted(name):
            fields = {"sub_type": S.Shared, "read_compacted": True}
            return await refused(
                connection, c.subscribe(topic, name, 2, connection.rid(), **fields)
            )

        for name in ("s", "other"):
            assert await compacted(name) == (E.NotAllowedError, text)
        assert list(broker.topic(topic).subscriptions) == ["s"]
        await limit_topic(broker, "max_consumers_per_topic", 1, topic)
        for name in ("s", "other"):
            assert (await compacted(name))[0] == E.ConsumerBusy


async def test_a_consumer_over_a_limit_takes_nobodys_place():
    """A silent connection is closed only if it holds what another one asks for."""
    async with running(
        connectionLivenessCheckTimeoutMillis=100, maxConsumersPerSubscription=1
    ) as broker:
        silent, connection = await broker.connect(), await broker.connect()
        await silent.subscribe(TOPIC, "s", 1, subType=S.Shared)
        frame = c.subscribe(TOPIC, "s", 1, connection.rid(), subType=S.Shared)
        code, _ = await refused(connection, frame)
        assert code == E.ConsumerBusy
        assert broker.topic(TOPIC).consumer_count() == 1


@pytest.mark.parametrize("domain", DOMAINS)
async def test_the_consumers_of_a_subscription_are_limited_and_those_above_a_new_limit_stay(domain):
    topic = f"{domain}://public/default/t"
    async with running() as broker:
        connection = await broker.connect()
        for consumer_id in (1, 2, 3):
            await connection.subscribe(topic, "s", consumer_id, subType=S.Shared)
        await limit_topic(broker, "max_consumers_per_subscription", 2, topic)
        frame = c.subscribe(topic, "s", 4, connection.rid(), subType=S.Shared)
        assert await refused(connection, frame) == (
            E.ConsumerBusy,
            "Subscription reached max consumers limit",
        )
        assert broker.topic(topic).consumer_count() == 3
        await limit_topic(broker, "max_consumers_per_subscription", None, topic)
        await connection.subscribe(topic, "s", 5, subType=S.Shared)


@pytest.mark.parametrize(
    "field", ["max_unacked_messages_per_consumer", "max_unacked_messages_per_subscription"]
)
async def test_a_limit_of_unacked_messages_holds_and_frees_consumers_at_once(field):
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        await connection.subscribe(TOPIC, "s", 1, permits=100, subType=S.Shared)
        subscription = broker.topic(TOPIC).subscriptions["s"]

        async def publish(*numbers):
            for number in numbers:
                await connection.publish(number)
                await connection.expect(T.SEND_RECEIPT, T.MESSAGE)

        await publish(0, 1)
        await eventually(lambda: subscription.statistics().unacked_messages == 2)
        await limit_topic(broker, field, 2)
        await publish(2, 3)
        assert subscription.statistics().unacked_messages == 2
        assert "unacked" in subscription.why_not_dispatching() or "maxUnacked" in (
            subscription.why_not_dispatching()
        )
        await limit_namespace(broker, **{field: 50})
        assert subscription.statistics().unacked_messages == 2  # the topic's own is the nearer one
        await limit_topic(broker, field, 3)  # It holds more than half of that.
        await eventually(lambda: subscription.statistics().unacked_messages == 3)
        await limit_topic(broker, field, 4)
        await eventually(lambda: subscription.statistics().unacked_messages == 4)
        await limit_topic(broker, field, None)
        await publish(4)
        await eventually(lambda: subscription.statistics().unacked_messages == 5)


async def test_a_producer_over_a_limit_leaves_no_subscription_and_no_schema():
    schema = pb.Schema(name="", type=pb.Schema.String, schema_data=b"")
    async with running(maxProducersPerTopic=1) as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        frame = c.producer(
            TOPIC, 2, connection.rid(), initial_subscription_name="init", schema=schema
        )
        code, _ = await refused(connection, frame)
        assert code == E.ProducerBusy
        assert not broker.topic(TOPIC).subscriptions
        assert await broker.service.schemas.newest(TopicName.parse(TOPIC)) is None


async def test_a_producer_whose_schema_is_refused_leaves_no_subscription():
    first = pb.Schema(name="", type=pb.Schema.String, schema_data=b"")
    other = pb.Schema(name="", type=pb.Schema.Int64, schema_data=b"")
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC, 1, schema=first)
        frame = c.producer(
            TOPIC, 2, connection.rid(), initial_subscription_name="init", schema=other
        )
        code, _ = await refused(connection, frame)
        assert code == E.IncompatibleSchema
        assert not broker.topic(TOPIC).subscriptions


async def test_producers_of_one_address_are_limited():
    async with running(maxSameAddressProducersPerTopic=1) as broker:
        connection, other = await broker.connect(), await broker.connect()
        await connection.producer(TOPIC)
        code, text = await refused(other, c.producer(TOPIC, 1, other.rid()))
        assert (code, text) == (
            E.ProducerBusy,
            f"Topic '{TOPIC}' reached max same address producers limit",
        )
        await connection.send(c.close_producer(1, connection.rid()))
        await connection.expect(T.SUCCESS)
        await other.producer(TOPIC)


@pytest.mark.parametrize("domain", DOMAINS)
async def test_the_properties_of_a_consumer_are_limited_in_characters(domain):
    topic = f"{domain}://public/default/t"
    async with running(maxConsumerMetadataSize=10) as broker:
        connection = await broker.connect()
        for metadata in (
            {"k": "x" * 10},
            {"a": "12345", "b": "1234"},
            {"k": "\N{GRINNING FACE}" * 5},
        ):
            frame = c.subscribe(topic, "s", 1, connection.rid(), metadata=metadata)
            assert await refused(connection, frame) == (
                E.MetadataError,
                "metadata has a max size of 10 bytes",
            )
        await connection.subscribe(topic, "s", 1, metadata={"k": "\N{LATIN SMALL LETTER E}" * 9})


async def test_the_name_of_a_consumer_is_bounded():
    """A hundred consumers with names of 2 MB took 200 MB of memory."""
    async with running(maxConsumerNameSize=100) as broker:
        connection = await broker.connect()
        frame = c.subscribe(TOPIC, "s", 1, connection.rid(), consumer_name="n" * 101)
        error, message = await refused(connection, frame)
        assert error == E.MetadataError
        assert "maxConsumerNameSize" in message
        await connection.subscribe(TOPIC, "s", 1, consumer_name="n" * 100)


async def test_the_names_and_metadata_of_producers_are_bounded():
    async with running(maxProducerMetadataSize=1000, maxProducerMetadataSizeInMB=1) as broker:
        held = broker.service.services.producer_bytes
        connection, other = await broker.connect(), await broker.connect()
        large = c.key_values({"k": "v" * 1000})
        await connection.send(c.producer(TOPIC, 1, connection.rid(), metadata=large))
        refusal = await connection.error()
        assert refusal.error == E.MetadataError
        assert "maxProducerMetadataSize" in refusal.message
        await connection.send(c.producer(TOPIC, 1, connection.rid(), producer_name="n" * 1001))
        assert (await connection.error()).error == E.MetadataError
        usual = c.key_values({"k": "v" * 900})
        opened = 0
        while True:
            opened += 1
            await connection.send(c.producer(TOPIC, opened, connection.rid(), metadata=usual))
            answer = await connection.expect(T.PRODUCER_SUCCESS, T.ERROR)
            if hasattr(answer, "error"):
                break
        assert answer.error == E.TooManyRequests
        assert 280 < opened < 292  # a quarter of a MB
        assert (await other.producer(TOPIC, metadata=usual)).producer_name
        await connection.send(c.close_producer(1, connection.rid()))
        await connection.expect(T.SUCCESS)
        await connection.producer(TOPIC, 1, metadata=usual)
        await connection.stream.aclose()
        await other.stream.aclose()
        await eventually(lambda: not held.bytes_held)


async def test_producers_that_are_fenced_or_refused_or_dismissed_take_nothing():
    exclusive = pb.ProducerAccessMode.Exclusive
    waits = pb.ProducerAccessMode.WaitForExclusive
    fencing = pb.ProducerAccessMode.ExclusiveWithFencing
    async with running() as broker:
        held = broker.service.services.producer_bytes
        connection = await broker.connect()
        await connection.producer(TOPIC, 1, producer_name="1", producer_access_mode=exclusive)
        await connection.producer(TOPIC, 2, producer_name="22", producer_access_mode=waits)
        await connection.send(c.producer(TOPIC, 3, connection.rid(), producer_name="333"))
        await connection.error()
        assert held.bytes_held == 3
        other = await broker.connect()
        await other.producer(TOPIC, 4, producer_name="4444", producer_access_mode=fencing)
        assert held.bytes_held == 4
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        assert held.bytes_held == 0


async def test_a_producer_that_waited_for_an_epoch_that_is_over_takes_nothing():
    exclusive = pb.ProducerAccessMode.Exclusive
    waits = pb.ProducerAccessMode.WaitForExclusive
    async with running() as broker:
        held = broker.service.services.producer_bytes
        connection = await broker.connect()
        await connection.producer(
            TOPIC, 1, producer_name="1", producer_access_mode=exclusive, topic_epoch=5
        )
        await connection.producer(
            TOPIC, 2, producer_name="22", producer_access_mode=waits, topic_epoch=1
        )
        assert held.bytes_held == 3
        await connection.send(c.close_producer(1, connection.rid()))
        await connection.expect(T.SUCCESS, T.ERROR)
        await eventually(lambda: not held.bytes_held)
