"""Damaged records of namespaces and topics: refused by their path, and others go on."""

import dataclasses
import json

import pytest

from broker.ground.config import DEFAULT_CONFIG
from broker.peers.broker_address import BrokerAddress
from broker.tenancy.namespaces.names import (
    local_policies_path,
    partitioned_topics_path,
    policies_path,
    topic_policies_path,
)
from broker.tenancy.namespaces.namespaces import Namespaces
from metadata.memory_store import MemoryStore
from protocol.errors import MetadataError
from protocol.topic_name import PERSISTENT, TopicName

NAME = "public/default"
DAMAGED = TopicName.parse("damaged")
PARTITION = TopicName.parse("damaged-partition-0")
OTHER = TopicName.parse("other")
CONFIG = dataclasses.replace(DEFAULT_CONFIG)
PARTITIONS = f"{partitioned_topics_path(NAME, PERSISTENT)}/damaged"
TOPIC_POLICIES = f"{topic_policies_path(NAME, PERSISTENT)}/damaged"
NO_OBJECTS = [b"", b"{", b"[]", b"null", b"\xff", b"[" * 99_999, b'{"a": "\\ud800"}']


def encoded(record):
    return json.dumps(record).encode()


async def fresh(store=None):
    namespaces = Namespaces(store or MemoryStore(), CONFIG)
    await namespaces.bootstrap(BrokerAddress("pulsar://a:1", "http://a:1"))
    return namespaces


NO_PARTITIONS = [
    *NO_OBJECTS,
    b"{}",
    *(
        encoded({"partitions": count})
        for count in (None, "x", -1, 1.5, True, [2], 10**9, 2**62, 10**400)
    ),
    encoded({"partitions": 2, "properties": "x"}),
]


@pytest.mark.parametrize("record", NO_PARTITIONS)
@pytest.mark.parametrize("is_loaded", [True, False])
async def test_a_damaged_partitioned_topic_concerns_no_other(record, is_loaded):
    store = MemoryStore()
    namespaces = await fresh(store)
    await namespaces.create_partitioned_topic(DAMAGED, 2)
    await namespaces.create_partitioned_topic(OTHER, 2)
    if not is_loaded:
        namespaces = Namespaces(store, CONFIG)
    await store.another_session().put(PARTITIONS, record, None)
    for topic in (DAMAGED, PARTITION):
        with pytest.raises(MetadataError, match=PARTITIONS):
            await namespaces.resolve_for_lookup(topic, allow_auto_create=True)
    assert await namespaces.resolve_for_lookup(OTHER, allow_auto_create=True) == 2
    await namespaces.create_partitioned_topic(TopicName.parse("third"), 1)
    names = [DAMAGED.full, OTHER.full, "persistent://public/default/third"]
    assert list(await namespaces.partitioned_topics(NAME, PERSISTENT)) == names
    assert len(await namespaces.topics(NAME, PERSISTENT)) == 5
    await store.put(PARTITIONS, encoded({"partitions": 2}), None)
    assert await namespaces.resolve_for_lookup(DAMAGED, allow_auto_create=False) == 2


NO_POLICIES = [
    *NO_OBJECTS,
    *(
        encoded(record)
        for record in (
            {"persistence": [1]},
            {"persistence": {"bookkeeperEnsemble": "x"}},
            {"persistence": {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2}},
            {"persistence": {"managedLedgerMaxMarkDeleteRate": 10**400}},
            {"retention_policies": {"retentionSizeInMB": None}},
            {"retention_policies": 7},
            {"autoTopicCreationOverride": "x"},
            {"max_producers_per_topic": "x"},
            {"max_topics_per_namespace": [1]},
        )
    ),
]


@pytest.mark.parametrize("record", NO_POLICIES)
@pytest.mark.parametrize("is_loaded", [True, False])
async def test_damaged_policies_of_a_topic_that_are_to_be_taken_over_concern_no_other(
    record, is_loaded
):
    store = MemoryStore()
    namespaces = await fresh(store)
    await namespaces.get(NAME)
    if not is_loaded:
        namespaces = Namespaces(store, CONFIG)
    await store.another_session().put(TOPIC_POLICIES, record, None)
    for topic in (DAMAGED, PARTITION):
        with pytest.raises(MetadataError, match=TOPIC_POLICIES):
            await namespaces.of_topic(topic)
    assert await namespaces.of_topic(OTHER)
    await store.put(TOPIC_POLICIES, b"{}", None)
    assert await namespaces.of_topic(DAMAGED)


@pytest.mark.parametrize(
    "record",
    [
        *NO_POLICIES,
        encoded({"bundles": [1]}),
        encoded({"bundles": {"boundaries": 7}}),
        encoded({"auth_policies": "x"}),
    ],
)
@pytest.mark.parametrize("is_loaded", [True, False])
async def test_damaged_policies_of_a_namespace_are_refused_by_their_path(record, is_loaded):
    store = MemoryStore()
    namespaces = await fresh(store)
    namespace = await namespaces.get(NAME)
    before = namespace.policies.effective
    if not is_loaded:
        namespaces = Namespaces(store, CONFIG)
    stored, _version = await store.get(policies_path(NAME))
    await store.another_session().put(policies_path(NAME), record, None)
    for _attempt in range(2):
        with pytest.raises(MetadataError, match=policies_path(NAME)):
            await namespaces.find(NAME)
    assert namespace.policies.effective == before
    await store.put(policies_path(NAME), stored, None)
    assert await namespaces.find(NAME)


async def test_a_damaged_group_of_bookies_is_refused_by_its_path():
    store = MemoryStore()
    namespaces = await fresh(store)
    await store.put(local_policies_path(NAME), encoded({"bookieAffinityGroup": [1]}), None)
    with pytest.raises(MetadataError, match=local_policies_path(NAME)):
        await namespaces.find(NAME)
