"""A topic: its producers and its subscriptions. The part common to stored and unstored topics.

A topic is either open, or closing (unload, delete), when it refuses every request with a retryable
error. `ProducerAccess` admits producers and takes note when they leave. Operations that open, move
or delete a subscription run in the order of the requests (`operations`, by the name of the
subscription), so a cursor is never opened and deleted at the same time. The same holds for opening
producers. These operations run as tasks of the service: a client that disconnects during one
leaves nothing half done.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, ClassVar, Final

import structlog

from broker.operations import Operations, Outcome
from broker.subscription.factory import TopicContext
from broker.subscription.limits import SubscriptionLimits
from broker.topic.admission import check_consumers, check_producers, check_subscriptions
from broker.topic.dispatch_limits import TopicDispatchLimits
from broker.topic.errors import TopicBusy
from broker.topic.failures import told
from broker.topic.producer import NO_LIMITS, Producer
from broker.topic.producer_access import ProducerAccess
from broker.topic.producer_turns import ProducerTurns
from broker.topic.publish_limits import TopicPublishLimits
from broker.topic.publish_totals import PublishTotals
from broker.topic.storage import TopicStorage
from protocol.errors import (
    NotAllowed,
    ProducerBusy,
    ProducerFenced,
    ServiceNotReady,
    SubscriptionNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from typing import Any

    from broker.net.session import AnySession
    from broker.policies.effective import EffectivePolicies
    from broker.policies.scopes import TopicPolicies
    from broker.subscription.api import ConsumerHandle, Subscription
    from broker.subscription.consumer import Consumer
    from broker.subscription.request import SubscriptionRequest
    from broker.topic.producer_request import ProducerRequest
    from broker.topic.producer_turns import Turn
    from broker.topic.services import TopicServices
    from protocol.errors import BrokerError
    from protocol.topic_name import TopicName

log = structlog.get_logger()

REPLICATOR_PREFIX: Final = "pulsar.repl"
"""Of the names of cursors that Pulsar replicates from (its replicatorPrefix)."""
ATTENDED: Final = -1.0
AT_REST: Final = inf
PRODUCERS: Final = ()
"""The key of producer openings and schema registrations among the operations of a topic."""


class Topic(TopicStorage):
    """One topic (or one partition of a partitioned topic) in this broker."""

    __slots__ = (
        "_abandoned",
        "_dispatch_limits",
        "_made_turns",
        "_subscription_limits",
        "access",
        "active_at",
        "bytes_out_before",
        "closing",
        "created_ms",
        "messages_out_before",
        "name",
        "operations",
        "policies",
        "publish_limits",
        "published",
        "published_last_ms",
        "services",
        "subscriptions",
        "unattended_since",
    )
    persistent: ClassVar[bool]
    internal_cursors: ClassVar[frozenset[str]] = frozenset()
    """Names of cursors that do not belong to subscriptions."""

    def __init__(self, services: TopicServices, name: TopicName, policies: TopicPolicies) -> None:
        self.services = services
        self.name = name
        self.policies = policies
        self.access = ProducerAccess()
        self.subscriptions: dict[str, Subscription] = {}
        self.closing = ""
        """Why the topic takes no new producers and consumers; empty while it is open."""
        self.created_ms = services.clock.wall_ms()
        self.active_at = services.clock.now()
        """Time of the last use, for idle-topic collection."""
        self.unattended_since = ATTENDED
        """Since when it has had no client, as far as the timer of rest has seen."""
        self.published_last_ms = 0
        self.published = PublishTotals(self.access.producers)
        self.messages_out_before = 0
        self.bytes_out_before = 0
        self.operations = Operations(services.nursery_of)
        """Operations of subscriptions, by name, and of producers and schemas, by `PRODUCERS`."""
        self._abandoned: dict[str, Subscription] | None = None
        """Non-durable subscriptions whose cursors are still to be dropped; None: never any."""
        self._made_turns: ProducerTurns | None = None
        self.publish_limits = TopicPublishLimits(services)
        self._dispatch_limits = TopicDispatchLimits(services)
        self._subscription_limits = SubscriptionLimits(policies.effective, self.published)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name.full})"

    @property
    def partition(self) -> int:
        """Index of the partition, -1 when the topic is not partitioned."""
        return self.name.partition_index

    def check_open(self) -> None:
        """Raises: BrokerError ServiceNotReady: the client shall look up again and retry."""
        if self.closing:
            raise ServiceNotReady(
                f"Topic is temporarily unavailable: {self.closing}; look up again"
            )

    def check_subscription_name(self, name: str) -> None:
        """Whether a client may open or create a subscription of this name.

        Raises: BrokerError ProducerBusy, the code that Pulsar uses.
        """
        if not name.strip():
            raise ProducerBusy("Empty subscription name")
        if name in self.internal_cursors or name.startswith(REPLICATOR_PREFIX):
            raise ProducerBusy("Subscription with reserved subscription name attempted")

    # --- producers ----------------------------------------------------------------------

    @property
    def _turns(self) -> ProducerTurns:
        self._made_turns = self._made_turns or ProducerTurns()
        return self._made_turns

    @property
    def epoch(self) -> int | None:
        """The number of the last exclusive grant; None before the first."""
        return self.access.epoch

    async def attach_producer(self, session: AnySession, request: ProducerRequest) -> Producer:
        """Admit a producer, which may have to wait for its turn (see `wait_turn`). One of the
        `operations` of producers.

        Raises: BrokerError.
        """
        self.check_open()
        self.check_publishable()
        self.check_room_to_produce(request.name, session.remote_address)
        producer = Producer(self, session, request, self.services.clock.wall_ms())
        before = self.access.producers.get(request.name)
        admission = self.access.admit(producer)
        if before is not None and before.open:
            self._left(before)
        for fenced in admission.fenced:
            self._left(fenced)
            fenced.session.disconnect_producer(fenced)
        for fenced in admission.fenced_waiting:
            self._turns.refuse(fenced, ProducerFenced("Fenced out by another producer"))
        if not admission.granted:
            self._turns.begin(producer)
            return producer
        await self._open_producer(producer, admission.new_epoch)
        return producer

    def check_room_to_produce(self, name: str, address: str) -> None:
        """Whether the producer of this name, or one more, may come from this address.

        Raises: BrokerError ProducerBusy.
        """
        names = self.access.producers
        if name not in names:
            check_producers(
                self.name.full,
                self.policies.effective,
                self.services.config,
                address,
                len(names),
                self._addresses_of_producers,
            )

    def holder_of_name(self, session: AnySession, request: ProducerRequest) -> Producer | None:
        """The producer of another connection that holds the name of this one."""
        wanted = Producer(self, session, request, 0)
        holder = self.access.conflict(wanted)
        return None if holder is None or holder.session is session else holder

    async def _open_producer(self, producer: Producer, new_epoch: int | None) -> None:
        if new_epoch is not None:
            try:
                await self.store_epoch(new_epoch)
            except BaseException:
                self.remove_producer(producer)
                raise
            if self.access.producers.get(producer.name) is not producer:
                raise ProducerFenced("Fenced out by another producer")
        producer.open = True
        producer.use_limits(self.publish_limits.in_force)
        self.touch()

    def wait_turn(self, producer: Producer) -> Coroutine[Any, Any, None]:
        """Wait until a producer that `attach_producer` left waiting has the topic.

        Raises: BrokerError: it lost its place.
        """
        return self._wait_turn(producer, self._turns.of(producer))

    async def _wait_turn(self, producer: Producer, turn: Turn) -> None:
        try:
            await turn.wait()
            await self._open_producer(producer, self.access.epoch)
        except BaseException:
            self.remove_producer(producer)
            raise

    def remove_producer(self, producer: Producer) -> None:
        """The producer has left, for whatever reason. Idempotent."""
        if self._made_turns is not None:
            closed = ProducerFenced("The producer was closed while it waited")
            self._made_turns.refuse(producer, closed)
        if self.access.remove(producer):
            self._left(producer)
            if self.access.waiting:
                promoted = self.access.promote(self._turns.refuse)
                if promoted is not None:
                    self._turns.grant(promoted)
        self.touch()

    def _left(self, producer: Producer) -> None:
        if producer.open:
            producer.open = False
            producer.use_limits(NO_LIMITS)
            self.published.left(producer)

    def disconnect_producers(self) -> None:
        """Disconnect every producer. Clients look up the topic and return by themselves."""
        for producer in list(self.access.producers.values()):
            producer.session.disconnect_producer(producer)
            self.remove_producer(producer)
        for each in self._made_turns.waiting() if self._made_turns is not None else ():
            self.access.remove(each)
            self._turns.refuse(each, ServiceNotReady("The topic is closing; look up again"))

    def end_producer(self, producer: Producer, reason: BrokerError) -> None:
        """Disconnect one producer. The reason is what it is told if it is still waiting."""
        self._turns.refuse(producer, reason)
        producer.session.disconnect_producer(producer)
        self.remove_producer(producer)

    # --- subscriptions ------------------------------------------------------------------

    def context(self, *, compacted: bool = False) -> TopicContext:
        """The parts of this topic that its subscriptions use. `compacted`: one that reads only what
        compaction has kept."""
        services = self.services
        return TopicContext(
            topic_name=self.name.full,
            partition=self.name.partition_index,
            ledger=self.subscription_ledger(compacted=compacted),
            clock=services.clock,
            config=services.subscription_config,
            nursery=services.nursery,
            owner=self,
            broker_unacked=services.broker_unacked,
            operations=self.operations,
            limits=self._subscription_limits,
        )

    async def open_subscription(self, request: SubscriptionRequest) -> Subscription:
        """The subscription of this name, opened or created if need be.

        Raises: BrokerError.
        """
        self.check_open()
        subscription = self.subscriptions.get(request.name)
        if subscription is not None:
            return subscription
        return await self.operations.run(
            request.name, lambda: self.open_subscription_in_turn(request)
        )

    async def open_subscription_in_turn(self, request: SubscriptionRequest) -> Subscription:
        """The same as one of the `operations` of this name.

        Raises: BrokerError.
        """
        return await self._open_in_turn(request, self._check_subscriptions)

    async def copy_subscription(self, request: SubscriptionRequest) -> Subscription:
        """As `open_subscription`, for one that other partitions of the topic have. There may be
        more of them than the limit, which is for new ones.

        Raises: BrokerError.
        """
        return await self.operations.run(
            request.name, lambda: self._open_in_turn(request, lambda: None)
        )

    async def _open_in_turn(
        self, request: SubscriptionRequest, check_new: Callable[[], None]
    ) -> Subscription:
        self.check_open()
        await self._finish_drop(request.name)
        subscription = self.subscriptions.get(request.name)
        if subscription is None:
            check_new()
            context = self.context(compacted=request.read_compacted and not request.durable)
            subscription = await self.services.subscription_kinds.open(request, context)
            self.subscriptions[request.name] = subscription
            self.touch()
        return subscription

    def _check_subscriptions(self) -> None:
        """Those of topics that store nothing are not limited. Raises: BrokerError."""
        if self.persistent:
            check_subscriptions(self.policies.effective, len(self.subscriptions), self.name.full)

    def attach_consumer(
        self, subscription: Subscription, consumer: Consumer, request: SubscriptionRequest
    ) -> ConsumerHandle:
        """Add a consumer to a subscription of this topic.

        Raises: BrokerError.
        """
        self.check_open()
        if self.subscriptions.get(subscription.name) is not subscription:
            raise ServiceNotReady("Subscription is being closed; try again")
        self.services.subscription_kinds.check(subscription, request)
        if not subscription.admits(consumer.durable):
            kind = "Durable" if subscription.durable else "NonDurable"
            raise NotAllowed(f"{kind} subscription with the same name already exists.")
        self.check_room(consumer.session.remote_address)
        handle = subscription.add_consumer(consumer, request)
        self.touch()
        return handle

    def check_room(self, address: str) -> None:
        """Whether one more consumer may come from this address.

        Raises: BrokerError ConsumerBusy.
        """
        policies, config = self.policies.effective, self.services.config
        if policies.counts.consumers_max <= 0 and config.maxSameAddressConsumersPerTopic <= 0:
            return  # nearly always
        check_consumers(
            policies,
            config,
            address,
            self.consumer_count(),
            self._addresses_of_consumers,
        )

    def _addresses_of_producers(self) -> list[str]:
        return [each.session.remote_address for each in self.access.producers.values()]

    def _addresses_of_consumers(self) -> list[str]:
        return [
            consumer.session.remote_address
            for each in self.subscriptions.values()
            for consumer in each.consumers
        ]

    def consumer_count(self) -> int:
        """Connected consumers of all subscriptions."""
        return sum(len(each.consumers) for each in self.subscriptions.values())

    def subscription(self, name: str) -> Subscription:
        """Raises: BrokerError SubscriptionNotFound."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            raise SubscriptionNotFound(f"Subscription {name} not found for topic {self.name.full}")
        return subscription

    def delete_subscription(self, name: str, *, force: bool = False) -> Awaitable[None]:
        """Remove a subscription and its cursor. If its cursor cannot be deleted now, the
        subscription starts again from it, without its consumers. Earlier requests for this
        subscription are done first, later ones afterwards.

        Raises: BrokerError: unknown, or (unless `force`) consumers are connected, or storage fails.
        """
        subscription = self.subscription(name)
        _check_unused(subscription, force=force)
        return self.operations.start(
            name, lambda: self._drop_subscription(subscription, force=force)
        )

    async def _drop_subscription(self, subscription: Subscription, *, force: bool) -> None:
        name = subscription.name
        self.check_open()
        if self.subscriptions.get(name) is not subscription:
            return
        _check_unused(subscription, force=force)  # A consumer may have come while this waited.
        self._count_leaving(subscription)
        del self.subscriptions[name]
        await subscription.close()
        try:
            await self.delete_cursor(name)
        except Exception:
            if not self.closing:
                await self.open_kept_subscription(name)
            raise
        self.touch()

    def on_subscription_abandoned(self, subscription: Subscription) -> None:
        """A non-durable subscription lost its last consumer. Its name is free at once."""
        name = subscription.name
        if self.subscriptions.get(name) is subscription:
            self._count_leaving(subscription)
            del self.subscriptions[name]
            self._abandoned = self._abandoned or {}
            self._abandoned[name] = subscription
            self.operations.begin(name, lambda: self._finish_drop(name))

    def end_subscription(self, subscription: Subscription, *, force: bool) -> Awaitable[None]:
        """Its last consumer has unsubscribed. Raises: BrokerError."""
        if self.subscriptions.get(subscription.name) is subscription:
            return self.delete_subscription(subscription.name, force=force)
        ended: Outcome[None] = Outcome()
        ended.succeed(None)
        return ended

    async def _finish_drop(self, name: str) -> None:
        """The second half of leaving. Opening the name in an earlier turn also does it."""
        subscription = self._abandoned.pop(name, None) if self._abandoned else None
        if subscription is None:
            return
        self.touch()
        try:
            await subscription.close()
            if not self.closing:
                await self.delete_cursor(name)
        except Exception as error:
            log.warning(
                "cannot drop a non-durable subscription; it goes with the topic",
                topic=self.name.full,
                subscription=name,
                **told(error),
            )

    def _count_leaving(self, subscription: Subscription) -> None:
        messages, size_bytes = subscription.delivered()
        self.messages_out_before += messages
        self.bytes_out_before += size_bytes

    # --- life ---------------------------------------------------------------------------

    def touch(self) -> None:
        """The topic is used now."""
        self.active_at = self.services.clock.now()
        self.unattended_since = ATTENDED

    def rest_is_due(self, now: float, after_seconds: float) -> bool:
        """Whether it has been without clients and operations for so long, and not put to rest
        since it was last used, or moved by expiry or an administrator. Asked again and again: it
        counts from the first time it sees no client."""
        if self.unattended_since == AT_REST:
            if not self.needs_rest:
                return False  # Whoever comes touches it.
            self.unattended_since = ATTENDED
        if self.closing or len(self.operations) or self.access.producers or self.consumer_count():
            self.unattended_since = ATTENDED
            return False
        if self.unattended_since == ATTENDED:
            self.unattended_since = now
        since = max(self.unattended_since, self.active_at)
        return now - since >= after_seconds

    @property
    def needs_rest(self) -> bool:
        """Whether a part that `rest` gave up has been made again, by something that is no client
        and does not touch the topic."""
        return False

    async def rest(self) -> None:
        """Give up what the next use makes again. Whoever comes meanwhile finds everything.

        Raises: OwnershipLost, MetadataUnavailable: a cursor could not be stored.
        """
        self.unattended_since = AT_REST
        self.operations.rest()
        for subscription in list(self.subscriptions.values()):
            subscription.rest()
        if self._made_turns is not None and not self._made_turns.waiting():
            self._made_turns = None
        self._abandoned = self._abandoned or None

    def is_idle(self) -> bool:
        """Whether idle-topic collection may remove it: no client publishes, nothing is kept."""
        if self.closing or self.access.producers or self.access.waiting:
            return False
        if not self.policies.effective.idle.when_caught_up:
            return not self.subscriptions
        return all(
            not each.consumers and not each.backlog_entries for each in self.subscriptions.values()
        )

    def update_rates(self, seconds: float, now: float) -> Iterator[None]:
        """Close a rate window of the topic, its producers and its subscriptions. A generator of
        steps, so that very many subscriptions do not hold up other work."""
        for producer in list(self.access.producers.values()):
            producer.update_rates(seconds)
            yield
        self.published.end_window(seconds)
        for subscription in list(self.subscriptions.values()):
            subscription.update_rates(now)
            yield

    async def close(self, reason: str) -> None:
        """Unload: connected clients are disconnected and return, here or to another broker."""
        self.closing = reason
        self.policies.unwatch()
        try:
            await self._dismiss_everybody()
        finally:
            await self.close_storage()
            self.subscriptions.clear()

    async def _dismiss_everybody(self) -> None:
        try:
            await self.finish_publishes()
        finally:
            self.disconnect_producers()
            await self._close_subscriptions()

    async def delete(self) -> None:
        """Disconnect all clients as `close` does, then delete the stored data."""
        self.closing = self.closing or "it is being deleted"
        self.policies.unwatch()
        await self._dismiss_everybody()
        self.subscriptions.clear()
        await self.delete_storage()

    async def _close_subscriptions(self) -> None:
        """A failure of one does not affect the others; its consumers are disconnected too."""
        for subscription in list(self.subscriptions.values()):
            try:
                await subscription.close()
            except Exception as error:
                log.error(
                    "subscription not closed in order",
                    topic=self.name.full,
                    subscription=subscription.name,
                    **told(error),
                )
                for consumer in list(subscription.consumers):
                    consumer.session.disconnect_consumer(consumer)

    async def apply_policies(self) -> None:
        """Apply the policies in force now. Cheap when nothing has changed."""
        self.apply_limits(self.policies.effective)

    def apply_limits(self, policies: EffectivePolicies) -> None:
        """Apply those that need no storage."""
        self.publish_limits.apply(policies, self.access.producers.values())
        shared = self._dispatch_limits.of(
            policies.delivery, policies.resource_group, self.published
        )
        if self._subscription_limits.use(policies, shared):
            for subscription in list(self.subscriptions.values()):
                subscription.limits_changed()


def _check_unused(subscription: Subscription, *, force: bool) -> None:
    if subscription.consumers and not force:
        raise TopicBusy("Subscription has active connected consumers")
