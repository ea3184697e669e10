"""Notification of changes, and the policies in force meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from broker.ground.config import DEFAULT_CONFIG
from broker.tenancy.policies.record import Policies
from broker.tenancy.policies.scopes import (
    TOLD_AT_ONCE,
    BrokerPolicies,
    NamespacePolicies,
    TopicPolicies,
)
from protocol.topic_name import TopicName

TOPIC = TopicName.parse("a")
KEY = (TOPIC.domain, TOPIC.local_name)


def record(**given: object) -> Policies:
    return Policies.fresh(given, DEFAULT_CONFIG)


class Watcher:
    def __init__(self, policies: TopicPolicies, error: Exception | None = None) -> None:
        self.policies = policies
        self.seen: list[int] = []
        self.error = error
        policies.watch(self)

    async def apply_policies(self) -> None:
        self.seen.append(self.policies.effective.counts.producers_max)
        if self.error is not None:
            raise self.error


def levels() -> tuple[BrokerPolicies, NamespacePolicies]:
    broker = BrokerPolicies(DEFAULT_CONFIG)
    return broker, broker.of_namespace(record())


async def test_a_change_of_the_namespace_reaches_the_topics_that_watch():
    _, namespace = levels()
    watching, quiet = Watcher(namespace.of_topic(TOPIC)), namespace.of_topic(TOPIC)
    await namespace.replace(record(max_producers_per_topic=3))
    assert watching.seen == [3]
    assert quiet.effective.counts.producers_max == 3


async def test_a_change_that_makes_no_difference_is_told_to_nobody():
    _, namespace = levels()
    watcher = Watcher(namespace.of_topic(TOPIC))
    await namespace.replace(record(properties={"a": "b"}))
    assert watcher.seen == []


async def test_a_change_of_the_configuration_reaches_every_namespace():
    broker, namespace = levels()
    other = broker.of_namespace(record(max_producers_per_topic=9))
    watchers = [Watcher(each.of_topic(TOPIC)) for each in (namespace, other)]
    await broker.use(replace(DEFAULT_CONFIG, maxProducersPerTopic=4))
    assert [each.seen for each in watchers] == [[4], []]


async def test_a_topic_may_say_otherwise_than_its_namespace():
    _, namespace = levels()
    watcher = Watcher(namespace.of_topic(TOPIC))
    await namespace.replace_topics({KEY: {"max_producers_per_topic": 2}})
    await namespace.replace(record(max_producers_per_topic=3))
    assert watcher.seen == [2]
    assert watcher.policies.effective.counts.producers_max == 2
    await namespace.replace_topics({})
    assert watcher.seen == [2, 3]


async def test_policies_of_a_partitioned_topic_are_those_of_its_partitions():
    _, namespace = levels()
    partitions = [Watcher(namespace.of_topic(TOPIC.partition(index))) for index in range(2)]
    other = Watcher(namespace.of_topic(TopicName.parse("b-partition-0")))
    await namespace.replace_topics({KEY: {"max_producers_per_topic": 2}})
    assert [each.seen for each in (*partitions, other)] == [[2], [2], []]
    assert namespace.of_topic(TOPIC.partition(2)).effective.counts.producers_max == 2


async def test_who_stopped_watching_is_not_told():
    _, namespace = levels()
    watcher = Watcher(namespace.of_topic(TOPIC))
    watcher.policies.unwatch()
    await namespace.replace(record(max_producers_per_topic=3))
    assert watcher.seen == []


async def test_a_topic_that_fails_keeps_no_other_from_being_told():
    _, namespace = levels()
    watchers = [
        Watcher(namespace.of_topic(TOPIC), ValueError("first")),
        Watcher(namespace.of_topic(TOPIC)),
        Watcher(namespace.of_topic(TOPIC), ValueError("second")),
    ]
    with pytest.raises(ExceptionGroup):
        await namespace.replace(record(max_producers_per_topic=3))
    assert [each.seen for each in watchers] == [[3]] * 3
    watchers[0].error = None
    with pytest.raises(ValueError, match="second"):
        await namespace.replace(record(max_producers_per_topic=4))


async def test_a_namespace_that_is_gone_is_not_told():
    broker, namespace = levels()
    watcher = Watcher(namespace.of_topic(TOPIC))
    namespace.close()
    await broker.use(replace(DEFAULT_CONFIG, maxProducersPerTopic=4))
    assert watcher.seen == []


class SlowWatcher(Watcher):
    """Acts on what is in force after a pause, as a topic does that waits for its storage."""

    def __init__(self, policies: TopicPolicies, lock: trio.Lock) -> None:
        super().__init__(policies)
        self._lock = lock
        self.has = policies.effective.counts.producers_max

    async def apply_policies(self) -> None:
        async with self._lock:
            limit = self.policies.effective.counts.producers_max
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            self.has = limit


def slow_watcher(namespace: NamespacePolicies, number: int) -> SlowWatcher:
    return SlowWatcher(namespace.of_topic(TopicName.parse(f"t{number}")), trio.Lock())


async def test_a_change_ends_when_topics_have_it_that_an_earlier_one_is_telling():
    _, namespace = levels()
    watcher = slow_watcher(namespace, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(namespace.replace, record(max_producers_per_topic=3))
        await trio.testing.wait_all_tasks_blocked()
        namespace.record = record(max_producers_per_topic=4)
        namespace.resolve()
        await watcher.policies.tell()
        assert watcher.has == 4


async def test_what_a_topic_failed_to_take_up_is_told_again_by_the_next_change():
    _, namespace = levels()
    watcher = Watcher(namespace.of_topic(TOPIC), ValueError("first"))
    with pytest.raises(ValueError, match="first"):
        await namespace.replace(record(max_producers_per_topic=3))
    watcher.error = None
    await namespace.replace(record(max_producers_per_topic=3))
    assert watcher.seen == [3, 3]


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["namespace", "topics", "topic", "config", "load", "unload"]),
        st.integers(0, 5),
        st.integers(1, 4),
        st.integers(0, 6),
    ),
    max_size=12,
)


@given(CHANGES)
async def test_the_last_change_counts_for_every_topic(changes):
    """Whatever overtakes what; topics are loaded and unloaded meanwhile."""
    broker, namespace = levels()
    of_topics: dict[tuple[str, str], dict[str, int]] = {}
    watchers = {number: slow_watcher(namespace, number) for number in range(6)}
    gone = []

    async def make(kind: str, number: int, value: int) -> None:
        key = TopicName.parse(f"t{number}")
        own = {"max_producers_per_topic": value}
        if kind == "namespace":
            await namespace.replace(record(max_producers_per_topic=value))
        elif kind == "topics":
            of_topics.clear()
            of_topics[key.domain, key.local_name] = own
            await namespace.replace_topics(of_topics)
        elif kind == "topic":
            of_topics[key.domain, key.local_name] = own
            await namespace.topic_changed((key.domain, key.local_name))
        elif kind == "config":
            await broker.use(replace(DEFAULT_CONFIG, maxProducersPerTopic=value))
        elif kind == "load" and number not in watchers:
            watchers[number] = slow_watcher(namespace, number)
        elif kind == "unload" and number in watchers:
            gone.append(watchers.pop(number))
            gone[-1].policies.unwatch()

    async with trio.open_nursery() as nursery:
        for kind, number, value, pause in changes:
            nursery.start_soon(make, kind, number, value)
            for _ in range(pause):
                await trio.lowlevel.checkpoint()
    for watcher in watchers.values():
        assert watcher.has == watcher.policies.effective.counts.producers_max


async def test_a_change_serves_others_between_a_few_topics():
    _, namespace = levels()
    count = 50 * TOLD_AT_ONCE
    for number in range(count):
        Watcher(namespace.of_topic(TopicName.parse(f"t{number}")))
    turns = 0
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        nursery.start_soon(serve)
        await namespace.replace(record(max_producers_per_topic=3))
        nursery.cancel_scope.cancel()
    assert turns >= count / TOLD_AT_ONCE
