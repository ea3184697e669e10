"""The log of policies in a cluster: one broker owns it, both follow it."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from broker.tenancy.change_events import namespace_log
from broker.topics.follow.tests.cluster import Cluster, settled
from protocol.errors import ServiceNotReady
from protocol.topic_name import TopicName

NAME = "public/default"
LOG = TopicName.parse(f"persistent://{NAME}/__change_events")
OF_A = TopicName.parse(f"persistent://{NAME}/of-a")
OF_B = TopicName.parse(f"persistent://{NAME}/of-b")
LIMIT, OTHER = "max_producers_per_topic", "max_consumers_per_topic"


@asynccontextmanager
async def two_brokers():
    cluster = Cluster()
    cluster.owners = {LOG.full: "a", OF_A.full: "a", OF_B.full: "b"}
    async with cluster.broker("a") as a, cluster.broker("b") as b:
        for broker, name in ((a, OF_A), (b, OF_B)):
            await broker.service.get_or_load_topic(name, create=True)
        yield cluster, a, b


async def set_policy(broker, name, field, value):
    await broker.service.namespaces.set_topic_policy(name, field, value)


def limit_at(broker, name):
    return broker.service.topics[name.full].policies.effective.counts.producers_max


async def test_policies_set_at_either_broker_hold_at_both():
    async with two_brokers() as (_cluster, a, b):
        for value, asked in enumerate((a, b, a, b), 5):
            for owner, name in ((a, OF_A), (b, OF_B)):
                await set_policy(asked, name, LIMIT, value)
                await settled(
                    lambda owner=owner, name=name, value=value: limit_at(owner, name) == value
                )
        assert LOG.full not in b.service.topics


async def test_two_brokers_that_change_one_topic_at_once_both_succeed():
    async with two_brokers() as (_cluster, a, b):
        for value in range(1, 6):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(set_policy, a, OF_B, LIMIT, value)
                nursery.start_soon(set_policy, b, OF_B, OTHER, value)
            for broker in (a, b):
                level = (await broker.service.namespaces.get(NAME)).topic_level
                await settled(
                    lambda level=level, value=value: (
                        level.map.own_fields(OF_B, is_global=False) == {LIMIT: value, OTHER: value}
                    )
                )


async def test_a_broker_that_takes_the_log_over_goes_on_with_it():
    async with two_brokers() as (cluster, a, b):
        for owner, name in ((a, OF_A), (b, OF_B)):
            await set_policy(owner, name, LIMIT, 5)
        value = 5
        for former, new in ((a, "b"), (b, "a")):
            cluster.owners[LOG.full] = new
            await former.service.unload_topic(LOG)
            value += 1
            for owner, name in ((a, OF_A), (b, OF_B)):
                await set_policy(owner, name, LIMIT, value)
                assert limit_at(owner, name) == value
            assert LOG.full not in former.service.topics


async def test_no_topic_is_loaded_while_its_policies_cannot_be_read(monkeypatch):
    monkeypatch.setattr(namespace_log, "READ_SECONDS_MAX", 0.2)
    async with two_brokers() as (cluster, a, b):
        await set_policy(b, OF_B, LIMIT, 5)
        del cluster.owners[LOG.full]
        await a.service.unload_topic(LOG)
        await b.service.unload_topic(OF_B)
        level = (await b.service.namespaces.get(NAME)).topic_level
        await settled(lambda: not level.is_live)
        with pytest.raises(ServiceNotReady, match="has no owner"):
            await b.service.get_or_load_topic(OF_B, create=True)
        cluster.owners[LOG.full] = "a"
        await settled(lambda: level.is_live)
        await b.service.get_or_load_topic(OF_B, create=True)
        assert limit_at(b, OF_B) == 5


async def test_records_that_both_find_are_taken_over_once_and_hold_at_both():
    cluster = Cluster()
    cluster.owners = {LOG.full: "a", OF_A.full: "a", OF_B.full: "b"}
    for name in (OF_A, OF_B):
        path = f"/vela/topic-policies/{NAME}/persistent/{name.local_name}"
        await cluster.tree.put(path, b'{"max_producers_per_topic": 4}', None)
    async with cluster.broker("a") as a, cluster.broker("b") as b:
        async with trio.open_nursery() as nursery:
            for broker, name in ((a, OF_A), (b, OF_B)):

                async def load(broker=broker, name=name):
                    await broker.service.get_or_load_topic(name, create=True)
                    assert limit_at(broker, name) == 4

                nursery.start_soon(load)
        assert await cluster.tree.children(f"/vela/topic-policies/{NAME}/persistent") == []
