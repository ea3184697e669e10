"""Finding topics."""

from __future__ import annotations

import pytest
import trio

from broker.net.tests.harness import T, running
from broker.peers.broker_address import BrokerAddress
from broker.peers.ownership import Whereabouts
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.topic_name import TopicName


async def metadata_of(connection, topic, **fields):
    await connection.send(c.partitioned_metadata(topic, connection.rid(), **fields))
    return await connection.expect(T.PARTITIONED_METADATA_RESPONSE)


async def lookup_of(connection, topic, **fields):
    await connection.send(c.lookup(topic, connection.rid(), **fields))
    return await connection.expect(T.LOOKUP_RESPONSE)


async def test_asking_for_a_topic_does_not_create_it():
    async with running() as broker:
        connection = await broker.connect()
        answer = await metadata_of(connection, "persistent://public/default/new")
        assert answer.partitions == 0
        assert answer.response == pb.CommandPartitionedTopicMetadataResponse.Success
        answer = await lookup_of(connection, "persistent://public/default/new")
        assert answer.brokerServiceUrl == broker.service.ownership.this_broker.broker_service_url
        assert answer.response == pb.CommandLookupTopicResponse.Connect
        assert answer.authoritative
        assert not broker.service.topics
        topic = TopicName.parse("new")
        await broker.service.namespaces.create_partitioned_topic(topic, 3)
        assert (await metadata_of(connection, "new")).partitions == 3


async def test_unknown_tenant_or_namespace_is_topic_not_found():
    async with running() as broker:
        connection = await broker.connect()
        for topic in ("persistent://nobody/default/t", "persistent://public/nothing/t"):
            assert (await metadata_of(connection, topic)).error == pb.ServerError.TopicNotFound
            assert (await lookup_of(connection, topic)).error == pb.ServerError.TopicNotFound


async def test_metadata_without_auto_creation_of_an_unknown_topic_is_refused():
    async with running() as broker:
        connection = await broker.connect()
        answer = await metadata_of(connection, "t", metadata_auto_creation_enabled=False)
        assert answer.error == pb.ServerError.TopicNotFound


async def test_questions_about_a_topic_in_use_are_answered_in_their_order():
    """They need no task each, which is what makes a hundred thousand of them affordable."""
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer("t")
        asked = [connection.rid() for _ in range(600)]
        await connection.send(
            *(c.lookup("t", rid) if rid % 2 else c.partitioned_metadata("t", rid) for rid in asked)
        )
        kinds = (T.LOOKUP_RESPONSE, T.PARTITIONED_METADATA_RESPONSE)
        answers = [await connection.expect(*kinds) for _ in asked]
        assert [answer.request_id for answer in answers] == asked


async def test_a_deleted_topic_is_not_believed_to_exist():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer("t")
        assert (await metadata_of(connection, "t")).partitions == 0
        await broker.service.delete_topic(TopicName.parse("t"), force=True)
        await connection.expect(T.CLOSE_PRODUCER)
        answer = await metadata_of(connection, "t", metadata_auto_creation_enabled=False)
        assert answer.error == pb.ServerError.TopicNotFound


@pytest.mark.parametrize("name", ["", "persistent://a/b", "x://a/b/c", "persistent://a/b/c/d/e/f"])
async def test_names_that_are_none_are_refused(name):
    async with running() as broker:
        connection = await broker.connect()
        answer = await lookup_of(connection, name)
        assert answer.error in (pb.ServerError.InvalidTopicName, pb.ServerError.TopicNotFound)


class OwnedElsewhere:
    """Another broker owns the topics of one namespace."""

    def __init__(self, this_broker, other):
        self.this_broker = this_broker
        self.here = Whereabouts(this_broker)
        self.other = other

    def serves(self, topic):
        return topic.namespace_name != "public/default"

    async def settle(self, topic):
        """Nothing is undecided."""

    async def owner_of(self, topic, *, authoritative=False):
        await trio.lowlevel.checkpoint()
        return Whereabouts(self.this_broker if self.serves(topic) else self.other)


async def test_a_lookup_names_the_owner_of_the_topic():
    async with running() as broker:
        connection = await broker.connect()
        other = BrokerAddress("pulsar://other:6650", "http://other:8080")
        this_broker = broker.service.ownership.this_broker
        broker.service.ownership = OwnedElsewhere(this_broker, other)
        for _when_loaded in range(2):
            answer = await lookup_of(connection, "persistent://public/default/t")
            assert answer.brokerServiceUrl == other.broker_service_url
            assert not answer.proxy_through_service_url
            answer = await lookup_of(connection, "persistent://pulsar/system/t")
            assert answer.brokerServiceUrl == this_broker.broker_service_url
            # A client that goes through the URL it was configured with may reach another broker.
            assert not answer.proxy_through_service_url


async def test_a_topic_of_another_broker_is_not_loaded():
    async with running() as broker:
        connection = await broker.connect()
        other = BrokerAddress("pulsar://other:6650", "http://other:8080")
        this_broker = broker.service.ownership.this_broker
        broker.service.ownership = OwnedElsewhere(this_broker, other)
        await connection.send(c.producer("persistent://public/default/t", 1, connection.rid()))
        answer = await connection.error()
        assert answer.error == pb.ServerError.ServiceNotReady
        assert "not served by this instance" in answer.message
        assert "Please redo the lookup" in answer.message
        assert broker.service.topics == {}


async def test_topics_of_a_lost_bundle_are_closed_and_those_that_are_being_loaded_too():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer("open", 1)
        await connection.producer("other", 2)
        await connection.send(c.producer("persistent://public/default/late", 3, connection.rid()))
        while "persistent://public/default/late" not in broker.service.operations:
            await trio.lowlevel.checkpoint()
        await broker.service.close_topics(lambda name: "other" not in name.full, "moved")
        assert list(broker.service.topics) == ["persistent://public/default/other"]


class SentOn:
    """Another broker is to be asked for the owner, as the leader of a cluster is."""

    def __init__(self, this_broker, other, asked):
        self.this_broker = this_broker
        self.other = other
        self.asked = asked

    def serves(self, topic):
        return False

    async def settle(self, topic):
        """Nothing is undecided."""

    async def owner_of(self, topic, *, authoritative=False):
        await trio.lowlevel.checkpoint()
        self.asked.append(authoritative)
        return Whereabouts(self.other, is_redirect=True, authoritative=not authoritative)


async def test_a_lookup_is_redirected_to_the_broker_that_knows():
    async with running() as broker:
        connection = await broker.connect()
        other = BrokerAddress("pulsar://other:6650", "http://other:8080")
        asked = []
        broker.service.ownership = SentOn(broker.service.ownership.this_broker, other, asked)
        for authoritative in (False, True):
            answer = await lookup_of(connection, "t", authoritative=authoritative)
            assert answer.response == pb.CommandLookupTopicResponse.Redirect
            assert answer.brokerServiceUrl == other.broker_service_url
            assert answer.authoritative is not authoritative
            assert not answer.proxy_through_service_url
        assert asked == [False, True]


async def test_unknown_listener_is_refused_with_the_text_clients_look_for():
    async with running() as broker:
        connection = await broker.connect()
        answer = await lookup_of(connection, "t", advertised_listener_name="test")
        assert answer.error == pb.ServerError.ServiceNotReady
        assert "the broker do not have test listener" in answer.message


async def test_topics_of_a_namespace_by_mode():
    mode = pb.CommandGetTopicsOfNamespace
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer("stored", 1)
        await connection.producer("non-persistent://public/default/loose", 2)

        async def topics(namespace, wanted):
            await connection.send(
                c.get_topics_of_namespace(namespace, connection.rid(), mode=wanted)
            )
            answer = await connection.expect(T.GET_TOPICS_OF_NAMESPACE_RESPONSE)
            assert (answer.filtered, answer.changed) == (False, True)
            return list(answer.topics)

        stored = "persistent://public/default/stored"
        loose = "non-persistent://public/default/loose"
        assert await topics("public/default", mode.PERSISTENT) == [stored]
        assert await topics("public/default", mode.NON_PERSISTENT) == [loose]
        assert await topics("public/default", mode.ALL) == [stored, loose]
        assert await topics("public/nothing", mode.ALL) == []
