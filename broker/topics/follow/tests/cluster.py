"""Brokers of one cluster in one process: real sockets, metadata and a bookie in memory, and owners
of topics that the test names."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager

import trio

from broker.assembly.authorization import EverybodyMay
from broker.assembly.broker import assembled_broker
from broker.assembly.outliving import outliving
from broker.assembly.parts import BookiePorts, Storage
from broker.ground.config import BrokerConfig
from broker.managed_ledger.config import ManagedLedgerConfig
from broker.managed_ledger.factory import ManagedLedgerFactory
from broker.managed_ledger.ledger_record import (
    LedgerRecord,
    decode_ledger_record,
    encode_ledger_record,
)
from broker.managed_ledger.paths import ledger_info_path
from broker.peers.owner_search import OwnerSearch
from broker.peers.ownership import Whereabouts
from broker.topics.broadcast.tests.peer import peer
from broker.topics.follow.following_factory import FollowingFactory
from broker.topics.follow.records_read import RecordsRead
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.tests.fake_bookie import FakeBookie
from metadata.memory_store import MemoryStore
from metadata.store import MUST_NOT_EXIST
from protocol import client
from protocol.errors import ServiceNotReady
from protocol.topic_name import TopicName
from runtime.testing.conditions import SECONDS_MAX

SOURCE = "persistent://public/default/news"
SHADOW = "persistent://public/default/news-1"
PROPERTY = "PULSAR.SHADOW_SOURCE"


def record_path(topic):
    return ledger_info_path(TopicName.parse(topic).managed_ledger_name)


class Healthy:
    failure = unwritable = damage = ""


class Owners:
    """See broker.assembly.parts. Topics belong to those that `Cluster.owners` names."""

    cluster = None

    def __init__(self, cluster, name, broker):
        self._cluster = cluster
        self._name = name
        self._namespaces = broker.service.namespaces
        self.this_broker = broker.address
        self.here = Whereabouts(broker.address)
        self.ownership = self
        cluster.addresses[name] = broker.address

    def serves(self, topic):
        return self._cluster.owners.get(topic.full) == self._name

    async def settle(self, topic):
        await trio.lowlevel.checkpoint()

    async def owner_of(self, topic, *, authoritative=False):
        await trio.lowlevel.checkpoint()
        address = self._cluster.addresses.get(self._cluster.owners.get(topic.full))
        if address is None:
            raise ServiceNotReady(f"{topic.full} has no owner")
        return Whereabouts(address)

    async def prepare(self):
        await self._namespaces.make_defaults()

    async def run(self, task_status=trio.TASK_STATUS_IGNORED):
        task_status.started()
        await trio.sleep_forever()

    def use(self, config):
        """Nothing depends on it."""

    async def wait_joined(self):
        await trio.lowlevel.checkpoint()

    async def leave(self):
        await trio.lowlevel.checkpoint()


class Member:
    """The Deployment of one broker."""

    def __init__(self, cluster, name, settings):
        self._cluster = cluster
        self._name = name
        self._settings = settings
        self.following = None

    async def open_storage(self, stack, nursery, turns, readers, clock):
        store = self._cluster.tree.another_session()
        ledgers = LedgerClient(store, {"b": self._cluster.bookie}, LedgerClientConfig(), clock)
        managed = ManagedLedgerConfig(**self._settings)
        records = RecordsRead(store)
        factory = ManagedLedgerFactory(records, ledgers, managed, clock, session=store)
        self.following = FollowingFactory(store, ledgers, managed, clock, factory, records)
        background = await stack.enter_async_context(outliving(nursery))
        await background.start(factory.run)
        await background.start(self.following.run)
        return Storage(
            store=store,
            ledgers=ledgers,
            factory=self.following,
            health=Healthy(),
            shadows=self.following,
        )

    def owners(self, broker):
        owners = Owners(self._cluster, self._name, broker)

        async def unload(name):
            await broker.service.unload_topic(name)
            if self._cluster.unload_failure is not None:
                raise self._cluster.unload_failure

        rights = broker.authorizer or EverybodyMay()
        self.following.begin(OwnerSearch(owners), unload, rights)
        return owners

    async def open_bookie_ports(self, front, storage, host):
        await trio.lowlevel.checkpoint()
        return BookiePorts()


class Cluster:
    def __init__(self):
        self.tree = MemoryStore()
        self.bookie = FakeBookie()
        self.owners = {}
        self.addresses = {}
        self.unload_failure = None
        """What closing a topic ends with."""

    @asynccontextmanager
    async def broker(self, name, *, ledgers=None, **changes):
        """A running broker. `ledgers`: settings of its managed ledgers."""
        config = BrokerConfig(brokerServicePort=0, webServicePort=0, **changes)
        settings = {"min_rollover_time_s": 0.0, **(ledgers or {})}
        async with assembled_broker(config, Member(self, name, settings)) as running:
            try:
                yield running
            finally:
                del self.addresses[name]

    async def make_shadow(self, topic=SHADOW, source=SOURCE, rows=()):
        record = LedgerRecord(rows, None, {PROPERTY: source})
        await self.tree.put(record_path(topic), encode_ledger_record(record), MUST_NOT_EXIST)

    async def record_of(self, topic):
        path = record_path(topic)
        stored = await self.tree.get(path)
        return None if stored is None else decode_ledger_record(stored[0], path)


@asynccontextmanager
async def owner_and_follower(*, shadow=True, **fields):
    """A cluster whose broker `a` owns the source and `b` the shadow, with a publisher."""
    cluster = Cluster()
    cluster.owners = {SOURCE: "a", SHADOW: "b"}
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(cluster.broker("a", **fields))
        b = await stack.enter_async_context(cluster.broker("b", **fields))
        publisher = await stack.enter_async_context(peer(a, producer=True, topic=SOURCE))
        if shadow:
            await cluster.make_shadow()
        yield cluster, a, b, publisher


def topic_of(running, name):
    return running.service.topics[name]


async def settled(condition, seconds=SECONDS_MAX):
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)


def ack_up_to(peer_, consumer_id, count):
    """An ACK of the first `count` messages that the consumer got."""
    ids = [message.message_id for message in peer_.received[consumer_id][:count]]
    return client.ack(consumer_id, ids)


__all__ = ["SHADOW", "SOURCE", "Cluster", "owner_and_follower", "peer"]
