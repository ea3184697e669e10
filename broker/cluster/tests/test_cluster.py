"""Several brokers share the topics of a cluster."""

import json

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.cluster.bundles import parse_bundle, topic_hash
from broker.cluster.records import BundleLoad, Owner, encode
from broker.cluster.tests.cluster_of import cluster_of, resolve, topic
from broker.ground.refusal import Refusal
from metadata.store import SessionState
from protocol.errors import MetadataError, ServiceNotReady, TopicNotFound


async def owned(broker, name):
    """Make the broker own the topic's bundle."""
    found = await broker.owner_of(name, authoritative=True)
    assert found.address == broker.address
    return (await broker.ownership._bundles.of(name.namespace_name)).bundle_of(name)


@pytest.mark.parametrize("set_by_ms", [-3_600_000, 3_600_000])
async def test_loads_are_reported_as_often_whatever_the_wall_clock_is_set_to(
    set_by_ms, autojump_clock
):
    async with cluster_of(2) as brokers:
        first, second = brokers
        first.clock.set_by_ms = set_by_ms
        before = second.ownership.members.reports[first.id]
        await trio.sleep(14 * 60)
        assert second.ownership.members.reports[first.id] == before
        await trio.sleep(2 * 60)
        assert second.ownership.members.reports[first.id] != before


async def test_members_and_leader_are_seen_by_all(autojump_clock):
    async with cluster_of(3) as brokers:
        for broker in brokers:
            assert sorted(broker.ownership.brokers) == ["b0:8080", "b1:8080", "b2:8080"]
            assert broker.ownership.leader == ("b0:8080", "http://b0:8080")
            assert broker.ownership.is_leader is (broker is brokers[0])


async def test_a_topic_has_one_owner_whoever_is_asked(autojump_clock):
    async with cluster_of(3) as brokers:
        owners = {}
        for number in range(60):
            name = topic(f"t{number}")
            for start in brokers:
                broker, _hops = await resolve(brokers, name, start)
                assert owners.setdefault(name, broker) is broker
            assert [broker.ownership.serves(name) for broker in brokers] == [
                broker is owners[name] for broker in brokers
            ]
        assert len(set(owners.values())) == 3


async def test_a_broker_that_is_not_the_leader_sends_clients_to_it(autojump_clock):
    async with cluster_of(2) as (leader, other):
        found = await other.owner_of(topic("t"))
        assert (found.address, found.is_redirect, found.authoritative) == (
            leader.address,
            True,
            False,
        )
        owner, hops = await resolve([leader, other], topic("t"), other)
        assert hops == (1 if owner is leader else 2)
        again, hops = await resolve([leader, other], topic("t"), other)
        assert (again, hops) == (owner, 0)


async def test_the_node_of_an_owner_is_pulsars(autojump_clock):
    async with cluster_of(1) as (broker,):
        bundle = await owned(broker, topic("t"))
        data, _version = await broker.store.get(f"/namespace/{bundle.name}")
        record = json.loads(data)
        assert record.pop("velaSession") == "process-0-0"
        assert record == {
            "nativeUrl": "pulsar://b0:6650",
            "httpUrl": "http://b0:8080",
            "disabled": False,
            "advertisedListeners": {},
        }
        data, _version = await broker.store.get("/admin/local-policies/public/default")
        assert json.loads(data) == {
            "migrated": False,
            "bundles": {
                "boundaries": [
                    "0x00000000",
                    "0x40000000",
                    "0x80000000",
                    "0xc0000000",
                    "0xffffffff",
                ],
                "numBundles": 4,
            },
        }


async def test_a_bundle_of_a_real_broker_is_left_to_it(autojump_clock):
    async with cluster_of(1) as (broker,):
        bundle = (await broker.ownership._bundles.of("public/default")).bundle_of(topic("t"))
        theirs = {"nativeUrl": "pulsar://real:6650", "httpUrl": "http://real:8080"}
        other = broker.store.another_session()
        await other.put_ephemeral(
            f"/namespace/{bundle.name}", encode({**theirs, "disabled": False})
        )
        found = await broker.owner_of(topic("t"), authoritative=True)
        assert (found.address.broker_service_url, found.is_redirect) == (
            "pulsar://real:6650",
            False,
        )
        await other.delete(f"/namespace/{bundle.name}")
        await other.put_ephemeral(f"/namespace/{bundle.name}", encode({**theirs, "disabled": True}))
        with pytest.raises(ServiceNotReady, match="is being unloaded"):
            await broker.owner_of(topic("t"), authoritative=True)


async def test_the_question_for_an_owner_assigns_nothing(autojump_clock):
    async with cluster_of(2) as (broker, other):
        bundle = (await broker.ownership._bundles.of("public/default")).bundle_of(topic("t"))
        asked = ("public/default", bundle.range_text)
        for each in (broker, other):
            assert await each.ownership.owner_if_any(*asked) is None
        assert await broker.store.get(f"/namespace/{bundle.name}") is None
        await owned(broker, topic("t"))
        for each in (broker, other):
            found = await each.ownership.owner_if_any(*asked)
            assert (found.address, found.is_redirect) == (broker.address, False)
        with pytest.raises(Refusal, match="Invalid bundle range: x"):
            await broker.ownership.owner_if_any("public/default", "x")
        with pytest.raises(TopicNotFound):
            await broker.ownership.owner_if_any("public/none", bundle.range_text)


async def test_an_owner_that_is_changing_is_told_or_refused(autojump_clock):
    async with cluster_of(1) as (broker,):
        bundle = await owned(broker, topic("t"))
        asked = ("public/default", bundle.range_text)
        broker.open_topics[topic("t")] = BundleLoad(topics=1)
        broker.may_close = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.ownership.unload_bundle, *asked)
            await wait_all_tasks_blocked()
            assert (await broker.ownership.owner_if_any(*asked)).address == broker.address
            broker.may_close.set()
        assert await broker.ownership.owner_if_any(*asked) is None
        other = broker.store.another_session()
        theirs = {"nativeUrl": "pulsar://real:6650", "httpUrl": "http://real:8080"}
        await other.put_ephemeral(f"/namespace/{bundle.name}", encode({**theirs, "disabled": True}))
        with pytest.raises(ServiceNotReady, match="is being unloaded"):
            await broker.ownership.owner_if_any(*asked)
        broker.store.become(SessionState.IN_DOUBT)
        with pytest.raises(ServiceNotReady):
            await broker.ownership.owner_if_any(*asked)


async def test_an_earlier_session_of_this_broker_owns_nothing_that_was_in_memory(autojump_clock):
    async with cluster_of(1) as (broker,):
        bundle = (await broker.ownership._bundles.of("public/default")).bundle_of(topic("t"))
        former = Owner(broker.address, session="process-before-0")
        other = broker.store.another_session()
        await other.put_ephemeral(f"/namespace/{bundle.name}", encode(former.record))
        assert await broker.ownership.owner_if_any("public/default", bundle.range_text) is None


@pytest.mark.parametrize("state", [SessionState.IN_DOUBT, SessionState.LOST])
async def test_without_a_live_session_nothing_is_served(autojump_clock, state):
    async with cluster_of(2) as (broker, _other):
        await owned(broker, topic("t"))
        broker.store.become(state)
        assert not broker.ownership.serves(topic("t"))
        with pytest.raises(ServiceNotReady):
            await broker.owner_of(topic("t"))
        if state is SessionState.IN_DOUBT:
            broker.store.become(SessionState.LIVE)
            assert broker.ownership.serves(topic("t"))


async def test_a_lost_session_closes_topics_and_another_broker_may_own_them(autojump_clock):
    async with cluster_of(2) as (broker, other):
        bundle = await owned(broker, topic("t"))
        broker.open_topics[topic("t")] = BundleLoad(topics=1)
        broker.store.become(SessionState.LOST)
        await wait_all_tasks_blocked()
        assert broker.closed == [topic("t")]
        assert await other.ownership._owners.find(bundle) is None
        await owned(other, topic("t"))
        broker.store.become(SessionState.LIVE)
        assert not broker.ownership.serves(topic("t"))
        assert (await broker.owner_of(topic("t"))).address == other.address


async def test_a_new_session_registers_again_and_takes_bundles_on_demand(autojump_clock):
    async with cluster_of(2) as (broker, other):
        await owned(broker, topic("t"))
        broker.store.become(SessionState.LOST)
        await wait_all_tasks_blocked()
        await other.ownership.members.refresh()
        assert sorted(other.ownership.brokers) == ["b1:8080"]
        assert other.ownership.is_leader
        broker.store.become(SessionState.LIVE)
        await wait_all_tasks_blocked()
        await other.ownership.members.refresh()
        assert sorted(other.ownership.brokers) == ["b0:8080", "b1:8080"]
        assert not broker.ownership.is_leader
        await owned(broker, topic("t"))
        assert broker.ownership.serves(topic("t"))


async def test_a_bundle_is_not_taken_again_while_its_topics_are_being_closed(autojump_clock):
    async with cluster_of(1) as (broker,):
        await owned(broker, topic("t"))
        broker.open_topics[topic("t")] = BundleLoad(topics=1)
        broker.may_close = trio.Event()
        broker.store.become(SessionState.LOST)
        broker.store.become(SessionState.LIVE)
        with pytest.raises(ServiceNotReady, match="is being unloaded"):
            await broker.owner_of(topic("t"), authoritative=True)
        broker.may_close.set()
        await wait_all_tasks_blocked()
        await owned(broker, topic("t"))


async def test_doubt_that_lasts_closes_topics_before_the_session_ends(autojump_clock):
    async with cluster_of(1) as (broker,):
        await owned(broker, topic("t"))
        broker.open_topics[topic("t")] = BundleLoad(topics=1)
        broker.store.become(SessionState.IN_DOUBT)
        await trio.sleep(4.9)
        assert broker.open_topics
        await trio.sleep(0.2)
        assert not broker.open_topics
        broker.store.become(SessionState.LIVE)
        assert not broker.ownership.serves(topic("t"))
        await owned(broker, topic("t"))


async def test_a_broker_whose_node_was_deleted_stops_serving(autojump_clock):
    async with cluster_of(2) as (broker, other):
        bundle = await owned(broker, topic("t"))
        broker.open_topics[topic("t")] = BundleLoad(topics=1)
        await other.store.delete(f"/namespace/{bundle.name}")
        assert not broker.ownership.serves(topic("t"))
        await wait_all_tasks_blocked()
        assert broker.closed == [topic("t")]
        await owned(other, topic("t"))


async def test_a_node_of_an_earlier_session_is_waited_for(autojump_clock):
    async with cluster_of(1) as (broker,):
        bundle = (await broker.ownership._bundles.of("public/default")).bundle_of(topic("t"))
        before = broker.store.another_session()
        node = encode(Owner(broker.address, session="process-before-0").record)
        await before.put_ephemeral(f"/namespace/{bundle.name}", node)
        for authoritative in (False, True):
            with pytest.raises(ServiceNotReady, match="earlier session"):
                await broker.owner_of(topic("t"), authoritative=authoritative)
        before.become(SessionState.LOST)
        await owned(broker, topic("t"))


async def test_a_node_whose_creation_was_not_heard_of_is_taken_over(autojump_clock):
    async with cluster_of(2) as (broker, other):
        bundle = (await broker.ownership._bundles.of("public/default")).bundle_of(topic("t"))
        node = encode(Owner(broker.address, session=broker.ownership.session.name).record)
        await broker.store.put_ephemeral(f"/namespace/{bundle.name}", node)
        assert (await other.owner_of(topic("t"))).address == broker.address
        assert (await broker.owner_of(topic("t"))).address == broker.address
        assert broker.ownership.serves(topic("t"))


async def test_unload_closes_topics_before_it_frees_the_bundle(autojump_clock):
    async with cluster_of(2) as (broker, other), trio.open_nursery() as nursery:
        bundle = await owned(broker, topic("t"))
        broker.open_topics[topic("t")] = BundleLoad(topics=1)
        broker.may_close = trio.Event()
        nursery.start_soon(broker.ownership.unload_bundle, "public/default", bundle.range_text)
        await wait_all_tasks_blocked()
        assert not broker.ownership.serves(topic("t"))
        assert (await other.owner_of(topic("t"), authoritative=True)).address == broker.address
        with pytest.raises(ServiceNotReady, match="is being unloaded"):
            await broker.owner_of(topic("t"))
        broker.may_close.set()
        await wait_all_tasks_blocked()
        await owned(other, topic("t"))


async def test_topics_that_do_not_close_do_not_hold_a_bundle_for_ever(autojump_clock):
    async with cluster_of(2) as (broker, other):
        bundle = await owned(broker, topic("t"))
        broker.open_topics[topic("t")] = BundleLoad(topics=1)
        broker.may_close = trio.Event()
        began = trio.current_time()
        await broker.ownership.unload_bundle("public/default", bundle.range_text)
        assert trio.current_time() - began == pytest.approx(60)
        await owned(other, topic("t"))


async def test_leaving_hands_everything_over(autojump_clock):
    async with cluster_of(2) as (broker, other):
        for number in range(40):
            await owned(broker, topic(f"t{number}"))
            broker.open_topics[topic(f"t{number}")] = BundleLoad(topics=1)
        await broker.ownership.leave()
        assert not broker.open_topics
        assert await broker.store.children("/namespace/public/default") == []
        with pytest.raises(ServiceNotReady, match="shutting down"):
            await broker.owner_of(topic("t1"), authoritative=True)
        await wait_all_tasks_blocked()
        await other.ownership.members.refresh()
        assert sorted(other.ownership.brokers) == ["b1:8080"]
        assert other.ownership.is_leader
        assert (await resolve([broker, other], topic("t1"), broker))[0] is other


async def test_a_split_keeps_the_topics_open_and_other_brokers_out(autojump_clock):
    async with cluster_of(2) as (broker, other):
        bundle = await owned(broker, topic("t"))
        names = [each for each in map(topic, map(str, range(100))) if bundle.contains(each)]
        broker.open_topics.update(dict.fromkeys(names, BundleLoad(topics=1)))
        await broker.ownership.split_bundle(
            "public/default", bundle.range_text, "topic_count_equally_divide", unload=False
        )
        assert all(broker.ownership.serves(name) for name in names)
        assert broker.closed == []
        parts = sorted(map(parse_bundle, broker.ownership.owned_bundles))
        assert [part.lower for part in parts] == [bundle.lower, parts[0].upper]
        hashes = sorted(map(topic_hash, names))
        assert hashes[len(names) // 2 - 1] <= parts[0].upper <= hashes[len(names) // 2]
        assert len(await other.ownership.boundaries("public/default")) == 6
        assert sorted(await other.store.children("/namespace/public/default")) == [
            part.range_text for part in parts
        ]
        for name in names:
            assert (await other.owner_of(name)).address == broker.address
        with pytest.raises(Refusal, match="Invalid upper boundary"):
            await broker.ownership.unload_bundle("public/default", bundle.range_text)


async def test_a_bundle_that_was_split_is_not_acquired_by_who_did_not_hear_of_it(autojump_clock):
    async with cluster_of(2) as (broker, other):
        bundle = await owned(broker, topic("t"))
        await broker.ownership.split_bundle("public/default", bundle.range_text, "", unload=False)
        with pytest.raises(ServiceNotReady, match="is not a bundle any more"):
            await other.ownership._acquire(bundle)
        await wait_all_tasks_blocked()
        assert bundle.range_text not in await other.store.children("/namespace/public/default")
        assert broker.ownership.serves(topic("t"))


async def test_both_parts_may_be_given_up_after_a_split(autojump_clock):
    async with cluster_of(1) as (broker,):
        bundle = await owned(broker, topic("t"))
        await broker.ownership.split_bundle("public/default", bundle.range_text, "", unload=True)
        assert broker.ownership.owned_bundles == {}
        assert await broker.store.children("/namespace/public/default") == []


async def test_only_the_owner_splits_a_bundle(autojump_clock):
    async with cluster_of(2) as (broker, other):
        bundle = await owned(broker, topic("t"))
        with pytest.raises(ServiceNotReady, match="is not owned by this broker"):
            await other.ownership.split_bundle("public/default", bundle.range_text, "", unload=True)
        assert list(broker.ownership.owned_bundles) == [bundle.name]
        with pytest.raises(Refusal, match="Unsupported namespace bundle split algorithm"):
            await broker.ownership.split_bundle(
                "public/default", bundle.range_text, "x", unload=True
            )
        with pytest.raises(TopicNotFound):
            await broker.ownership.split_bundle("public/none", bundle.range_text, "", unload=True)


async def test_bundles_of_a_deleted_namespace_are_given_up(autojump_clock):
    async with cluster_of(2) as (broker, other):
        await broker.namespaces.create("public/other", None)
        await owned(broker, topic("t", "public/other"))
        await other.namespaces.mark_deleted("public/other", deleted=True)
        await other.namespaces.delete("public/other")
        await wait_all_tasks_blocked()
        assert broker.ownership.owned_bundles == {}
        with pytest.raises(TopicNotFound):
            await broker.owner_of(topic("t", "public/other"))
        assert await broker.store.children("/namespace/public/other") == []


async def test_policies_with_boundaries_that_are_none_are_refused_by_name(autojump_clock):
    async with cluster_of(2) as (broker, other):
        gap = {"numBundles": 1, "boundaries": ["0x10000000", "0x20000000"]}
        await broker.namespaces.create("public/gap", {"bundles": gap})
        for each in (broker, other):
            with pytest.raises(MetadataError, match=r"public/gap.*Delete the namespace"):
                await each.owner_of(topic("t", "public/gap"), authoritative=True)
        await other.namespaces.mark_deleted("public/gap", deleted=True)
        await other.namespaces.delete("public/gap")
        await owned(broker, topic("t"))


async def test_nothing_is_kept_of_namespaces_that_came_and_went(autojump_clock):
    async with cluster_of(1) as (broker,):
        for number in range(5):
            namespace = f"public/n{number}"
            await broker.namespaces.create(namespace, None)
            bundle = await owned(broker, topic("t", namespace))
            await broker.ownership.split_bundle(namespace, bundle.range_text, "", unload=False)
            await broker.namespaces.mark_deleted(namespace, deleted=True)
            await broker.namespaces.delete(namespace)
        await wait_all_tasks_blocked()
        assert len(broker.ownership._changing) == 0


async def test_damaged_records_are_refused_and_hurt_nobody_else(autojump_clock):
    async with cluster_of(2) as (broker, other):
        bundle = await owned(broker, topic("t"))
        await broker.store.put("/loadbalance/brokers/x:1", b"{", None)
        await broker.store.put("/loadbalance/brokers/y:1", b'{"webServiceUrl":7}', None)
        await other.ownership.members.refresh()
        assert sorted(other.ownership.brokers) == ["b0:8080", "b1:8080"]
        await broker.ownership.unload_bundle("public/default", bundle.range_text)
        await broker.store.put(f"/namespace/{bundle.name}", b"[]", None)
        with pytest.raises(MetadataError, match="damaged"):
            await broker.owner_of(topic("t"))
        await broker.store.put("/admin/local-policies/public/default", b'{"bundles":{}}', None)
        with pytest.raises(MetadataError, match="damaged"):
            await broker.owner_of(topic("t"))


async def test_the_topics_of_all_bundles_are_found_in_one_go(autojump_clock):
    async with cluster_of(1) as (broker,):
        names = [topic(f"t{number}") for number in range(200)]
        await broker.ownership.owner_of(names[0])
        for _split in range(2):
            for bundle in list(broker.ownership.owned_bundles):
                range_text = bundle.rpartition("/")[2]
                await broker.ownership.split_bundle("public/default", range_text, "", unload=False)
        for name in names:
            await broker.owner_of(name, authoritative=True)
            broker.open_topics[name] = BundleLoad(topics=1)
        assert len(broker.ownership.owned_bundles) > 4
        await broker.ownership.leave()
        assert broker.scans == 1
        assert set(broker.closed) == set(names)
        assert await broker.store.children("/namespace/public/default") == []
