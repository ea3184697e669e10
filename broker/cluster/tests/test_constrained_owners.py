"""Isolation policies, anti-affinity groups and heartbeat namespaces decide who owns bundles."""

import json

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.cluster.bundles import parse_bundle
from broker.cluster.heartbeat import heartbeat_broker, heartbeat_namespaces
from broker.cluster.isolation import IsolationPolicy
from broker.cluster.isolation_records import domains_path, policies_path
from broker.cluster.tests.cluster_of import cluster_of, resolve, topic
from broker.ground.refusal import Refusal
from metadata.store import SessionState
from protocol.errors import MetadataError, ServiceNotReady

POLICIES = policies_path("standalone")


def policy(namespaces, primary, secondary=(), limit=1, usage=100):
    return IsolationPolicy(
        namespaces=tuple(namespaces),
        primary=tuple(primary),
        secondary=tuple(secondary),
        min_limit=limit,
        usage_threshold=usage,
    ).record


async def write(broker, **policies):
    await broker.store.put(POLICIES, json.dumps(policies).encode(), None)


async def until_served(broker, name):
    with trio.fail_after(60):
        while not broker.ownership.serves(name):  # noqa: ASYNC110 - others change it
            await trio.sleep(0.1)


async def owners_of(brokers, namespace, count=24):
    """The numbers of the brokers that own its topics."""
    found = set()
    for number in range(count):
        owner, _hops = await resolve(brokers, topic(f"t{number}", namespace), brokers[number % 2])
        found.add(brokers.index(owner))
    return found


async def test_isolated_namespaces_have_their_brokers_to_themselves(autojump_clock):
    async with cluster_of(3) as brokers:
        await brokers[0].namespaces.create("public/iso", None)
        await write(brokers[0], one=policy(["public/iso"], ["b1"], ["b2"]))
        assert await owners_of(brokers, "public/iso") == {1}
        assert await owners_of(brokers, "public/default") == {0, 2}


async def test_without_its_primaries_a_namespace_goes_to_the_secondaries(autojump_clock):
    async with cluster_of(3) as brokers:
        await write(brokers[0], one=policy(["public/default"], ["gone"], ["b2"]))
        assert await owners_of(brokers, "public/default") == {2}
        await write(brokers[0], one=policy(["public/default"], ["gone"], ["gone-too"]))
        await brokers[2].ownership.unload_namespace("public/default")
        with pytest.raises(ServiceNotReady, match="No broker was available"):
            await brokers[0].owner_of(topic("t"))


async def test_a_broker_takes_no_bundle_that_policies_keep_from_it(autojump_clock):
    """Whatever the request says: it may come from a leader that knew other policies."""
    async with cluster_of(2) as (broker, other):
        await write(broker, one=policy(["public/default"], ["b0"]))
        with pytest.raises(ServiceNotReady, match="Isolation policies keep"):
            await other.owner_of(topic("t"), authoritative=True)
        assert other.ownership.owned_bundles == {}
        found = await broker.owner_of(topic("t"), authoritative=True)
        assert found.address == broker.address


async def test_a_policy_that_only_the_leader_understands_is_left_to_it(autojump_clock):
    """A leader of Pulsar sends the bundle here for ever."""
    async with cluster_of(2) as (broker, other):
        await write(broker, one=policy(["public/default"], ["b(?=1)1"]))
        with pytest.raises(ServiceNotReady, match="No broker was available"):
            await broker.owner_of(topic("t"))
        found = await other.owner_of(topic("t"), authoritative=True)
        assert found.address == other.address


async def test_a_policy_moves_nothing_before_an_unload(autojump_clock):
    async with cluster_of(2) as brokers:
        broker, other = brokers
        found = await broker.owner_of(topic("t"), authoritative=True)
        await write(broker, one=policy(["public/default"], ["b1"]))
        assert (await broker.owner_of(topic("t"))).address == found.address == broker.address
        await broker.ownership.unload_namespace("public/default")
        assert (await resolve(brokers, topic("t"), broker))[0] is other


async def test_a_damaged_record_of_policies_places_nothing(autojump_clock):
    async with cluster_of(2) as (broker, other):
        kept = await broker.owner_of(topic("t"), authoritative=True)
        await broker.namespaces.create("public/new", None)
        for damaged in (b"{", b"[]", b'{"one":{"namespaces":["x"]}}'):
            await broker.store.put(POLICIES, damaged, None)
            with pytest.raises(MetadataError, match="is damaged"):
                await broker.owner_of(topic("t", "public/new"), authoritative=True)
        assert (await other.owner_of(topic("t"))).address == kept.address
        await write(broker)
        await broker.owner_of(topic("t", "public/new"), authoritative=True)


async def test_namespaces_of_a_group_are_spread_over_domains_and_brokers(autojump_clock):
    async with cluster_of(4, failureDomainsEnabled=True) as brokers:
        broker = brokers[0]
        for name, members in (("d1", ["b0:8080", "b1:8080"]), ("d2", ["b2:8080", "b3:8080"])):
            value = json.dumps({"brokers": members}).encode()
            await broker.store.put(f"{domains_path('standalone')}/{name}", value, None)
        owners = []
        for number in range(4):
            namespace = f"public/g{number}"
            await broker.namespaces.create(namespace, None)
            await broker.ownership.boundaries(namespace)
            path = f"/admin/local-policies/{namespace}"
            record = json.loads((await broker.store.get(path))[0])
            group = "Zone" if number % 2 else "zone"
            record["namespaceAntiAffinityGroup"] = group
            await broker.store.put(path, json.dumps(record).encode(), None)
            owner, _hops = await resolve(brokers, topic("t", namespace), broker)
            owners.append(brokers.index(owner))
        assert sorted(owners) == [0, 1, 2, 3]
        assert {owners[0] // 2, owners[1] // 2} == {0, 1}


async def test_only_bundles_that_another_broker_may_own_are_shed(autojump_clock):
    async with cluster_of(2) as brokers:
        broker, _other = brokers
        await broker.namespaces.create("public/iso", None)
        await write(broker, one=policy(["public/iso"], ["b0"]))
        await broker.owner_of(topic("t", "public/iso"), authoritative=True)
        (isolated,) = broker.ownership.owned_bundles
        await trio.sleep(60)
        await broker.ownership.members.refresh()
        reports = dict(broker.ownership.members.reports)
        assert isolated in reports["b0:8080"].bundles
        assert await broker.ownership.placement.bundles_that_stay(reports) == {isolated}
        await write(broker)
        assert await broker.ownership.placement.bundles_that_stay(reports) == set()


async def test_the_status_of_owned_bundles_names_their_policies(autojump_clock):
    async with cluster_of(2) as (broker, other):
        await write(broker, one=policy(["public/default"], ["b0"]))
        await broker.owner_of(topic("t"), authoritative=True)
        await wait_all_tasks_blocked()
        status = await broker.ownership.ownership_status()
        (name,) = broker.ownership.owned_bundles
        assert status.pop(name) == {
            "broker_assignment": "primary",
            "is_controlled": True,
            "is_active": True,
        }
        shared = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
        assert status == {
            f"{namespace}/0x00000000_0xffffffff": shared
            for namespace in heartbeat_namespaces("standalone", "b0:8080")
        }
        assert len(await other.ownership.ownership_status()) == 2


# --- heartbeats ---------------------------------------------------------------------------------


def test_heartbeat_namespaces_have_pulsars_names():
    assert heartbeat_namespaces("c", "h:8080") == ("pulsar/c/h:8080", "pulsar/h:8080")
    for name in heartbeat_namespaces("c", "h:8080"):
        assert heartbeat_broker(name) == "h:8080"
    for name in ("pulsar/system", "public/h:8080", "pulsar/c/d/h:8080", "pulsar/h:x", "pulsar"):
        assert heartbeat_broker(name) == ""
    assert parse_bundle("pulsar/c/h:1/0x00000000_0xffffffff") is not None
    assert parse_bundle("public/c/h:1/0x00000000_0xffffffff") is None


@pytest.mark.parametrize("number", [0, 1])
async def test_each_broker_owns_its_heartbeat_namespaces_and_others_are_sent_to_it(
    autojump_clock, number
):
    async with cluster_of(2) as brokers:
        await wait_all_tasks_blocked()
        mine = brokers[number]
        for namespace in heartbeat_namespaces("standalone", mine.id):
            data, _version = await mine.store.get(f"/namespace/{namespace}/0x00000000_0xffffffff")
            assert json.loads(data)["nativeUrl"] == mine.address.broker_service_url
        name = topic("healthcheck", f"pulsar/{mine.id}")
        for start in brokers:
            assert (await resolve(brokers, name, start))[0] is mine
        assert mine.ownership.serves(name)


async def test_a_heartbeat_namespace_is_not_moved_split_or_taken_over(autojump_clock):
    async with cluster_of(2) as (broker, other):
        await wait_all_tasks_blocked()
        namespace = f"pulsar/{broker.id}"
        whole = "0x00000000_0xffffffff"
        for refused in (
            broker.ownership.unload_bundle(namespace, whole),
            broker.ownership.unload_namespace(namespace),
            broker.ownership.split_bundle(namespace, whole, "", unload=True),
            other.ownership.unload_namespace(namespace),
        ):
            with pytest.raises(Refusal, match="is the heartbeat namespace of a broker"):
                await refused
        assert broker.ownership.serves(topic("healthcheck", namespace))
        await trio.sleep(60)
        await broker.ownership.members.refresh()
        reported = broker.ownership.members.reports[broker.id].bundles
        assert not any(name.startswith("pulsar/") for name in reported)
        gone = topic("healthcheck", "pulsar/gone:8080")
        for authoritative in (False, True):
            with pytest.raises(ServiceNotReady, match="is not a member"):
                await other.owner_of(gone, authoritative=authoritative)


async def test_heartbeat_namespaces_come_back_with_a_new_session_and_go_with_the_broker(
    autojump_clock,
):
    async with cluster_of(2) as (broker, other):
        await wait_all_tasks_blocked()
        name = topic("healthcheck", f"pulsar/{broker.id}")
        broker.store.become(SessionState.LOST)
        assert not broker.ownership.serves(name)
        broker.store.become(SessionState.LIVE)
        await until_served(broker, name)
        await broker.store.delete(f"/namespace/pulsar/{broker.id}/0x00000000_0xffffffff")
        await wait_all_tasks_blocked()
        await until_served(broker, name)
        await broker.ownership.leave()
        assert await other.store.children("/namespace/pulsar/standalone") == [other.id]
