"""Tenants, namespaces, partitioned topics, and what may be created by naming it."""

from __future__ import annotations

import dataclasses
import json

import pytest
import trio
import trio.testing

from broker.ground.config import DEFAULT_CONFIG
from broker.ground.refusal import Refusal
from broker.peers.broker_address import BrokerAddress
from broker.tenancy.namespaces.namespaces import Namespaces
from metadata.memory_store import MemoryStore
from protocol.errors import NotAllowed, ServiceNotReady, TopicNotFound
from protocol.topic_name import NON_PERSISTENT, PERSISTENT, TopicName

TOPIC = TopicName.parse("persistent://public/default/a")


async def fresh(**keys: object) -> tuple[Namespaces, MemoryStore]:
    store = MemoryStore()
    namespaces = Namespaces(store, dataclasses.replace(DEFAULT_CONFIG, **keys))
    await namespaces.bootstrap(BrokerAddress("pulsar://localhost:6650", "http://localhost:8080"))
    return namespaces, store


async def put_ledger(store: MemoryStore, topic: TopicName) -> None:
    await store.put(f"/managed-ledgers/{topic.managed_ledger_name}", b"", None)


async def refused(awaitable, status: int, reason: str) -> None:
    with pytest.raises(Refusal) as caught:
        await awaitable
    assert (caught.value.status, caught.value.reason) == (status, reason)


async def delete_partitioned(namespaces: Namespaces, store: MemoryStore, topic: TopicName) -> None:
    async with (await namespaces.get("public/default")).partitioned.deleting(topic):
        for index in range(await namespaces.partitions_of(topic)):
            await store.delete(f"/managed-ledgers/{topic.partition(index).managed_ledger_name}")


async def test_bootstrap_makes_what_clients_expect_and_is_repeatable():
    namespaces, store = await fresh()
    await namespaces.clusters.create_or_change("global", {})  # Pulsar's, and no cluster
    assert await namespaces.clusters.names() == ["standalone"]
    assert await namespaces.tenants.names() == ["public", "pulsar"]
    assert await namespaces.names("public") == ["public/default"]
    await namespaces.change_policies("public/default", lambda p: p.with_fields(x=1))
    again = Namespaces(store, DEFAULT_CONFIG)
    await again.bootstrap(BrokerAddress("pulsar://other:6650", "http://other:8080"))
    assert (await again.get("public/default")).policies.record.fields["x"] == 1
    assert (await again.clusters.get("standalone"))["serviceUrl"] == "http://other:8080"


async def test_tenant_refusals_carry_pulsars_texts():
    tenants = (await fresh())[0].tenants
    info = {"adminRoles": ["a"], "allowedClusters": ["standalone"]}
    await tenants.create("t1", info)
    await refused(tenants.create("t1", info), 409, "Tenant already exist")
    await refused(tenants.create("t2", None), 412, "TenantInfo is null")
    await refused(
        tenants.create("t2", {"allowedClusters": []}), 412, "Clusters cannot be empty or blank"
    )
    await refused(tenants.create("t2", {"allowedClusters": ["nope"]}), 412, "Clusters do not exist")
    await refused(tenants.create("t@", info), 412, "Tenant name is not valid")
    await refused(tenants.change("tx", info), 404, "Tenant tx not found")
    await refused(tenants.delete("public"), 409, "The tenant still has active namespaces")
    await tenants.delete("t1")
    await refused(tenants.get("t1"), 404, "Tenant does not exist")


async def test_namespace_policies_keep_unknown_fields_and_survive_a_restart():
    namespaces, store = await fresh()
    await namespaces.create("public/n1", {"replication_clusters": ["standalone"]})
    await namespaces.change_policies("public/n1", lambda p: p.with_fields(future_field={"a": [1]}))
    await refused(namespaces.create("public/n1", None), 409, "Namespace already exists")
    await refused(namespaces.create("nope/n1", None), 404, "Tenant does not exist")
    await refused(namespaces.create("public/n@", None), 412, "Namespace name is not valid")
    await namespaces.change_policies(
        "public/n1", lambda p: p.with_auth("namespace_auth", {"r": ["produce", "consume"]})
    )
    other = Namespaces(store, DEFAULT_CONFIG)
    policies = (await other.get("public/n1")).policies.record
    assert policies.auth("namespace_auth") == {"r": ["produce", "consume"]}
    assert policies.fields["future_field"] == {"a": [1]}
    assert policies.fields["bundles"]["boundaries"][1] == "0x40000000"
    stored = await store.get("/admin/policies/public/n1")
    assert stored is not None
    assert json.loads(stored[0])["encryption_required"] is False


async def test_namespace_with_topics_is_not_deleted():
    namespaces, store = await fresh()
    await put_ledger(store, TOPIC)
    assert await namespaces.mark_deleted("public/default", deleted=True)
    assert not await namespaces.mark_deleted("public/default", deleted=True)
    await refused(namespaces.delete("public/default"), 409, "Cannot delete non empty namespace")
    await store.delete(f"/managed-ledgers/{TOPIC.managed_ledger_name}")
    await namespaces.delete("public/default")
    await refused(namespaces.get("public/default"), 404, "Namespace does not exist")
    await refused(
        namespaces.delete("public/default"), 404, "Namespace public/default does not exist."
    )


async def test_asking_for_partitions_does_not_create_a_plain_topic():
    namespaces, _ = await fresh()
    assert await namespaces.resolve_for_lookup(TOPIC, True) == 0
    await namespaces.create_partitioned_topic(TOPIC, 3)
    assert await namespaces.resolve_for_lookup(TOPIC, True) == 3


async def test_without_auto_creation_an_unknown_topic_is_not_found():
    namespaces, store = await fresh()
    with pytest.raises(TopicNotFound):
        await namespaces.resolve_for_lookup(TOPIC, False)
    await put_ledger(store, TOPIC)
    assert await namespaces.resolve_for_lookup(TOPIC, False) == 0


@pytest.mark.parametrize("name", ["nope/nope/x", "public/nope/x"])
async def test_unknown_namespace_is_topic_not_found(name: str):
    namespaces, _ = await fresh()
    with pytest.raises(TopicNotFound, match="Namespace not found"):
        await namespaces.resolve_for_lookup(TopicName.parse(name), True)
    with pytest.raises(TopicNotFound):
        await namespaces.check_topic(TopicName.parse(name), create=True)


async def test_clients_topics_can_be_partitioned_by_default():
    namespaces, _ = await fresh(allowAutoTopicCreationType="partitioned", defaultNumPartitions=4)
    assert await namespaces.resolve_for_lookup(TOPIC, True) == 4
    assert await namespaces.partitioned_topics("public/default", PERSISTENT) == [TOPIC.full]


async def test_only_partitions_that_were_made_are_listed():
    """As in Pulsar: those of a topic that clients have named are made one by one, as they use
    them."""
    namespaces, store = await fresh(
        allowAutoTopicCreationType="partitioned", defaultNumPartitions=2
    )
    await namespaces.resolve_for_lookup(TOPIC, True)
    assert await namespaces.topics("public/default", PERSISTENT) == []
    path = f"/managed-ledgers/{TOPIC.partition(1).managed_ledger_name}"
    await store.put(path, b"", None)
    partition = TOPIC.partition(1).full
    assert await namespaces.topics("public/default", PERSISTENT) == [partition]
    await store.delete(path)
    assert await namespaces.topics("public/default", PERSISTENT) == []
    await namespaces.check_topic(TOPIC.partition(1), create=True)


async def test_partitions_that_clients_may_make_count_towards_the_limit_of_topics():
    namespaces, _ = await fresh(
        allowAutoTopicCreationType="partitioned", defaultNumPartitions=2, maxTopicsPerNamespace=3
    )
    await namespaces.resolve_for_lookup(TOPIC, True)
    with pytest.raises(NotAllowed):
        await namespaces.resolve_for_lookup(TopicName.parse("persistent://public/default/b"), True)


async def test_a_namespace_overrides_auto_creation_at_once():
    namespaces, _ = await fresh()
    await namespaces.check_topic(TOPIC, create=True)
    override = {"allowAutoTopicCreation": False}
    await namespaces.change_policies(
        "public/default", lambda p: p.with_fields(autoTopicCreationOverride=override)
    )
    with pytest.raises(TopicNotFound):
        await namespaces.check_topic(TOPIC, create=True)
    await namespaces.change_policies(
        "public/default", lambda p: p.with_fields(autoTopicCreationOverride=None)
    )
    await namespaces.check_topic(TOPIC, create=True)


async def test_partitions_beyond_the_number_do_not_exist_until_it_grows():
    namespaces, _ = await fresh(allowAutoTopicCreation=True)
    await namespaces.create_partitioned_topic(TOPIC, 2)
    await namespaces.check_topic(TOPIC.partition(1), create=False)
    with pytest.raises(TopicNotFound):
        await namespaces.check_topic(TOPIC.partition(2), create=True)
    namespace = await namespaces.get("public/default")
    await namespace.partitioned.grow(TOPIC, 3)
    await namespaces.check_topic(TOPIC.partition(2), create=True)
    with pytest.raises(NotAllowed):
        await namespaces.check_topic(TOPIC, create=True)
    await refused(
        namespace.partitioned.grow(TOPIC, 2),
        422,
        "Desired partitions 2 can't be less than the current partitions 3.",
    )


async def test_partitioned_topic_refusals_and_restart():
    namespaces, store = await fresh()
    await namespaces.create_partitioned_topic(TOPIC, 2, {"k": "v"})
    create = namespaces.create_partitioned_topic
    await refused(create(TOPIC, 2), 409, "This topic already exists")
    other = TopicName.parse("persistent://public/default/b c%")
    await refused(create(other, 0), 406, "Number of partitions should be more than 0")
    await refused(
        create(TopicName.parse("x-partition-1"), 2),
        412,
        "Partitioned Topic Name should not contain '-partition-'",
    )
    await create(other, 1)
    restarted = Namespaces(store, DEFAULT_CONFIG)
    assert await restarted.partitions_of(other) == 1
    metadata = (await restarted.get("public/default")).partitioned.metadata(TOPIC)
    assert metadata == {"partitions": 2, "deleted": False, "properties": {"k": "v"}}
    assert await restarted.topics("public/default", PERSISTENT) == [
        "persistent://public/default/a-partition-0",
        "persistent://public/default/a-partition-1",
        "persistent://public/default/b c%-partition-0",
    ]


async def test_partitions_are_listed_by_brokers_of_pulsar_before_their_first_use():
    namespaces, store = await fresh()
    await store.put(f"/managed-ledgers/{TOPIC.partition(1).managed_ledger_name}", b"\x1a\0", None)
    await namespaces.create_partitioned_topic(TOPIC, 2)
    await namespaces.create_partitioned_topic(
        TopicName.parse("non-persistent://public/default/memory"), 2
    )
    parent = "/managed-ledgers/public/default/persistent"
    assert await store.children(parent) == ["a-partition-0", "a-partition-1"]
    values = [await store.get(f"{parent}/a-partition-{index}") for index in range(2)]
    assert [value[0] for value in values if value is not None] == [b"", b"\x1a\0"]
    await (await namespaces.get("public/default")).partitioned.grow(TOPIC, 3)
    assert await store.children(parent) == [f"a-partition-{index}" for index in range(3)]
    assert await store.children("/managed-ledgers/public/default") == ["persistent"]


async def test_partitions_are_not_made_while_their_topic_is_being_deleted():
    namespaces, store = await fresh()
    await namespaces.create_partitioned_topic(TOPIC, 2)
    other = Namespaces(store.another_session(), DEFAULT_CONFIG)
    partitioned = (await namespaces.get("public/default")).partitioned
    part = TOPIC.partition(0)

    async def delete_one_and_fail() -> None:
        async with partitioned.deleting(TOPIC):
            for each in (namespaces, other):
                await each.check_topic(part, create=False)
                with pytest.raises(ServiceNotReady):
                    await each.check_topic(part, create=True)
                with pytest.raises(ServiceNotReady):
                    await each.resolve_for_lookup(part, True)
            await store.delete(f"/managed-ledgers/{part.managed_ledger_name}")
            for each in (namespaces, other):
                assert not await each.topic_exists(part)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await delete_one_and_fail()
    for each in (namespaces, other):
        await each.check_topic(part, create=True)
        assert await each.partitions_of(TOPIC) == 2


async def test_a_deleted_topic_is_not_believed_to_exist():
    namespaces, store = await fresh()
    await put_ledger(store, TOPIC)
    assert await namespaces.topic_exists(TOPIC)
    await store.delete(f"/managed-ledgers/{TOPIC.managed_ledger_name}")
    assert not await namespaces.topic_exists(TOPIC)


class Deaf:
    """A session that hears of changes only that anything may have changed: it was cut off."""

    def __init__(self, store):
        self._store = store
        self._watches = []

    def __getattr__(self, name):
        return getattr(self._store, name)

    def watch(self, path, on_change):
        self._watches.append((path, on_change))
        return lambda: None

    def is_in_touch_again(self):
        for path, on_change in self._watches:
            on_change(path)


async def test_what_changed_while_the_store_was_out_of_reach_is_read_again():
    other, store = await fresh()
    deaf = Deaf(store.another_session())
    namespaces = Namespaces(deaf, DEFAULT_CONFIG)
    await put_ledger(store, TOPIC)
    assert await namespaces.topic_exists(TOPIC)
    await store.delete(f"/managed-ledgers/{TOPIC.managed_ledger_name}")
    await other.create_partitioned_topic(TOPIC, 3)
    await other.change_policies("public/default", lambda p: p.with_fields(x=1))
    assert await namespaces.partitions_of(TOPIC) == 0
    deaf.is_in_touch_again()
    assert await namespaces.partitions_of(TOPIC) == 3
    assert (await namespaces.get("public/default")).policies.record.fields["x"] == 1
    await delete_partitioned(other, store, TOPIC)
    deaf.is_in_touch_again()
    assert await namespaces.partitions_of(TOPIC) == 0
    assert not await namespaces.topic_exists(TOPIC)


async def test_what_another_broker_writes_is_seen():
    namespaces, store = await fresh()
    other = Namespaces(store.another_session(), DEFAULT_CONFIG)
    for each in (namespaces, other):
        assert await each.partitions_of(TOPIC) == 0
    await other.create_partitioned_topic(TOPIC, 3)
    assert namespaces.partitions_in_memory(TOPIC) is None, "the store must be asked again"
    assert await namespaces.partitions_of(TOPIC) == 3
    assert namespaces.partitions_in_memory(TOPIC) == 3
    await delete_partitioned(other, store, TOPIC)
    assert await namespaces.partitions_of(TOPIC) == 0

    held = await namespaces.get("public/default")
    await other.change_policies("public/default", lambda p: p.with_fields(x=1))
    assert not namespaces.is_loaded("public/default")
    assert (await namespaces.get("public/default")).policies.record.fields["x"] == 1
    assert held.policies.record.fields["x"] == 1, "whoever holds the namespace sees it, too"

    await put_ledger(store, TOPIC)
    assert await other.topic_exists(TOPIC)
    await store.delete(f"/managed-ledgers/{TOPIC.managed_ledger_name}")
    assert not await other.topic_exists(TOPIC)
    await other.mark_deleted("public/default", deleted=True)
    await other.delete("public/default")
    assert await namespaces.find("public/default") is None


async def test_limits_of_tenants_and_of_their_namespaces():
    namespaces, _ = await fresh(maxTenants=3, maxNamespacesPerTenant=2)
    info = {"allowedClusters": ["standalone"]}
    await namespaces.tenants.create("t", info)  # beside public and pulsar
    await refused(namespaces.tenants.create("u", info), 412, "Exceed the maximum number of tenants")
    for name in ("a", "b", "c"):  # one more than the key says, as in Pulsar
        await namespaces.create(f"t/{name}", None)
    too_many = "Exceed the maximum number of namespace in tenant :t"
    await refused(namespaces.create("t/d", None), 412, too_many)


async def test_topic_limit_of_a_namespace():
    namespaces, store = await fresh(maxTopicsPerNamespace=2)
    await put_ledger(store, TOPIC)
    too_many = "Exceed maximum number of topics in namespace."
    await refused(namespaces.create_partitioned_topic(TopicName.parse("b"), 2), 412, too_many)
    await namespaces.check_topic(TopicName.parse("b"), create=True)
    await put_ledger(store, TopicName.parse("b"))
    with pytest.raises(NotAllowed):
        await namespaces.check_topic(TopicName.parse("c"), create=True)


async def test_kinds_of_topics_can_be_switched_off():
    namespaces, _ = await fresh(enableNonPersistentTopics=False)
    with pytest.raises(NotAllowed):
        await namespaces.check_topic(
            TopicName.of(NON_PERSISTENT, "public", "default", "x"), create=True
        )


async def test_a_changed_record_is_not_answered_from_memory_while_it_is_read():
    namespaces, store = await fresh()
    await namespaces.create_partitioned_topic(TOPIC, 2)
    assert await namespaces.resolve_for_lookup(TOPIC, False) == 2
    reading, may_read, read = trio.Event(), trio.Event(), store.get

    async def slowly(asked):
        if asked == path:
            reading.set()
            await may_read.wait()
        return await read(asked)

    path = "/admin/partitioned-topics/public/default/persistent/a"
    await store.put(path, json.dumps({"partitions": 3, "deleted": False}).encode(), None)
    store.get = slowly
    answers = []

    async def ask():
        answers.append(await namespaces.resolve_for_lookup(TOPIC, False))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await reading.wait()
        assert namespaces.partitions_in_memory(TOPIC) is None
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        may_read.set()
    assert answers == [3, 3]
    assert namespaces.partitions_in_memory(TOPIC) == 3
