"""The broker service: the topics of this broker, and the state shared by all connections.

A topic is loaded once, however many clients request it at the same time, and never while it is
being unloaded or deleted: the operations of a topic run one after the other, as tasks of the
service. `maxConcurrentTopicLoadRequest` bounds the loads of different topics, so that a storm of
clients after a restart queues here and does not overrun the storage. A load that takes longer than
`topicLoadTimeoutSeconds` is refused with a retryable error.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

import structlog
import trio

from broker.ground.operations import Operations
from broker.ground.slices import start_each
from broker.limits.connection_limits import limits_from
from broker.limits.connections import Connections
from broker.peers.broker_address import BrokerAddress
from broker.peers.ownership import SoleBroker
from broker.topics.subscription.config import SubscriptionConfig
from broker.topics.subscription.limits import BrokerUnacked
from broker.topics.topic.backlog_checks import BacklogChecks
from broker.topics.topic.entry_index import entry_interceptor
from broker.topics.topic.errors import TopicBusy, told
from broker.topics.topic.housekeeping import Housekeeping
from broker.topics.topic.ledger_policies import ledger_policies_of
from broker.topics.topic.non_persistent import NonPersistentTopic
from broker.topics.topic.persistent import PersistentTopic
from broker.topics.topic.resting import Resting
from broker.topics.topic.services import TopicServices
from broker.topics.topic.subscription_expiry import SubscriptionExpiry
from broker.topics.topic_lists import TopicLists
from ledgers.errors import LedgerError
from protocol.errors import BrokerError, ServiceNotReady, TopicNotFound
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator

    from broker.ground.config import BrokerConfig
    from broker.ground.turn import Turns
    from broker.peers.ownership import Ownership
    from broker.tenancy.namespaces.namespaces import Namespaces
    from broker.tenancy.policies.scopes import TopicPolicies
    from broker.tenancy.schemas.registry import SchemaRegistry
    from broker.topics.subscription.factory import SubscriptionKinds
    from broker.topics.topic.parts import PartKind
    from broker.topics.topic.topic import Topic
    from broker.topics.topic.topic_ledger import TopicLedgers
    from metadata.store import MetadataStore
    from runtime.clock import Clock

log = structlog.get_logger()

_Group = TypeVar("_Group")
T = TypeVar("T")

PRODUCER_NAMES_PATH = "/counters/producer-name"
"""Counts broker starts, so that generated producer names never repeat."""
CLOSINGS_PER_ROUND = 16
"""The first step of a close takes some tenths of a millisecond."""


class TopicWaiter(Protocol):
    """A request that needs a topic. Neither call may raise."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the request has been dropped: the topic is then not loaded for it."""

    def loaded(self, topic: Topic) -> None:
        """The topic is loaded."""

    def refused(self, error: Exception) -> None:
        """The topic cannot be loaded."""


@final
class BrokerService:
    """The state that handlers and the admin API work on. Run it with `nursery.start(run)`."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: MetadataStore,
        factory: TopicLedgers,
        namespaces: Namespaces,
        schemas: SchemaRegistry,
        clock: Clock,
        subscription_kinds: SubscriptionKinds,
        part_kinds: tuple[PartKind[Any], ...],
        turns: Turns,
    ) -> None:
        self.store = store
        self.factory = factory
        self.namespaces = namespaces
        self.schemas = schemas
        self.clock = clock
        self.turns = turns
        self.services = TopicServices(
            config=config,
            clock=clock,
            factory=factory,
            subscription_kinds=subscription_kinds,
            part_kinds=part_kinds,
            subscription_config=SubscriptionConfig.from_broker_config(config),
            broker_unacked=BrokerUnacked(
                config.maxUnackedMessagesPerBroker,
                config.maxUnackedMessagesPerSubscriptionOnBrokerBlocked,
            ),
            entry_interceptor=entry_interceptor(config, clock),
            turns=self.turns,
            unload=self.unload_topic,
        )
        self.connections = Connections(limits_from(config), clock, self.turns)
        self.ownership: Ownership = SoleBroker(BrokerAddress("", ""))
        """Used by lookups. Set once the ports of this broker are known."""
        self.started_ms = clock.wall_ms()
        self.topics: dict[str, Topic] = {}
        """Loaded topics by full name."""
        self.backlog_checks = BacklogChecks(self, self.services)
        self.subscription_expiry = SubscriptionExpiry(self, self.services)
        self.topic_lists = TopicLists(namespaces, self.topics)
        self.operations = Operations(lambda: self.nursery)
        """Loads, unloads and deletions of topics, by full name."""
        self._load_slots = trio.CapacityLimiter(config.maxConcurrentTopicLoadRequest)
        self._stopping = False
        self._broker_number = 0
        self._producer_number = 0
        namespaces.is_loaded_topic = self.is_loaded
        namespaces.resource_groups.use = self.services.resource_groups.use

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force now."""
        return self.services.config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self.services.config = config

    @property
    def nursery(self) -> trio.Nursery:
        """The owner of topics, subscriptions and their operations."""
        return self.services.nursery

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Call `close` first for a clean end."""
        self._broker_number = await self.store.next_sequence(PRODUCER_NAMES_PATH)
        async with trio.open_nursery() as nursery:
            self.services.running_in = nursery
            nursery.start_soon(self.connections.run)
            nursery.start_soon(Housekeeping(self, self.services).run)
            nursery.start_soon(self.backlog_checks.run)
            nursery.start_soon(self.services.message_expiry.run)
            for kind in self.services.part_kinds:
                nursery.start_soon(kind.run)
            nursery.start_soon(self.subscription_expiry.run)
            nursery.start_soon(Resting(self, self.services).run)
            task_status.started()

    async def close(self) -> None:
        """Unload everything, so that no ack remains in memory only."""
        self._stopping = True
        async with trio.open_nursery() as nursery:
            topics = list(self.topics.values())
            await start_each(nursery, topics, self._unload_logged, CLOSINGS_PER_ROUND)
        self.turns.flush()

    async def _unload_logged(self, topic: Topic) -> None:
        with _failure_logged("cannot close topic", topic.name):
            await self._unload(topic.name, topic, "the broker is shutting down")

    def next_producer_name(self) -> str:
        """A name that no other producer has, or had."""
        number = self._producer_number
        self._producer_number += 1
        return f"{self.config.clusterName}-{self._broker_number}-{number}"

    # --- topics -------------------------------------------------------------------------

    def is_loaded(self, name: TopicName) -> bool:
        """Whether the topic is in memory and open."""
        topic = self.topics.get(name.full)
        return topic is not None and not topic.closing

    async def get_or_load_topic(self, name: TopicName, *, create: bool) -> Topic:
        """The topic, loaded or (if `create` and policies allow it) created.

        Raises: BrokerError.
        """
        topic = self._open_topic(name)
        if topic is not None:
            return topic
        return await self.operations.run(name.full, lambda: self._load(name, create))

    def call_when_loaded(self, name: TopicName, *, create: bool, waiter: TopicWaiter) -> None:
        """The same for a request that need not be a task while the topic is being loaded. It
        continues at once if the topic is loaded, and otherwise after earlier requests."""
        loaded = self._open_topic(name)
        if loaded is not None and name.full not in self.operations:
            waiter.loaded(loaded)
        else:
            self.operations.begin(name.full, partial(self._load_in_turn, name, create, waiter))

    def _load_in_turn(
        self, name: TopicName, create: bool, waiter: TopicWaiter
    ) -> Coroutine[Any, Any, None] | None:
        topic = self._open_topic(name)
        if topic is not None:
            waiter.loaded(topic)
        elif waiter.is_cancelled:
            waiter.refused(ServiceNotReady("The request was cancelled"))
        else:
            return self._load_for(name, create, waiter)
        return None

    async def _load_for(self, name: TopicName, create: bool, waiter: TopicWaiter) -> None:
        try:
            topic = await self._load(name, create)
        except Exception as error:
            waiter.refused(error)
        else:
            waiter.loaded(topic)

    def _open_topic(self, name: TopicName) -> Topic | None:
        topic = self.topics.get(name.full)
        return None if topic is None or topic.closing else topic

    async def _load(self, name: TopicName, create: bool) -> Topic:
        topic = self._open_topic(name)
        if topic is not None:
            return topic
        if self._stopping:
            raise ServiceNotReady("The broker is shutting down; look up again")
        await self._check_served(name)
        namespace = await self.namespaces.check_topic(name, create=create)
        policies = namespace.policies.of_topic(name)
        if not name.persistent:
            topic = NonPersistentTopic(self.services, name, policies)
            policies.watch(topic)
        else:
            topic = await self._load_persistent(name, policies)
        self.topics[name.full] = topic
        return topic

    async def _check_served(self, name: TopicName) -> None:
        """Raises: ServiceNotReady: another broker may own the topic. Pulsar's text."""
        if self.ownership.serves(name):
            return
        await self.ownership.settle(name)
        if not self.ownership.serves(name):
            url = self.ownership.this_broker.preferred_web_url
            raise ServiceNotReady(
                f"Namespace bundle for topic ({name.full}) not served by this instance:{url}. "
                f"Please redo the lookup. Request is denied: namespace={name.namespace_name}"
            )

    async def _load_persistent(self, name: TopicName, policies: TopicPolicies) -> PersistentTopic:
        seconds = self.config.topicLoadTimeoutSeconds
        with trio.move_on_after(seconds):
            async with self._load_slots:
                ledger = await self.factory.open(
                    name.managed_ledger_name, ledger_policies_of(policies.effective)
                )
                topic = PersistentTopic(self.services, name, policies, ledger)
                policies.watch(topic)
                try:
                    await topic.recover()
                except BaseException:
                    policies.unwatch()
                    raise
                return topic
        raise ServiceNotReady(f"Loading {name.full} takes longer than {seconds} s; try again")

    async def find_topic(self, name: TopicName) -> Topic:
        """A topic that exists. Raises: BrokerError TopicNotFound."""
        if not self.is_loaded(name) and not await self.namespaces.topic_exists(name):
            raise TopicNotFound(f"Topic {name.full} not found")
        return await self.get_or_load_topic(name, create=False)

    async def loads_ended(self, namespace_name: str) -> None:
        """Wait for what is being done now to the topics of a namespace."""

        async def nothing() -> None:
            await trio.lowlevel.checkpoint()

        for full in list(self.operations.keys):
            if isinstance(full, str) and TopicName.parse(full).namespace_name == namespace_name:
                await self.operations.run(full, nothing)

    async def close_topics(self, belongs: Callable[[TopicName], bool], reason: str) -> None:
        """Close topics, also those that are being loaded. They take no messages from now on; their
        clients look up again."""
        stopped = self.stop_topics(lambda name: belongs(name) or None, reason)
        await self.close_stopped(stopped.get(True, ()), reason)

    def stop_topics(
        self, group_of: Callable[[TopicName], _Group | None], reason: str
    ) -> dict[_Group, list[TopicName]]:
        """The topics that belong to a group, by group, also those that are being loaded. They take
        no messages from now on. `close_stopped` comes next."""
        groups: dict[_Group, list[TopicName]] = {}
        for topic in self.topics.values():
            group = group_of(topic.name)
            if group is not None:
                topic.closing = topic.closing or reason
                groups.setdefault(group, []).append(topic.name)
        for full in self.operations.keys:
            if isinstance(full, str) and full not in self.topics:
                name = TopicName.parse(full)
                group = group_of(name)
                if group is not None:
                    groups.setdefault(group, []).append(name)
        return groups

    async def close_stopped(self, names: Iterable[TopicName], reason: str) -> None:
        """Close these topics. Their clients look up again."""
        async with trio.open_nursery() as nursery:
            close = partial(self._close_logged, reason)
            await start_each(nursery, names, close, CLOSINGS_PER_ROUND)

    async def _close_logged(self, reason: str, name: TopicName) -> None:
        async def close() -> None:
            topic = self.topics.get(name.full)
            if topic is None:
                return
            try:
                await topic.close(reason)
            finally:
                del self.topics[name.full]

        with _failure_logged("cannot close topic", name):
            await self.operations.run(name.full, close)

    async def unload_topic(self, name: TopicName) -> None:
        """Close a topic, also one that is being loaded. Its clients are disconnected and load it
        again when they return."""
        topic = self.topics.get(name.full)
        if topic is not None or name.full in self.operations:
            await self._unload(name, topic, "it is being unloaded")

    async def _unload(self, name: TopicName, topic: Topic | None, reason: str) -> None:
        """`topic`: None: the one that is being loaded."""

        async def unload() -> None:
            loaded = self.topics.get(name.full)
            if loaded is None or (topic is not None and loaded is not topic):
                return
            try:
                await loaded.close(reason)
            finally:
                del self.topics[name.full]

        await self.operations.run(name.full, unload)

    async def delete_topic(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a topic (or one partition) with its subscriptions, position and schema. With
        `force` also one that cannot be opened.

        Raises: BrokerError: unknown, or TopicBusy: in use and not `force`.
        """

        async def delete() -> None:
            topic = self.topics.get(name.full)
            if topic is not None:
                if not force:
                    _check_unused(topic)
                try:
                    await topic.delete()
                finally:
                    del self.topics[name.full]
            elif is_opened:
                raise TopicNotFound(f"Topic {name.full} not found")
            else:
                await self._check_served(name)
                await self.factory.delete(name.managed_ledger_name)
            if name.is_partition:
                await self.namespaces.delete_grants(name)
            else:
                await self.schemas.delete(name, force=True)
                await self.namespaces.delete_topic_policies(name)

        is_opened = True
        try:
            await self.find_topic(name)
        except (BrokerError, LedgerError) as error:
            is_stored = name.persistent and await self.namespaces.topic_exists(name)
            if self._stopping or not (force and is_stored):
                raise
            is_opened = False
            log.warning("deleting a topic that cannot be opened", topic=name.full, **told(error))
        await self.operations.run(name.full, delete)

    async def transform_topic(
        self, name: TopicName, change: Callable[[Callable[[], Awaitable[None]]], Awaitable[T]]
    ) -> T:
        """Change what is stored of a topic, which is not loaded meanwhile. `change` is given a call
        that closes the topic. Raises: BrokerError; as `change`."""

        async def close() -> None:
            topic = self.topics.get(name.full)
            if topic is not None:
                try:
                    await topic.close("it is being changed")
                finally:
                    del self.topics[name.full]

        async def changed() -> T:
            await self._check_served(name)
            return await change(close)

        return await self.operations.run(name.full, changed)

    async def collect_idle(self, topic: Topic) -> bool:
        """Delete a topic unused for long enough. This is checked again in its turn. Returns whether
        it is gone."""

        async def collect() -> bool:
            if self.topics.get(topic.name.full) is not topic or not topic.is_idle():
                return False
            topic.closing = "it is being deleted, because no client has used it"
            with _failure_logged("cannot delete idle topic", topic.name):
                try:
                    await topic.delete()
                finally:
                    del self.topics[topic.name.full]
                if topic.name.is_partition:
                    await self.namespaces.delete_grants(topic.name)
                else:
                    await self.namespaces.delete_topic_policies(topic.name)
                log.info("deleted idle topic", topic=topic.name.full)
                return True
            return False

        return await self.operations.run(topic.name.full, collect)

    async def collect_partitioned(self, name: TopicName) -> None:
        """Delete the record of a partitioned topic of which no partition is left, at any broker."""
        with _failure_logged("cannot delete unused partitioned topic", name):
            namespace = await self.namespaces.find(name.namespace_name)
            if namespace is None or not namespace.partitioned.count(name):
                return
            partitioned = namespace.partitioned
            if await partitioned.has_partitions(name):
                return
            with suppress(_UsedAgain):
                async with partitioned.deleting(name):  # clients make no partition from now on
                    if await partitioned.has_partitions(name):
                        raise _UsedAgain
                await self.namespaces.delete_topic_policies(name)
                log.info("deleted partitioned topic without partitions", topic=name.full)


@final
class _UsedAgain(Exception):
    """A client came back to a topic that was to be deleted."""


@contextmanager
def _failure_logged(event: str, name: TopicName) -> Iterator[None]:
    """Log what fails, so that other topics go on."""
    try:
        yield
    except Exception as error:
        log.error(event, topic=name.full, **told(error))


def _check_unused(topic: Topic) -> None:
    if topic.access.producers:
        raise TopicBusy(f"Topic has {len(topic.access.producers)} connected producers")
    if topic.consumer_count():
        raise TopicBusy(f"Topic has {topic.consumer_count()} connected consumers")
