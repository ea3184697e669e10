"""Brokers of one cluster over sessions of one tree in memory, with topics that are only names."""

from contextlib import asynccontextmanager

import trio

from broker.cluster.cluster import ClusterOwnership
from broker.cluster.config import ClusterConfig
from broker.cluster.load import Resources
from broker.ground.config import BrokerConfig
from broker.peers.broker_address import BrokerAddress
from broker.tenancy.namespaces.namespaces import Namespaces
from metadata.memory_store import MemoryStore
from protocol.topic_name import TopicName


def topic(name, namespace="public/default"):
    return TopicName.parse(f"persistent://{namespace}/{name}")


class TrioClock:
    """Trio's time. Its wall clock can be set."""

    def __init__(self):
        self.set_by_ms = 0

    def now(self):
        return trio.current_time()

    def wall_ms(self):
        return 1_700_000_000_000 + int(trio.current_time() * 1000) + self.set_by_ms


class Broker:
    """One member. `open_topics` are those that it has open."""

    def __init__(self, store, number, config):
        self.store = store
        self.address = BrokerAddress(f"pulsar://b{number}:6650", f"http://b{number}:8080")
        self.id = f"b{number}:8080"
        self.open_topics = {}
        self.closed = []
        self.scans = 0
        """How often the topics of some bundles were looked for."""
        self.may_close = trio.Event()
        self.may_close.set()
        self.namespaces = Namespaces(store, BrokerConfig())
        self.clock = TrioClock()
        self.ownership = ClusterOwnership(
            store,
            self.namespaces,
            self.address,
            config=config,
            clock=self.clock,
            process_name=f"process-{number}",
            topics=self,
            load=self,
            version="4.0.8",
        )

    def stop_topics(self, group_of, reason):
        self.scans += 1
        groups = {}
        for name in self.open_topics:
            if (group := group_of(name)) is not None:
                groups.setdefault(group, []).append(name)
        return groups

    async def close_stopped(self, names, reason):
        await self.may_close.wait()
        await trio.lowlevel.checkpoint()
        for name in names:
            self.open_topics.pop(name, None)
            self.closed.append(name)

    def resources(self):
        return Resources()

    def topics(self):
        return list(self.open_topics.items())

    async def owner_of(self, name, **fields):
        return await self.ownership.owner_of(name, **fields)


@asynccontextmanager
async def cluster_of(count, wrapped=None, **settings):
    """So many brokers, the first of them the leader. `wrapped` makes another store of a session."""
    first = MemoryStore()
    stores = [first, *(first.another_session() for _ in range(count - 1))]
    async with trio.open_nursery() as nursery:
        if wrapped is not None:
            stores = [wrapped(store) for store in stores]
            for store in stores:
                nursery.start_soon(store.run)
        async with cluster_over(stores, **settings) as brokers:
            yield brokers
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def cluster_over(stores, **settings):
    """A broker for each of these sessions of one tree."""
    config = ClusterConfig(**settings)
    async with trio.open_nursery() as nursery:
        brokers = [Broker(store, number, config) for number, store in enumerate(stores)]
        await brokers[0].namespaces.bootstrap(BrokerAddress("pulsar://b0:6650", "http://b0:8080"))
        for broker in brokers:
            await nursery.start(broker.ownership.run)
        for broker in brokers:
            await broker.ownership.members.refresh()
        yield brokers
        nursery.cancel_scope.cancel()


async def resolve(brokers, name, start):
    """The owner of a topic as a client finds it, and how often it was sent on."""
    by_url = {broker.address.broker_service_url: broker for broker in brokers}
    broker, authoritative = start, False
    for hops in range(len(brokers) + 2):
        found = await broker.owner_of(name, authoritative=authoritative)
        there = by_url[found.address.broker_service_url]
        if not found.is_redirect:
            return there, hops
        broker, authoritative = there, found.authoritative
    raise AssertionError("sent around in circles")
