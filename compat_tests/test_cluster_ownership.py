"""Several brokers share topics through a real ZooKeeper."""

import itertools
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from broker.cluster.records import BundleLoad
from broker.cluster.tests.cluster_of import cluster_over, resolve, topic
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from metadata.zookeeper_address import ZooKeeperAddress
from metadata.zookeeper_store import ZooKeeperStore
from protocol.errors import BrokerError

SESSION_SECONDS = 3.0
WAIT_SECONDS_MAX = 60.0
NAMES = [topic(f"t{number}") for number in range(20)]
_roots = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@asynccontextmanager
async def cluster(server, count):
    address = ZooKeeperAddress(
        hosts=server.hosts,
        chroot=f"/cluster-{next(_roots)}",
        session_timeout_seconds=SESSION_SECONDS,
    )
    stores = [await ZooKeeperStore.open(address) for _ in range(count)]
    timeout = {"metadataStoreSessionTimeoutMillis": int(SESSION_SECONDS * 1000)}
    try:
        async with cluster_over(stores, **timeout) as brokers:
            yield brokers
    finally:
        for store in stores:
            await store.aclose()


async def owner_in_time(brokers, name, start):
    """The owner, once there is one that serves the topic. The node of a session that ended without
    ZooKeeper stays until ZooKeeper notices, and clients try again until then: they are refused, or
    sent to a broker that is not there."""
    with trio.fail_after(WAIT_SECONDS_MAX):
        while True:
            with suppress(BrokerError, KeyError):
                owner = (await resolve(brokers, name, start))[0]
                if owner.ownership.serves(name):
                    return owner
            await trio.sleep(0.05)


async def own_all(brokers):
    owners = {}
    for name in NAMES:
        owners[name] = await owner_in_time(brokers, name, brokers[-1])
        owners[name].open_topics[name] = BundleLoad(topics=1)
    return owners


def serving(brokers, name):
    return [broker for broker in brokers if broker.ownership.serves(name)]


async def test_every_topic_has_one_owner_and_all_brokers_know_it(server):
    async with cluster(server, 3) as brokers:
        owners = await own_all(brokers)
        assert len(set(owners.values())) == 3
        for name, owner in owners.items():
            assert serving(brokers, name) == [owner]
            for start in brokers:
                assert await owner_in_time(brokers, name, start) is owner


async def test_a_split_and_an_unload_are_seen_by_the_others(server):
    async with cluster(server, 2) as brokers:
        owners = await own_all(brokers)
        owner = owners[NAMES[0]]
        bundle = (await owner.ownership._bundles.of("public/default")).bundle_of(NAMES[0])
        await owner.ownership.split_bundle("public/default", bundle.range_text, "", unload=False)
        assert serving(brokers, NAMES[0]) == [owner]
        for broker in brokers:
            assert await owner_in_time(brokers, NAMES[0], broker) is owner
        part = (await owner.ownership._bundles.of("public/default")).bundle_of(NAMES[0])
        assert part != bundle
        await owner.ownership.unload_bundle("public/default", part.range_text)
        assert NAMES[0] in owner.closed
        (other,) = (broker for broker in brokers if broker is not owner)
        with trio.fail_after(WAIT_SECONDS_MAX):
            # It knows the node of the former owner until ZooKeeper has told it of the deletion.
            while True:
                found = await other.owner_of(NAMES[0], authoritative=True)
                if found.address == other.address:
                    break
                await trio.sleep(0.05)
        assert serving(brokers, NAMES[0]) == [other]
        assert await owner_in_time(brokers, NAMES[0], owner) is other


async def test_topics_of_a_broker_that_is_gone_are_served_by_the_others(server):
    async with cluster(server, 3) as brokers:
        await own_all(brokers)
        gone, *left = brokers
        await gone.store.aclose()
        assert not any(gone.ownership.serves(name) for name in NAMES)
        for name in NAMES:
            owner = await owner_in_time(left, name, left[0])
            assert serving(brokers, name) == [owner]
        assert not gone.open_topics


async def test_brokers_serve_again_after_zookeeper_was_away_for_longer_than_a_session(server):
    async with cluster(server, 2) as brokers:
        await own_all(brokers)
        server.kill()
        with trio.fail_after(WAIT_SECONDS_MAX):
            while any(broker.open_topics for broker in brokers):  # noqa: ASYNC110 - others change it
                await trio.sleep(0.05)
        assert not any(serving(brokers, name) for name in NAMES)
        server.start()
        for name in NAMES:
            owner = await owner_in_time(brokers, name, brokers[0])
            assert serving(brokers, name) == [owner]
