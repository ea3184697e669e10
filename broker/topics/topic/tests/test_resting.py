"""A topic that nobody uses: what it gives up, what it keeps, and how much is left."""

from __future__ import annotations

import gc
import json
import sys
from contextlib import asynccontextmanager
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType

import pytest
import trio

from broker.http.topics.topic_json import TopicStats
from broker.managed_ledger.factory import ManagedLedgerFactory
from broker.net.tests.harness import T, running
from broker.tenancy.policies.scopes import NamespacePolicies
from broker.topics.subscription.sub_types import EXCLUSIVE, KEY_SHARED, SHARED
from broker.topics.topic.resting import Resting
from broker.topics.topic.services import TopicServices
from broker.topics.topic.tests.dedup_of import dedup_of
from broker.topics.topic.topic_base import AT_REST
from protocol import client as c
from runtime.testing.conditions import SECONDS_MAX

NAME = "persistent://public/default/t"
SECONDS = 60
BYTES_AT_REST_MAX = 6_200
"""With one subscription and one message, without what all topics share. In the interpreter it is
5,690."""


class World:
    """A broker whose timer of rest is turned by hand, with a clock that is too."""

    def __init__(self, broker, clock):
        self.broker = broker
        self.clock = clock
        self.resting = Resting(broker.service, broker.service.services)

    async def time_passes(self, seconds=SECONDS):
        await self.resting.look()
        self.clock.seconds += seconds
        await self.resting.look()


class Clock:
    """Moves when told."""

    seconds = 1000.0

    def now(self):
        return self.seconds

    def wall_ms(self):
        return int(1_700_000_000_000 + self.seconds * 1000)


@asynccontextmanager
async def resting_world(**settings):
    clock = Clock()
    async with running(clock=clock, topicRestAfterSeconds=SECONDS, **settings) as broker:
        yield World(broker, clock)


async def used(broker, name=NAME, acked=True, sub_type=SHARED):
    """A topic that has stored and delivered a message, and whose client has left."""
    connection = await broker.connect()
    await connection.producer(name)
    await connection.subscribe(name, sub_type=sub_type, permits=10)
    await connection.publish(0)
    receipt = await connection.expect(T.SEND_RECEIPT)
    message, _ = await connection.expect(T.MESSAGE)
    if acked:
        position = (message.message_id.ledgerId, message.message_id.entryId)
        await connection.send(c.ack(1, [position]))
    topic = broker.topic(name)
    if acked:
        await until(lambda: not topic.subscriptions["s"].backlog_entries)
    await trio.aclose_forcefully(connection.stream)
    await unattended(topic)
    assert receipt
    return topic


async def unattended(topic):
    await until(lambda: not topic.access.producers and not topic.consumer_count())


async def until(condition):
    with trio.fail_after(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await trio.sleep(0.001)


def statistics(topic):
    return json.loads("".join(TopicStats(topic, "b").pieces()))


# --- what is the same ---------------------------------------------------------------------------


@pytest.mark.parametrize("sub_type", [EXCLUSIVE, SHARED, KEY_SHARED])
async def test_the_statistics_of_a_topic_at_rest_are_those_of_before(sub_type):
    async with resting_world() as world:
        topic = await used(world.broker, sub_type=sub_type)
        before, active_at = statistics(topic), topic.active_at
        await world.time_passes()
        assert topic.unattended_since == AT_REST
        assert statistics(topic) == before
        assert topic.active_at == active_at  # `brokerDeleteInactiveTopics` counts from there


@pytest.mark.parametrize("sub_type", [EXCLUSIVE, SHARED, KEY_SHARED])
async def test_a_message_that_was_not_acknowledged_comes_again_after_the_rest(sub_type):
    async with resting_world() as world:
        topic = await used(world.broker, acked=False, sub_type=sub_type)
        await world.time_passes()
        assert topic.subscriptions["s"].backlog_entries == 1
        connection = await world.broker.connect()
        await connection.subscribe(NAME, sub_type=sub_type, permits=10)
        message, _ = await connection.expect(T.MESSAGE)
        assert message.message_id.entryId == 0
        assert world.broker.topic(NAME) is topic


async def test_a_topic_at_rest_takes_and_delivers_messages_at_once():
    async with resting_world() as world:
        topic = await used(world.broker)
        for count in range(1, 4):
            await world.time_passes()
            assert topic.unattended_since == AT_REST
            assert await used(world.broker) is topic
            assert statistics(topic)["msgInCounter"] == 1 + count
            assert statistics(topic)["msgOutCounter"] == 1 + count


async def test_acknowledgements_are_kept_over_a_rest_and_an_unload():
    async with resting_world() as world:
        topic = await used(world.broker)
        mark = topic.subscriptions["s"].mark_delete_position()
        await topic.ledger.cursors["s"].flush()
        await world.time_passes()
        assert topic.ledger.cursors["s"].cursor_ledger == (-1, -1)
        await world.broker.service.unload_topic(topic.name)
        again = await world.broker.service.get_or_load_topic(topic.name, create=False)
        assert again.subscriptions["s"].mark_delete_position() == mark
        assert again.subscriptions["s"].backlog_entries == 0


async def test_deduplication_is_kept_over_a_rest():
    async with resting_world(brokerDeduplicationEnabled=True) as world:
        connection = await world.broker.connect()
        await connection.producer(NAME, producer_name="p")
        await connection.publish(7)
        await connection.expect(T.SEND_RECEIPT)
        topic = world.broker.topic(NAME)
        await trio.aclose_forcefully(connection.stream)
        await until(lambda: not topic.access.producers)
        await dedup_of(topic).snapshot()
        await world.time_passes()
        assert topic.unattended_since == AT_REST
        assert topic.last_sequence_id("p") == 7
        await world.broker.service.unload_topic(topic.name)
        again = await world.broker.service.get_or_load_topic(topic.name, create=False)
        assert again.last_sequence_id("p") == 7


async def test_a_broadcast_goes_on_after_a_rest():
    async with resting_world() as world:
        properties = {"vela.broadcast": "true"}
        for count in range(1, 3):
            connection = await world.broker.connect()
            await connection.subscribe(
                NAME, sub_type=SHARED, permits=10, subscription_properties=properties
            )
            await connection.producer(NAME)
            await connection.publish(count)
            await connection.expect(T.SEND_RECEIPT, T.MESSAGE)
            await connection.expect(T.SEND_RECEIPT, T.MESSAGE)
            topic = world.broker.topic(NAME)
            await trio.aclose_forcefully(connection.stream)
            await unattended(topic)
            await world.time_passes()
            assert topic.unattended_since == AT_REST


# --- when ---------------------------------------------------------------------------------------


async def test_a_topic_with_a_client_does_not_rest():
    async with resting_world() as world:
        connection = await world.broker.connect()
        await connection.producer(NAME)
        topic = world.broker.topic(NAME)
        await world.time_passes(10 * SECONDS)
        assert topic.unattended_since != AT_REST
        await trio.aclose_forcefully(connection.stream)
        await until(lambda: not topic.access.producers)
        await world.time_passes(SECONDS - 1)
        assert topic.unattended_since != AT_REST
        await world.time_passes(1)
        assert topic.unattended_since == AT_REST


async def test_a_use_between_two_looks_begins_the_time_anew():
    async with resting_world() as world:
        topic = await used(world.broker)
        await world.resting.look()
        world.clock.seconds += SECONDS - 1
        await used(world.broker)
        world.clock.seconds += 1
        await world.resting.look()
        assert topic.unattended_since != AT_REST


@pytest.mark.parametrize("change", ["expiry", "skip", "seek"])
async def test_a_topic_at_rest_whose_cursor_was_moved_goes_to_rest_again(change):
    """Expiry moves those of a hundred thousand topics at once, and no client comes to them."""
    async with resting_world() as world:
        topic = await used(world.broker, acked=False)
        await world.time_passes()
        subscription, cursor = topic.subscriptions["s"], topic.ledger.cursors["s"]
        active_at = topic.active_at
        if change == "expiry":
            assert subscription.skip_past(topic.last_position()) == 1
        elif change == "skip":
            await subscription.clear_backlog()
        else:
            await subscription.seek((0, 0))
        await cursor.flush()
        assert cursor.cursor_ledger != (-1, -1)
        await world.time_passes()
        assert topic.unattended_since == AT_REST
        assert cursor.cursor_ledger == (-1, -1)
        assert topic.active_at == active_at


async def test_a_topic_whose_cursor_cannot_be_stored_does_not_keep_others_from_rest(monkeypatch):
    async with resting_world() as world:
        topic, other = await used(world.broker), await used(world.broker, f"{NAME}2")

        async def full():
            raise OSError("the disk is full")

        monkeypatch.setattr(topic.ledger, "rest", full)
        await world.time_passes()
        assert other.unattended_since == AT_REST


# --- how much -----------------------------------------------------------------------------------

ONE_FOR_ALL = (
    type,
    ModuleType,
    FunctionType,
    BuiltinFunctionType,
    Enum,
    TopicServices,
    ManagedLedgerFactory,
    NamespacePolicies,
)


def reached(root, stop):
    """All objects that this one leads to, by id, without `stop` and what only that leads to."""
    found, waiting = {}, [root]
    while waiting:
        each = waiting.pop()
        if id(each) in found or id(each) in stop or isinstance(each, ONE_FOR_ALL):
            continue
        found[id(each)] = each
        waiting += gc.get_referents(each)
    return found


def own_objects(topic, other):
    """Those of one topic alone: what another topic leads to is shared by all. Sizes are those that
    Python gives, so neither an allocator nor another test has a part in them."""
    return reached(topic, reached(other, {id(topic)})).values()


@pytest.mark.parametrize("acked", [True, False])
async def test_how_many_bytes_a_topic_at_rest_has(acked):
    async with resting_world() as world:
        topic, other = await used(world.broker, acked=acked), await used(world.broker, f"{NAME}2")
        for each in (topic, other):
            for cursor in each.ledger.cursors.values():
                await cursor.flush()
        before = sum(map(sys.getsizeof, own_objects(topic, other)))
        await world.time_passes()
        at_rest = sum(map(sys.getsizeof, own_objects(topic, other)))
        assert at_rest < BYTES_AT_REST_MAX
        assert at_rest < before / 1.5
