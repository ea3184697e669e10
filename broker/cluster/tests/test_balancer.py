"""The leader keeps histories, sheds load and splits bundles."""

import json
from dataclasses import replace

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.cluster.balancer import Balancer
from broker.cluster.config import ClusterConfig, ConfigInForce
from broker.cluster.load import Resources
from broker.cluster.records import BundleLoad, Traffic, Usage
from broker.cluster.tests.cluster_of import cluster_of, resolve, topic
from runtime.clock import SystemClock

MB = 1024 * 1024
NAMES = [topic(f"t{number}") for number in range(40)]


async def own_all(broker, load):
    for name in NAMES:
        await broker.owner_of(name, authoritative=True)
        broker.open_topics[name] = load


async def test_the_leader_unloads_a_busy_bundle_of_its_own(autojump_clock):
    settings = {"loadBalancerAutoBundleSplitEnabled": False}
    async with cluster_of(2, **settings) as (leader, _other), trio.open_nursery() as nursery:
        await own_all(leader, BundleLoad(Traffic(throughput_in=50 * MB), 1))
        leader.resources = lambda: Resources(cpu=Usage(100, 100))
        nursery.start_soon(Balancer(leader.store, leader.ownership, SystemClock()).run)
        before = set(leader.ownership.owned_bundles)
        await trio.sleep(10 * 60)
        after = set(leader.ownership.owned_bundles)
        assert len(before) == 4
        assert 1 <= len(after) < 4
        assert leader.closed
        nursery.cancel_scope.cancel()


async def test_the_leader_splits_a_bundle_with_too_many_topics(autojump_clock):
    async with cluster_of(2) as (leader, _other), trio.open_nursery() as nursery:
        await own_all(leader, BundleLoad(topics=200))
        nursery.start_soon(Balancer(leader.store, leader.ownership, SystemClock()).run)
        await trio.sleep(70)
        boundaries = await leader.ownership.boundaries("public/default")
        assert len(boundaries) == 9
        assert leader.ownership.owned_bundles == {}, "given up, for the leader to place anew"
        nursery.cancel_scope.cancel()


async def test_a_broker_that_does_not_lead_changes_nothing(autojump_clock):
    async with cluster_of(2) as (_leader, other), trio.open_nursery() as nursery:
        await own_all(other, BundleLoad(topics=2000))
        nursery.start_soon(Balancer(other.store, other.ownership, SystemClock()).run)
        await trio.sleep(70)
        assert len(await other.ownership.boundaries("public/default")) == 5
        nursery.cancel_scope.cancel()


async def test_histories_are_stored_as_pulsar_stores_them(autojump_clock):
    async with cluster_of(1) as (leader,), trio.open_nursery() as nursery:
        await own_all(leader, BundleLoad(Traffic(msg_rate_in=2), 1))
        nursery.start_soon(Balancer(leader.store, leader.ownership, SystemClock()).run)
        await trio.sleep(16 * 60)
        await wait_all_tasks_blocked()
        rates = []
        for name in leader.ownership.owned_bundles:
            data, _version = await leader.store.get(f"/loadbalance/bundle-data/{name}")
            record = json.loads(data)
            assert record["longTermData"]["maxSamples"] == 1000
            assert record["shortTermData"]["maxSamples"] == 10
            rates.append(record["longTermData"]["msgRateIn"])
        assert len(rates) == 4
        data, _version = await leader.store.get("/loadbalance/broker-time-average/b0:8080")
        assert json.loads(data)["longTermMsgRateIn"] == pytest.approx(sum(rates))
        nursery.cancel_scope.cancel()


async def test_a_report_that_lies_does_not_end_the_leader(autojump_clock):
    async with cluster_of(1) as (leader,), trio.open_nursery() as nursery:
        await own_all(leader, BundleLoad(Traffic(msg_rate_in=2), 1))
        name = next(iter(leader.ownership.owned_bundles))
        liar = leader.store.another_session()
        lies = {
            "pulsarServiceUrl": "pulsar://liar:6650",
            "webServiceUrl": "http://liar:99999",
            "lastUpdate": 10**400,
            "cpu": {"usage": 10**400, "limit": 1},
            "bundles": ["", "a//b", "//0x00000000_0x40000000", "\u0000/b/0x00000000_0x40000000"],
            "lastStats": {
                f"t/n{number}/0x00000000_0xffffffff": {
                    "topics": 10**400,
                    "msgRateIn": -(10**400),
                    "msgThroughputIn": 10**400,
                }
                for number in range(3)
            },
        }
        await liar.put_ephemeral("/loadbalance/brokers/liar:99999", json.dumps(lies).encode())
        owner = {"nativeUrl": "pulsar://liar:6650", "httpUrl": "http://liar:99999"}
        for bundle in lies["lastStats"]:
            await liar.put_ephemeral(f"/namespace/{bundle}", json.dumps(owner).encode())
        bundle_data = json.dumps({"shortTermData": {"numSamples": -1}}).encode()
        await liar.put(f"/loadbalance/bundle-data/{name}", bundle_data, None)
        nursery.start_soon(Balancer(leader.store, leader.ownership, SystemClock()).run)
        await trio.sleep(20 * 60)
        assert name in leader.ownership.owned_bundles
        nursery.cancel_scope.cancel()


def use(broker, **settings):
    """Dynamic configuration brings these."""
    broker.ownership.in_force.use(replace(broker.ownership.in_force.now, **settings))


async def is_split_in(leader, minutes):
    """Whether a bundle is split within so many minutes."""
    for _second in range(minutes * 60):
        await trio.sleep(1)
        if len(await leader.ownership.boundaries("public/default")) > 5:
            return True
    return False


async def test_splitting_and_its_limits_follow_the_configuration(autojump_clock):
    off = {"loadBalancerAutoBundleSplitEnabled": False}
    async with cluster_of(1, **off) as (leader,), trio.open_nursery() as nursery:
        await own_all(leader, BundleLoad(topics=20))
        nursery.start_soon(Balancer(leader.store, leader.ownership, SystemClock()).run)
        assert not await is_split_in(leader, 10)
        use(leader, loadBalancerAutoBundleSplitEnabled=True)
        assert not await is_split_in(leader, 10), "the bundles are small"
        use(leader, loadBalancerNamespaceBundleMaxTopics=100)
        assert await is_split_in(leader, 2)
        nursery.cancel_scope.cancel()


async def test_a_limit_of_topics_that_changes_holds_for_the_next_choice(autojump_clock):
    async with cluster_of(2) as (leader, other):
        first = NAMES[0]
        await leader.owner_of(first, authoritative=True)
        leader.open_topics[first] = BundleLoad(topics=100)
        await trio.sleep(60)
        await leader.ownership.members.refresh()
        use(leader, loadBalancerBrokerMaxTopics=50)
        owners = {(await resolve((leader, other), name, leader))[0] for name in NAMES}
        assert owners == {leader, other}
        boundaries = leader.ownership._bundles
        of_first = (await boundaries.of("public/default")).bundle_of(first).name
        assert set(leader.ownership.owned_bundles) == {of_first}


async def test_an_interval_that_changes_holds_for_the_pause_under_way(autojump_clock):
    config = ConfigInForce(ClusterConfig(loadBalancerSheddingIntervalMinutes=600))
    async with cluster_of(1) as (leader,), trio.open_nursery() as nursery:
        leader.ownership.in_force = config
        balancer = Balancer(leader.store, leader.ownership, SystemClock())
        shed_at = []

        async def shed():
            await trio.lowlevel.checkpoint()
            shed_at.append(trio.current_time() - begun)

        balancer.shed = shed
        begun = trio.current_time()
        nursery.start_soon(balancer.run)
        await trio.sleep(3000)
        assert shed_at == []
        use(leader, loadBalancerSheddingIntervalMinutes=60.0)
        await trio.sleep(700)
        assert shed_at == [3600]
        use(leader, loadBalancerSheddingIntervalMinutes=1.0)
        await trio.sleep(1)
        assert shed_at == [3600, 3700], "it is due already"
        use(leader, loadBalancerSheddingEnabled=False)
        await trio.sleep(10_000)
        assert shed_at == [3600, 3700]
        use(leader, loadBalancerSheddingEnabled=True)
        await trio.sleep(61)
        assert shed_at[2:] == [3600 + 100 + 1 + 10_000 + 60]
        nursery.cancel_scope.cancel()
