"""Requests of one connection take effect in the order of their arrival, whatever they wait for."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
import trio

from broker.net.tests.harness import T, running
from broker.tenancy.schemas.registry import version_number
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from runtime.testing.conditions import eventually

E = pb.ServerError
S = pb.CommandSubscribe
TOPIC = "persistent://public/default/t"


async def consumed(broker, count=5):
    """A connection whose topic holds `count` messages, with consumer 1 that got all of them."""
    connection = await broker.connect()
    await connection.producer(TOPIC)
    for number in range(count):
        await connection.publish(number, b"%d" % number)
        await connection.expect(T.SEND_RECEIPT)
    await connection.subscribe(TOPIC, permits=10, initialPosition=S.Earliest)
    for _ in range(count):
        await connection.expect(T.MESSAGE)
    return connection


async def successes(connection, *request_ids):
    """SUCCESS for all of these, in any order, and nothing else but CLOSE_CONSUMER between."""
    open_requests, closed = set(request_ids), []
    while open_requests:
        answer = await connection.expect(T.SUCCESS, T.CLOSE_CONSUMER)
        if hasattr(answer, "consumer_id"):
            closed.append(answer.consumer_id)
        else:
            open_requests.remove(answer.request_id)
    return closed


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


def subscription(broker, name="s"):
    return broker.topic(TOPIC).subscriptions.get(name)


@pytest.mark.parametrize("by_time", [False, True])
async def test_a_seek_before_a_close_moves_the_position(by_time):
    async with running() as broker:
        connection = await consumed(broker)
        first, second = connection.rid(), connection.rid()
        target = {"publish_time": 1} if by_time else {"target": (0, 0)}
        await connection.send(c.ack(1, [(0, 4)], cumulative=True))
        await connection.send(c.seek(1, first, **target), c.close_consumer(1, second))
        await successes(connection, first, second)
        assert subscription(broker).backlog_entries == 5
        assert not subscription(broker).consumers


async def test_an_unsubscribe_before_a_close_removes_the_subscription():
    async with running() as broker:
        connection = await consumed(broker)
        first, second = connection.rid(), connection.rid()
        await connection.send(c.unsubscribe(1, first), c.close_consumer(1, second))
        await successes(connection, first, second)
        assert subscription(broker) is None


async def test_a_subscribe_after_an_unsubscribe_creates_the_subscription_again():
    async with running() as broker:
        connection = await consumed(broker)
        first, second = connection.rid(), connection.rid()
        again = c.subscribe(TOPIC, "s", 1, second, initialPosition=S.Earliest)
        await connection.send(c.unsubscribe(1, first), again)
        await successes(connection, first, second)
        assert subscription(broker).backlog_entries == 5
        assert len(subscription(broker).consumers) == 1


async def test_the_last_message_id_is_told_with_the_position_of_that_moment():
    async with running() as broker:
        connection = await consumed(broker)
        asked = c.get_last_message_id(1, connection.rid())
        await connection.send(asked, c.ack(1, [(0, 2)], cumulative=True))
        answer = await connection.expect(T.GET_LAST_MESSAGE_ID_RESPONSE)
        assert answer.consumer_mark_delete_position.entryId == 2**64 - 1


async def test_the_last_message_id_is_that_of_the_moment_it_is_asked_for():
    async with running() as broker:
        connection = await consumed(broker)
        ledger = broker.topic(TOPIC).ledger
        asked = broker.topic(TOPIC).newest_entry()
        await connection.publish(5, b"5")
        await connection.expect(T.SEND_RECEIPT)
        assert ledger.last_confirmed == (0, 5)
        assert (await asked).position == (0, 4)


async def test_the_later_one_of_two_seeks_decides():
    async with running() as broker:
        connection = await consumed(broker)
        first, second = connection.rid(), connection.rid()
        await connection.send(c.seek(1, first, publish_time=1), c.seek(1, second, (0, 3)))
        assert await successes(connection, first, second) == [1]
        assert subscription(broker).backlog_entries == 2


@pytest.mark.parametrize("attempt", range(6))
async def test_of_two_exclusive_consumers_the_first_one_is_attached(attempt):
    del attempt  # tasks that start in one turn run in either order
    async with running() as broker:
        connection = await broker.connect()
        requests = [connection.rid(), connection.rid()]
        frames = [c.subscribe(TOPIC, "s", each, each) for each in requests]
        await connection.send(*frames)
        answers = {(await connection.next())[0].type for _ in requests}
        assert answers == {T.SUCCESS, T.ERROR}
        assert [each.consumer_id for each in subscription(broker).consumers] == requests[:1]


@pytest.mark.parametrize("attempt", range(6))
async def test_of_two_producers_of_one_name_the_first_one_is_opened(attempt):
    del attempt
    async with running() as broker:
        connection = await broker.connect()
        frames = [c.producer(TOPIC, each, each, producer_name="p") for each in (1, 2)]
        await connection.send(*frames)
        assert (await connection.expect(T.PRODUCER_SUCCESS)).request_id == 1
        refusal = await connection.error()
        assert (refusal.request_id, refusal.error) == (2, E.ProducerBusy)


def avro(*fields):
    """A schema whose fields may be missing, so that each of them may follow each other one."""
    optional = [{"name": each, "type": ["null", "int"], "default": None} for each in fields]
    record = {"type": "record", "name": "R", "fields": optional}
    return pb.Schema(name="s", type=pb.Schema.Avro, schema_data=json.dumps(record).encode())


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("attempt", range(6))
async def test_schemas_get_their_versions_in_the_order_of_the_commands(attempt, loaded):
    del attempt  # tasks that start in one turn run in either order
    async with running() as broker:
        connection = await broker.connect()
        if loaded:
            await connection.subscribe(TOPIC, "s")
        await connection.send(
            c.get_or_create_schema(TOPIC, 101, avro("a")),
            c.producer(TOPIC, 1, 102, schema=avro("b")),
            c.get_or_create_schema(TOPIC, 103, avro("c")),
        )
        versions = []
        for request_id in (101, 102, 103):
            answer = await connection.expect(T.GET_OR_CREATE_SCHEMA_RESPONSE, T.PRODUCER_SUCCESS)
            assert answer.request_id == request_id
            versions.append(version_number(answer.schema_version))
        assert versions == [0, 1, 2]


async def test_a_schema_that_may_not_follow_is_refused_and_the_next_request_has_its_turn():
    async with running() as broker:
        connection = await broker.connect()
        text = pb.Schema(name="s", type=pb.Schema.String, schema_data=b"")
        await connection.send(
            c.get_or_create_schema(TOPIC, 101, avro("a")),
            c.get_or_create_schema(TOPIC, 102, text),
            c.get_or_create_schema(TOPIC, 103, avro("b")),
        )
        first = await connection.expect(T.GET_OR_CREATE_SCHEMA_RESPONSE)
        refusal = await connection.expect(T.GET_OR_CREATE_SCHEMA_RESPONSE)
        last = await connection.expect(T.GET_OR_CREATE_SCHEMA_RESPONSE)
        assert [each.request_id for each in (first, refusal, last)] == [101, 102, 103]
        assert refusal.error_code == E.IncompatibleSchema
        assert version_number(last.schema_version) == 1


async def test_a_schema_is_registered_although_its_connection_ends(monkeypatch):
    async with running() as broker:
        connection, other = await broker.connect(), await broker.connect()
        await connection.subscribe(TOPIC, "s")
        with held(monkeypatch, broker.store, "put") as gate:
            await connection.send(c.get_or_create_schema(TOPIC, 101, avro("a")))
            await eventually(lambda: len(broker.topic(TOPIC).operations) == 1)
            await connection.stream.aclose()
            await eventually(lambda: len(broker.service.connections.open) == 1)
            gate.set()
        await other.send(c.get_or_create_schema(TOPIC, 102, avro("b")))
        answer = await other.expect(T.GET_OR_CREATE_SCHEMA_RESPONSE)
        assert version_number(answer.schema_version) == 1


async def test_a_subscribe_during_a_seek_is_held_until_the_reset_ends(monkeypatch):
    async with running() as broker:
        connection, other = await consumed(broker), await broker.connect()
        with held(monkeypatch, broker.store, "put") as gate:
            await connection.send(c.seek(1, connection.rid(), (0, 3)))
            assert (await connection.expect(T.CLOSE_CONSUMER)).consumer_id == 1
            await other.send(c.subscribe(TOPIC, "s", 1, other.rid()), c.flow(1, 10))
            await other.nothing_more(0.1)
            gate.set()
            await connection.expect(T.SUCCESS)
        await other.expect(T.SUCCESS)
        delivered = [(await other.expect(T.MESSAGE))[0].message_id.entryId for _ in range(2)]
        assert delivered == [3, 4]


@pytest.mark.parametrize("command", ["seek", "unsubscribe", "subscribe"])
async def test_a_connection_lost_in_the_middle_leaves_nothing_half_done(monkeypatch, command):
    async with running() as broker:
        connection, other = await consumed(broker), await broker.connect()
        frames = {
            "seek": c.seek(1, connection.rid(), (0, 3)),
            "unsubscribe": c.unsubscribe(1, connection.rid()),
            "subscribe": c.subscribe(TOPIC, "new", 2, connection.rid()),
        }
        method = "delete" if command == "unsubscribe" else "put"
        with held(monkeypatch, broker.store, method) as gate:
            topic = broker.topic(TOPIC)
            await connection.send(frames[command])
            await eventually(lambda: len(topic.operations) == 1)
            await connection.stream.aclose()
            await eventually(lambda: len(broker.service.connections.open) == 1)
            name = "new" if command == "subscribe" else "s"
            await other.send(c.subscribe(TOPIC, name, 1, other.rid()))
            await other.nothing_more()
            gate.set()
            await other.expect(T.SUCCESS)
        assert subscription(broker, name).backlog_entries == (2 if command == "seek" else 0)
        assert [broker.session_of(each) for each in subscription(broker, name).consumers] == list(
            broker.service.connections.open
        )
        assert len(topic.operations) == 0


async def test_a_subscribe_during_the_reset_of_a_broadcast_is_held(monkeypatch):
    async with running() as broker:
        connection, other = await broker.connect(), await broker.connect()
        fields = {"metadata": {"vela.broadcast": "true"}, "consumer_name": "one"}
        await connection.subscribe(TOPIC, "s", 1, **fields)
        everybody, gate = subscription(broker), trio.Event()
        commit = everybody.keeper.commit

        async def slow():
            await gate.wait()
            await commit()

        monkeypatch.setattr(everybody.keeper, "commit", slow)
        async with trio.open_nursery() as nursery:

            async def reset():
                await everybody.seek((-1, -1))

            nursery.start_soon(reset)
            assert (await connection.expect(T.CLOSE_CONSUMER)).consumer_id == 1
            fields["consumer_name"] = "two"
            await other.send(c.subscribe(TOPIC, "s", 1, other.rid(), **fields))
            await other.nothing_more()
            gate.set()
        await other.expect(T.SUCCESS)


async def test_an_unsubscribe_that_an_unload_overtakes_is_refused_for_a_retry():
    async with running() as broker:
        connection = await consumed(broker)
        topic, gate = broker.topic(TOPIC), trio.Event()
        topic.operations.begin("s", gate.wait)
        request = connection.rid()
        await connection.send(c.unsubscribe(1, request))
        await eventually(lambda: not subscription(broker).consumers)
        await broker.service.unload_topic(topic.name)
        await connection.expect(T.CLOSE_PRODUCER)
        gate.set()
        refusal = await connection.error()
        assert (refusal.request_id, refusal.error) == (request, E.ServiceNotReady)
        await connection.expect(T.CLOSE_CONSUMER)
        await connection.subscribe(TOPIC, "s", 1)
        assert subscription(broker).backlog_entries == 5
