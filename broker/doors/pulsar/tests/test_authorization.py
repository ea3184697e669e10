"""Authorization of commands: what each asks, refusals, and the end of what is open."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import trio

from broker.doors.pulsar.authorization import NOTHING
from broker.doors.pulsar.table import BrokerCommands, commands_of
from broker.net.tests.harness import T, running
from broker.tenancy.namespaces.namespaces import Namespaces
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.connection import COMMANDS
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually

E = pb.ServerError
TOPIC = "persistent://public/default/t"
SETTINGS = {"authorizationEnabled": True, "superUserRoles": ("root",), "proxyRoles": ("proxy",)}


def authorized(**settings):
    return running(**{**SETTINGS, **settings})


async def granted(broker, namespace=None, **fields):
    """Give `public/default` exactly these grants."""
    auth = {"namespace_auth": namespace or {}, **fields}
    await broker.service.namespaces.change_policies(
        "public/default", lambda record: record.with_fields(auth_policies=auth)
    )


@contextmanager
def held(monkeypatch, store, method):
    """Calls of the store's method wait until the event given is set."""
    original, gate = getattr(store, method), trio.Event()

    async def slow(*arguments, **keywords):
        await gate.wait()
        return await original(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(store, method, slow)
        yield gate


def test_every_command_that_is_served_says_what_it_asks():
    table = commands_of(None)
    assert {each for each in COMMANDS if each != T.SEND} >= set(table)
    asking = {COMMANDS[kind].name for kind, command in table.items() if command.asks is not NOTHING}
    assert asking == {
        "PARTITIONED_METADATA",
        "LOOKUP",
        "GET_TOPICS_OF_NAMESPACE",
        "WATCH_TOPIC_LIST",
        "PRODUCER",
        "SUBSCRIBE",
        "GET_SCHEMA",
        "GET_OR_CREATE_SCHEMA",
    }


def test_without_authorization_the_handlers_are_the_plain_ones():
    plain = BrokerCommands(None)
    for kind, command in commands_of(None).items():
        handler = plain.handlers[kind]
        assert getattr(handler, "func", handler) is getattr(
            command.handler, "func", command.handler
        )


async def test_a_stranger_is_refused_and_told_nothing():
    async with authorized() as broker:
        connection = await broker.connect_as("nobody")
        for frame, kind in [
            (c.lookup(TOPIC, 1), T.LOOKUP_RESPONSE),
            (c.partitioned_metadata(TOPIC, 2), T.PARTITIONED_METADATA_RESPONSE),
            (c.producer(TOPIC, 1, 3), T.ERROR),
            (c.subscribe(TOPIC, "s", 1, 4), T.ERROR),
            (c.get_topics_of_namespace("public/default", 5), T.ERROR),
        ]:
            await connection.send(frame)
            answer = await connection.expect(kind)
            assert answer.error == E.AuthorizationError
            assert answer.message.startswith("Client is not authorized to ")
        assert not broker.service.topics


async def test_a_super_user_may_everything():
    async with authorized() as broker:
        connection = await broker.connect_as("root")
        await connection.producer(TOPIC)
        await connection.subscribe(TOPIC)


async def test_grants_of_produce_and_consume_are_apart():
    async with authorized() as broker:
        await granted(broker, {"writer": ["produce"], "reader": ["consume"]})
        writer = await broker.connect_as("writer")
        reader = await broker.connect_as("reader")
        await writer.producer(TOPIC)
        await writer.send(c.subscribe(TOPIC, "s", 1, writer.rid()))
        assert (await writer.error()).message == "Client is not authorized to subscribe"
        await reader.subscribe(TOPIC)
        await reader.send(c.producer(TOPIC, 1, reader.rid()))
        assert (await reader.error()).message == "Client is not authorized to Produce"


async def test_a_client_that_may_produce_and_consume_cannot_change_policies_by_their_log():
    log = "persistent://public/default/__change_events"
    async with authorized() as broker:
        await granted(broker, {"client": ["produce", "consume"]})
        await broker.service.namespaces.set_topic_policy(
            TopicName.parse(TOPIC), "max_producers_per_topic", 5
        )
        client = await broker.connect_as("client")
        await client.send(c.producer(log, 1, client.rid()))
        assert (await client.error()).error == E.AuthorizationError
        await client.send(c.subscribe(log, "__compaction", 1, client.rid()))
        assert (await client.error()).error == E.AuthorizationError
        await (await broker.connect_as("root")).producer(log)


async def test_both_roles_of_a_proxied_client_are_asked():
    async with authorized() as broker:
        await granted(broker, {"proxy": ["produce"], "client": ["produce", "consume"]})
        connection = await broker.connect_as("proxy", "client")
        await connection.producer(TOPIC)
        await connection.send(c.subscribe(TOPIC, "s", 1, connection.rid()))
        assert (await connection.error()).error == E.AuthorizationError
        other = await broker.connect_as("proxy", "nobody")
        await other.send(c.producer(TOPIC, 1, other.rid()))
        assert (await other.error()).error == E.AuthorizationError


async def test_commands_behind_one_that_waits_for_its_grants_keep_their_order(monkeypatch):
    async with authorized() as broker:
        connection = await broker.connect_as("root")
        await connection.producer(TOPIC)
        for number in range(3):
            await connection.publish(number)
            await connection.expect(T.SEND_RECEIPT)
        namespace = broker.service.namespaces
        await granted(broker, {"reader": ["consume"]})
        reader = await broker.connect_as("reader")
        namespace._loaded._namespaces["public/default"].policies_version += 1  # read again
        with held(monkeypatch, broker.store, "get") as gate:
            await reader.send(
                c.subscribe(TOPIC, "s", 1, 1, initialPosition=pb.CommandSubscribe.Earliest),
                c.flow(1, 2),
                c.close_consumer(2, 2),
            )
            await reader.nothing_more()
            gate.set()
            assert (await reader.expect(T.SUCCESS)).request_id in (1, 2)
            kinds = [(await reader.next())[0].type for _ in range(3)]
            assert sorted(kinds) == sorted([T.SUCCESS, T.MESSAGE, T.MESSAGE])


async def test_a_connection_is_not_held_for_ever_by_what_cannot_be_read(monkeypatch):
    async with authorized() as broker:
        reader = await broker.connect_as("reader")
        await reader.send(c.lookup("persistent://nowhere/default/t", 1), c.lookup(TOPIC, 2))
        first = await reader.expect(T.LOOKUP_RESPONSE)
        second = await reader.expect(T.LOOKUP_RESPONSE)
        assert (first.request_id, second.request_id) == (1, 2)
        assert first.error == second.error == E.AuthorizationError


async def test_a_revoked_grant_ends_what_is_open():
    async with authorized() as broker:
        await granted(broker, {"a": ["produce", "consume"], "b": ["produce", "consume"]})
        a, b = await broker.connect_as("a"), await broker.connect_as("b")
        await a.producer(TOPIC, producer_name="a")
        await a.subscribe(TOPIC, "s", sub_type=pb.CommandSubscribe.Shared)
        await b.producer(TOPIC, producer_name="b")
        await b.subscribe(TOPIC, "s", sub_type=pb.CommandSubscribe.Shared)
        await granted(broker, {"a": ["produce"], "b": ["produce", "consume"]})
        assert (await a.expect(T.CLOSE_CONSUMER)).consumer_id == 1
        await granted(broker, {"b": ["produce", "consume"]})
        assert (await a.expect(T.CLOSE_PRODUCER)).producer_id == 1
        await b.publish(0)
        await b.expect(T.SEND_RECEIPT)
        await b.nothing_more()
        assert list(broker.topic(TOPIC).access.producers) == ["b"]


async def test_a_grant_that_another_broker_revokes_ends_what_is_open_here():
    async with authorized() as broker:
        await granted(broker, {"a": ["produce"]})
        connection = await broker.connect_as("a")
        await connection.producer(TOPIC)
        other = Namespaces(broker.store, broker.service.config)
        await other.change_policies(
            "public/default", lambda record: record.with_fields(auth_policies={})
        )
        assert (await connection.expect(T.CLOSE_PRODUCER)).producer_id == 1
        await connection.send(c.producer(TOPIC, 1, connection.rid()))
        assert (await connection.error()).error == E.AuthorizationError


async def test_what_the_broker_itself_has_open_outlives_changes_of_grants():
    log = "persistent://public/default/__change_events"
    async with authorized() as broker:
        name = TopicName.parse(TOPIC)
        await broker.service.get_or_load_topic(name, create=True)
        await broker.service.namespaces.set_topic_policy(name, "max_producers_per_topic", 5)
        [reader] = broker.topic(log).subscriptions.values()
        [writer] = broker.topic(log).access.producers.values()
        await granted(broker, {"a": ["produce", "consume"]})
        # This topic is opened, and looked at, after that of the broker.
        connection = await broker.connect_as("a")
        await connection.subscribe("persistent://public/default/later", "s")
        await granted(broker, {})
        await connection.expect(T.CLOSE_CONSUMER)
        assert reader.consumers
        assert list(broker.topic(log).access.producers.values()) == [writer]


@contextmanager
def held_topics(monkeypatch, store):
    """Topics that are not loaded yet wait until the event given is set."""
    original, gate = store.get, trio.Event()

    async def slow(path, *arguments, **keywords):
        if "/managed-ledgers/" in path:
            await gate.wait()
        return await original(path, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(store, "get", slow)
        yield gate


async def test_a_producer_whose_grant_is_revoked_while_its_topic_loads_is_refused(monkeypatch):
    async with authorized() as broker:
        await granted(broker, {"a": ["produce"]})
        connection = await broker.connect_as("a")
        with held_topics(monkeypatch, broker.store) as gate:
            await connection.send(c.producer(TOPIC, 1, connection.rid()))
            await connection.nothing_more()
            await granted(broker, {"b": ["produce"]})
            gate.set()
            assert (await connection.error()).message == "Client is not authorized to Produce"
        assert not broker.topic(TOPIC).access.producers


async def test_a_consumer_whose_grant_is_revoked_while_its_topic_loads_is_refused(monkeypatch):
    async with authorized() as broker:
        await granted(broker, {"a": ["consume"]})
        connection = await broker.connect_as("a")
        with held_topics(monkeypatch, broker.store) as gate:
            await connection.send(c.subscribe(TOPIC, "s", 1, connection.rid()))
            await connection.nothing_more()
            await granted(broker, {"b": ["consume"]})
            gate.set()
            assert (await connection.error()).message == "Client is not authorized to subscribe"
        assert broker.topic(TOPIC).consumer_count() == 0


async def test_what_waited_for_its_topic_and_is_still_granted_is_attached(monkeypatch):
    async with authorized() as broker:
        await granted(broker, {"a": ["produce", "consume"]})
        connection = await broker.connect_as("a")
        with held_topics(monkeypatch, broker.store) as gate:
            await connection.send(
                c.producer(TOPIC, 1, connection.rid()), c.subscribe(TOPIC, "s", 1, connection.rid())
            )
            await connection.nothing_more()
            await granted(broker, {"a": ["produce", "consume"], "b": ["consume"]})
            gate.set()
            kinds = [(await connection.next())[0].type for _ in range(2)]
            assert sorted(kinds) == sorted([T.PRODUCER_SUCCESS, T.SUCCESS])


async def test_a_super_user_that_is_one_no_more_loses_what_is_open():
    async with authorized() as broker:
        connection = await broker.connect_as("root")
        await connection.producer(TOPIC)
        broker.authorizer.use(replace(broker.authorizer.rules, super_users=frozenset({"other"})))
        assert (await connection.expect(T.CLOSE_PRODUCER)).producer_id == 1
        other = await broker.connect_as("other")
        await other.producer(TOPIC)


async def test_a_producer_that_waits_loses_its_place_with_its_grant():
    async with authorized() as broker:
        await granted(broker, {"a": ["produce"], "b": ["produce"]})
        a, b = await broker.connect_as("a"), await broker.connect_as("b")
        await a.producer(TOPIC, producer_access_mode=pb.Exclusive)
        await b.send(c.producer(TOPIC, 1, b.rid(), producer_access_mode=pb.WaitForExclusive))
        assert not (await b.expect(T.PRODUCER_SUCCESS)).producer_ready
        await granted(broker, {"a": ["produce"]})
        assert (await b.error()).error == E.AuthorizationError
        assert not broker.topic(TOPIC).access.waiting


async def test_an_administrator_that_is_one_no_more_loses_what_is_open():
    async with authorized() as broker:
        tenants = broker.service.namespaces.tenants
        info = {"allowedClusters": ["standalone"]}
        await tenants.change("public", {**info, "adminRoles": ["boss"]})
        boss = await broker.connect_as("boss")
        await boss.producer(TOPIC)
        await tenants.change("public", {**info, "adminRoles": []})
        await boss.expect(T.CLOSE_PRODUCER)
        await eventually(lambda: not broker.topic(TOPIC).access.producers)
