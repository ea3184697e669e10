"""A broker that is started again before the store has ended its earlier session."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.cluster.cluster import ClusterOwnership
from broker.cluster.config import ClusterConfig
from broker.cluster.records import Owner, encode
from broker.cluster.tests.cluster_of import Broker, cluster_of, topic
from broker.peers.broker_address import BrokerAddress
from metadata.memory_store import MemoryStore
from protocol.errors import ServiceNotReady

NAME = topic("t")
ADDRESS = BrokerAddress("pulsar://b0:6650", "http://b0:8080")


async def with_former_owner(nursery, store):
    """A broker whose bundle has a node of an earlier session. Returns both and the session."""
    former = store.another_session()
    broker = Broker(store, 0, ClusterConfig(metadataStoreSessionTimeoutMillis=6_000))
    await broker.namespaces.bootstrap(ADDRESS)
    await nursery.start(broker.ownership.run)
    await broker.ownership.wait_joined()
    bundle = (await broker.ownership._bundles.of("public/default")).bundle_of(NAME)
    owner = Owner(ADDRESS, session="former-0")
    await former.put_ephemeral(f"/namespace/{bundle.name}", encode(owner.record))
    return broker, former


@pytest.mark.parametrize("ask", [ClusterOwnership.owner_of, ClusterOwnership.settle])
async def test_the_answer_waits_for_the_end_of_the_earlier_session(autojump_clock, ask):
    async with trio.open_nursery() as nursery:
        broker, former = await with_former_owner(nursery, MemoryStore())
        answered = trio.Event()

        async def asking():
            await ask(broker.ownership, NAME)
            answered.set()

        nursery.start_soon(asking)
        await wait_all_tasks_blocked()
        assert not answered.is_set()
        assert not broker.ownership.serves(NAME)
        begun = trio.current_time()
        await former.aclose()
        await answered.wait()
        assert trio.current_time() == begun
        assert broker.ownership.serves(NAME)
        nursery.cancel_scope.cancel()


async def test_it_does_not_wait_for_ever(autojump_clock):
    async with trio.open_nursery() as nursery:
        broker, _former = await with_former_owner(nursery, MemoryStore())
        begun = trio.current_time()
        with pytest.raises(ServiceNotReady, match="earlier session of this broker"):
            await broker.ownership.owner_of(NAME)
        assert (
            trio.current_time() - begun == broker.ownership.in_force.now.former_session_seconds_max
        )
        nursery.cancel_scope.cancel()


async def test_a_topic_that_is_nobodys_is_not_taken_because_it_is_asked_for(autojump_clock):
    """A client with an old answer of a lookup has to look up again."""
    async with cluster_of(1) as (broker,):
        await broker.ownership.settle(NAME)
        assert not broker.ownership.serves(NAME)


async def test_the_end_of_the_earlier_session_may_give_the_topic_to_another_broker(
    autojump_clock,
):
    store = MemoryStore()
    async with trio.open_nursery() as nursery:
        broker, former = await with_former_owner(nursery, store)
        other = Owner(BrokerAddress("pulsar://b1:6650", "http://b1:8080"), session="other-0")
        (bundle,) = [
            each
            for each in (await broker.ownership._bundles.of("public/default")).bundles
            if each.contains(NAME)
        ]
        found = []

        async def asking():
            found.append(await broker.ownership.owner_of(NAME))

        nursery.start_soon(asking)
        await wait_all_tasks_blocked()
        path = f"/namespace/{bundle.name}"
        third = store.another_session()
        await former.delete(path)
        await third.put_ephemeral(path, encode(other.record))
        await wait_all_tasks_blocked()
        (whereabouts,) = found
        assert whereabouts.address in (ADDRESS, other.address)
        assert (whereabouts.address == ADDRESS) == broker.ownership.serves(NAME)
        nursery.cancel_scope.cancel()


async def test_nothing_is_left_to_hand_over_before_a_start_and_after_an_end(autojump_clock):
    store = MemoryStore()
    broker = Broker(store, 0, ClusterConfig())
    with trio.fail_after(5):
        await broker.ownership.leave()
