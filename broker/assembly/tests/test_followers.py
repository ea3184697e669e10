"""What another session wrote is in force here without a request."""

import json
from dataclasses import replace

import pytest
from trio.testing import wait_all_tasks_blocked

from broker.assembly.app import running_broker
from broker.assembly.followers import DynamicConfiguration, PolicyChanges
from broker.assembly.parts import StartError
from broker.ground.config import BrokerConfig
from broker.peers.broker_address import BrokerAddress
from broker.tenancy.namespaces.names import DYNAMIC_CONFIGURATION_PATH, policies_path
from broker.tenancy.namespaces.namespaces import Namespaces
from metadata.memory_store import MemoryStore
from metadata.store import MetadataUnavailable
from protocol.errors import MetadataError
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually

CONFIG = replace(BrokerConfig(), brokerServicePort=0, webServicePort=0)


async def put(store, path, value):
    await store.put(path, json.dumps(value).encode(), None)


async def test_dynamic_configuration_of_another_session_is_in_force():
    async with running_broker(CONFIG, None) as broker:
        other = broker.admin.store.another_session()
        await put(other, DYNAMIC_CONFIGURATION_PATH, {"maxProducersPerTopic": "7"})
        await eventually(lambda: broker.service.config.maxProducersPerTopic == 7)
        await other.delete(DYNAMIC_CONFIGURATION_PATH)
        await eventually(lambda: broker.service.config.maxProducersPerTopic == 0)
        assert broker.admin.dynamic == {}


class Topic:
    """Counts how often policies were applied."""

    def __init__(self):
        self.applied = 0

    async def apply_policies(self):
        self.applied += 1


async def test_policies_of_another_session_reach_watching_topics(nursery):
    store = MemoryStore()
    namespaces = Namespaces(store, CONFIG)
    await namespaces.bootstrap(BrokerAddress("pulsar://a:1", "http://a:1"))
    namespace = await namespaces.find("public/default")
    topic = Topic()
    namespace.policies.of_topic(TopicName.parse("t")).watch(topic)
    await nursery.start(PolicyChanges(store, namespaces).run)
    fields = {**namespace.policies.record.fields, "deduplicationEnabled": True}
    await put(store.another_session(), policies_path("public/default"), fields)
    await eventually(lambda: topic.applied > 0)
    assert namespace.policies.record.fields["deduplicationEnabled"] is True
    applied = topic.applied
    await put(store.another_session(), policies_path("public/unknown"), fields)
    assert topic.applied == applied


class OutOfReach:
    """A store whose reads fail for a while."""

    def __init__(self, store):
        self._store = store
        self.fails = 0
        self.failed = 0

    def watch(self, path, on_change):
        return self._store.watch(path, on_change)

    async def get(self, path):
        if self.fails:
            self.fails -= 1
            self.failed += 1
            raise MetadataUnavailable("out of reach")
        return await self._store.get(path)


class Admin:
    """Takes the values."""

    def __init__(self):
        self.dynamic = {}

    async def set_dynamic(self, values):
        self.dynamic = values


async def test_a_change_is_read_again_when_the_store_is_back(nursery, autojump_clock):
    inner = MemoryStore()
    store, admin = OutOfReach(inner), Admin()
    await nursery.start(DynamicConfiguration(store, admin).run)
    store.fails = 2
    await put(inner, DYNAMIC_CONFIGURATION_PATH, {"a": "b"})
    await eventually(lambda: admin.dynamic == {"a": "b"})
    assert store.failed == 2


async def test_a_start_without_the_store_fails(nursery):
    store = OutOfReach(MemoryStore())
    store.fails = 1
    with pytest.raises(MetadataUnavailable):
        await nursery.start(DynamicConfiguration(store, Admin()).run)


DAMAGED = [
    b"",
    b"{",
    b"[]",
    b"\xff",
    b'{"maxProducersPerTopic": 7}',
    b'{"a": "\\ud800"}',
    b"[" * 99999,
]


async def test_a_damaged_dynamic_configuration_changes_nothing():
    async with running_broker(CONFIG, None) as broker:
        other = broker.admin.store.another_session()
        await put(other, DYNAMIC_CONFIGURATION_PATH, {"maxProducersPerTopic": "7"})
        await eventually(lambda: broker.service.config.maxProducersPerTopic == 7)
        for record in DAMAGED:
            await other.put(DYNAMIC_CONFIGURATION_PATH, record, None)
            await wait_all_tasks_blocked()
            assert broker.service.config.maxProducersPerTopic == 7
        await put(other, DYNAMIC_CONFIGURATION_PATH, {"maxProducersPerTopic": "8"})
        await eventually(lambda: broker.service.config.maxProducersPerTopic == 8)


@pytest.mark.parametrize("record", DAMAGED)
async def test_no_broker_starts_with_a_damaged_dynamic_configuration(record):
    store = MemoryStore()
    await store.put(DYNAMIC_CONFIGURATION_PATH, record, None)
    with pytest.raises(StartError, match=DYNAMIC_CONFIGURATION_PATH):
        await DynamicConfiguration(store, None).run()


async def test_a_broker_starts_although_the_default_namespace_is_damaged():
    store = MemoryStore()
    namespaces = Namespaces(store, CONFIG)
    await namespaces.bootstrap(BrokerAddress("pulsar://a:1", "http://a:1"))
    await store.put(policies_path("public/default"), b"{", None)
    await Namespaces(store, CONFIG).make_defaults()
    assert (await store.get(policies_path("public/default")))[0] == b"{"
    with pytest.raises(MetadataError, match=policies_path("public/default")):
        await namespaces.find("public/default")
