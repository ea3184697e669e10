"""Notification of changes, and the policies in force meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.config import DEFAULT_CONFIG
from broker.policies.record import Policies
from broker.policies.scopes import BrokerPolicies, NamespacePolicies, TopicPolicies
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
