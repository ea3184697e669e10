"""Budgets that the namespaces of a resource group share on a broker."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.doors.pulsar.tests.test_dispatch_rates import SUB, Reading, limited, publish
from broker.doors.pulsar.tests.test_publish_rates import (
    frames,
    open_connection,
    receipts,
    taken,
)
from broker.net.tests.clocks import TrioClock
from broker.net.tests.harness import running
from broker.topics.broadcast.tests.peer import BROADCAST
from protocol import client as c

if TYPE_CHECKING:
    from trio.testing import MockClock

A, B, FREE = (f"persistent://public/{name}/t" for name in ("a", "b", "free"))


async def with_groups(broker, **groups):
    """Namespaces, each with the name of its group."""
    namespaces = broker.service.namespaces
    for name, group in groups.items():
        await namespaces.create(f"public/{name}", {"resource_group_name": group} if group else None)


async def flooding(broker, count, *topics):
    connections = [await open_connection(broker, topic) for topic in topics]
    for each in connections:
        await each.send(frames(range(count)))
    return connections


async def test_the_topics_of_all_namespaces_of_a_group_share_its_publish_budget(
    mock_clock: MockClock,
):
    async with running(clock=TrioClock()) as broker:
        await with_groups(broker, a="g", b="g", free=None)
        await broker.service.namespaces.resource_groups.create_or_change(
            "g", {"publishRateInMsgs": 10}
        )
        connections = await flooding(broker, 30, A, B, FREE)
        await broker.settled()
        assert taken(broker, A) + taken(broker, B) == 10
        assert taken(broker, FREE) == 30
        await broker.let_pass(mock_clock, 2.02)
        assert taken(broker, A) + taken(broker, B) == 30
        assert min(taken(broker, A), taken(broker, B)) > 9
        await broker.let_pass(mock_clock, 3.1)
        for each in connections:
            assert await receipts(each, 30) == list(range(30))


async def test_the_budget_in_bytes_counts_what_the_rate_of_a_topic_counts(mock_clock: MockClock):
    async with running(clock=TrioClock()) as broker:
        size = len(c.message(b"m0", sequence_id=0))
        await with_groups(broker, a="g", b="g")
        budget = {"publishRateInBytes": 4 * size}
        await broker.service.namespaces.resource_groups.create_or_change("g", budget)
        await flooding(broker, 9, A, B)
        await broker.settled()
        assert taken(broker, A) + taken(broker, B) == 4


async def test_a_budget_that_is_set_changed_or_removed_holds_at_once(mock_clock: MockClock):
    async with running(clock=TrioClock()) as broker:
        namespaces = broker.service.namespaces
        await with_groups(broker, a="g")
        [connection] = await flooding(broker, 5, A)
        await broker.settled()
        assert taken(broker, A) == 5  # there is no such group yet
        await namespaces.resource_groups.create_or_change("g", {"publishRateInMsgs": 1})
        await connection.send(frames(range(5, 30)))
        await broker.let_pass(mock_clock, 1.1)
        assert taken(broker, A) == 7
        await namespaces.resource_groups.create_or_change("g", {"publishRateInMsgs": 10})
        await broker.let_pass(mock_clock, 1.1)
        assert 16 <= taken(broker, A) <= 19
        await namespaces.change_policies(
            "public/a", lambda record: record.with_fields(resource_group_name=None)
        )
        await broker.settled()
        assert taken(broker, A) == 30
        await namespaces.resource_groups.delete("g")
        assert await receipts(connection, 30) == list(range(30))


async def test_the_rate_of_a_topic_holds_beside_the_budget_of_its_group(mock_clock: MockClock):
    async with running(clock=TrioClock(), maxPublishRatePerTopicInMessages=4) as broker:
        await with_groups(broker, a="g", b="g")
        await broker.service.namespaces.resource_groups.create_or_change(
            "g", {"publishRateInMsgs": 6}
        )
        await flooding(broker, 9, A, B)
        await broker.settled()
        assert sorted((taken(broker, A), taken(broker, B))) == [2, 4]


DISPATCH = {"dispatchRateInMsgs": 10}


async def reading(broker, *topics, **fields):
    return [await Reading(broker, topic, **fields).start() for topic in topics]


async def test_the_subscriptions_of_all_namespaces_of_a_group_share_its_dispatch_budget(
    mock_clock: MockClock,
):
    async with limited() as broker:
        await with_groups(broker, a="g", b="g", free=None)
        await broker.service.namespaces.resource_groups.create_or_change("g", DISPATCH)
        a, b, free = await reading(broker, A, B, FREE)
        for topic in (A, B, FREE):
            await publish(broker, topic, 40)
        await broker.settled()
        assert (a.sent + b.sent, free.sent) == (10, 40)
        assert "the dispatch rate of the resource group is used up" in a.why + b.why
        await broker.let_pass(mock_clock, 3.1)
        assert 40 <= a.sent + b.sent <= 42
        assert min(a.sent, b.sent) > 9
        await broker.let_pass(mock_clock, 4.1)
        assert (a.sent, b.sent) == (40, 40)


async def test_a_dispatch_budget_that_is_set_changed_or_removed_holds_at_once(
    mock_clock: MockClock,
):
    async with limited() as broker:
        namespaces = broker.service.namespaces
        await with_groups(broker, a="g")
        [a] = await reading(broker, A, sub_type=SUB.Exclusive)
        await publish(broker, A, 5)
        await broker.settled()
        assert a.sent == 5  # there is no such group yet
        await namespaces.resource_groups.create_or_change("g", {"dispatchRateInMsgs": 1})
        await publish(broker, A, 30, first=5)
        await broker.let_pass(mock_clock, 1.1)
        assert a.sent in (6, 7)
        await namespaces.resource_groups.create_or_change("g", {"dispatchRateInMsgs": 10})
        await broker.let_pass(mock_clock, 1.1)
        assert 15 <= a.sent <= 19
        await namespaces.change_policies(
            "public/a", lambda record: record.with_fields(resource_group_name=None)
        )
        await broker.settled()
        assert a.sent == 35


async def test_what_a_broker_uses_of_budgets_is_told_until_it_is_calm(mock_clock: MockClock):
    async with limited() as broker:
        groups = broker.service.services.resource_groups
        await with_groups(broker, a="g", b="h")
        both = {**DISPATCH, "publishRateInMsgs": 10}
        await broker.service.namespaces.resource_groups.create_or_change("g", both)
        await reading(broker, A, B)
        assert groups.usage() == {}
        await broker.let_pass(mock_clock, 1)
        for topic in (A, B):
            await publish(broker, topic, 8)
        await broker.let_pass(mock_clock, 1)
        used = groups.usage()
        assert used.keys() == {"g/publish", "g/dispatch"}
        assert all(0.3 < each.used < 0.5 and not each.is_held for each in used.values())
        await broker.let_pass(mock_clock, 5.1)
        assert groups.usage() == {}


async def test_a_broadcast_counts_each_copy_under_the_dispatch_budget(mock_clock: MockClock):
    async with limited() as broker:
        await with_groups(broker, a="g")
        await broker.service.namespaces.resource_groups.create_or_change("g", DISPATCH)

        async def start(name):
            return await Reading(broker, A).start(metadata=BROADCAST, consumer_name=name)

        # A consumer is answered when its position is stored.
        readers = [await broker.passing(mock_clock, partial(start, n)) for n in ("one", "two")]
        await publish(broker, A, 40)
        await broker.settled()
        assert 10 <= readers[0].sent <= 12
