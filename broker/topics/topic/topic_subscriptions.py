"""The subscriptions of a topic: opening, moving consumers in, and deleting.

Operations that open, move or delete a subscription run in the order of the requests (`operations`,
by the name of the subscription), so a cursor is never opened and deleted at the same time. They run
as tasks of the service: a client that disconnects during one leaves nothing half done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
import trio

from broker.ground.operations import Outcome
from broker.ground.slices import STEPS_PER_SLICE
from broker.topics.subscription.chunks import ChunksSeen
from broker.topics.subscription.compatibility import check_reads_compacted
from broker.topics.subscription.factory import TopicContext
from broker.topics.subscription.limits import SubscriptionLimits
from broker.topics.subscription.sub_types import TYPE_NAMES
from broker.topics.topic.admission import (
    check_consumers,
    check_strictly,
    check_subscriptions,
    type_not_enabled,
)
from broker.topics.topic.errors import TopicBusy, told
from broker.topics.topic.topic_producers import TopicProducers
from protocol.errors import NotAllowed, ProducerBusy, ServiceNotReady, SubscriptionNotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.tenancy.policies.scopes import TopicPolicies
    from broker.topics.subscription.api import ConsumerHandle, Subscription
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.request import SubscriptionRequest
    from broker.topics.topic.services import TopicServices
    from protocol.topic_name import TopicName

log = structlog.get_logger()

REPLICATOR_PREFIX: Final = "pulsar.repl"
"""The prefix of cursors that Pulsar replicates from (its replicatorPrefix)."""
_NO_SUBSCRIPTIONS: Final[frozenset[Subscription]] = frozenset()


class TopicSubscriptions(TopicProducers):
    """A topic, as far as its subscriptions are concerned. Their limits depend on what is published
    (`published`), so the producers come first."""

    __slots__ = (
        "_abandoned",
        "_failed_subscriptions",
        "_subscription_limits",
        "bytes_out_before",
        "chunks_seen",
        "messages_out_before",
        "subscriptions",
    )

    def __init__(self, services: TopicServices, name: TopicName, policies: TopicPolicies) -> None:
        super().__init__(services, name, policies)
        self.subscriptions: dict[str, Subscription] = {}
        self.messages_out_before = 0
        self.bytes_out_before = 0
        self.chunks_seen = ChunksSeen()
        self._abandoned: dict[str, Subscription] | None = None
        """Non-durable subscriptions whose cursors are still to be dropped; None: never any."""
        self._failed_subscriptions = _NO_SUBSCRIPTIONS
        """Subscriptions that are being closed and opened again."""
        self._subscription_limits = SubscriptionLimits(policies.effective, self.published)

    def check_subscription_name(self, name: str) -> None:
        """Whether a client may open or create a subscription of this name.

        Raises: BrokerError ProducerBusy, the code that Pulsar uses.
        """
        if not name.strip():
            raise ProducerBusy("Empty subscription name")
        if self.is_internal_cursor(name) or name.startswith(REPLICATOR_PREFIX):
            raise ProducerBusy("Subscription with reserved subscription name attempted")
        if self.services.config.strictlyVerifySubscriptionName:
            check_strictly(name)

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
            delayed=services.delayed,
            broker_unacked=services.broker_unacked,
            operations=self.operations,
            limits=self._subscription_limits,
            turns=services.turns,
            chunks=self.chunks_seen,
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
        """Subscriptions of topics that store nothing are not limited. Raises: BrokerError."""
        if self.persistent:
            check_subscriptions(self.policies.effective, len(self.subscriptions), self.name.full)

    def check_consumer(self, address: str, sub_type: int, request: SubscriptionRequest) -> None:
        """Whether a consumer of this type may come from this address. Asked before its subscription
        is made, which would stay. The order is Pulsar's.

        Raises: BrokerError.
        """
        self.check_subscription_name(request.name)
        policies = self.policies.effective
        type_name = TYPE_NAMES.get(sub_type, "")
        is_enabled = not self.persistent or type_name in policies.subscription_types
        is_new = request.name not in self.subscriptions
        if is_new or not is_enabled or request.read_compacted:
            self.check_room(address)
        is_kept = self.persistent and request.durable
        if is_kept and is_new and not policies.auto_subscription_creation:
            raise SubscriptionNotFound("Subscription does not exist")
        if request.read_compacted:
            check_reads_compacted(sub_type, persistent=self.persistent)
        if not is_enabled:
            raise type_not_enabled(type_name, self.name.full)

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
        handle = subscription.attach_consumer(consumer, request)
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

    def _addresses_of_consumers(self) -> list[str]:
        return [
            consumer.session.remote_address
            for each in self.subscriptions.values()
            for consumer in each.consumers
        ]

    def consumer_count(self) -> int:
        """Connected consumers of all subscriptions."""
        return sum(len(each.consumers) for each in self.subscriptions.values())

    def is_in_use(self) -> bool:
        """Whether it has messages, producers, or consumers that did not leave the schema to it."""
        if self.has_messages() or self.access.producers:
            return True
        return any(
            not consumer.auto_consumes
            for each in self.subscriptions.values()
            for consumer in each.consumers
        )

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

    def subscription_failed(self, subscription: Subscription, error: Exception) -> None:
        """A subscription cannot deliver. This does not affect publishers or other subscriptions,
        but its state in memory can no longer be trusted."""
        if subscription in self._failed_subscriptions:
            return  # more entries arrived before it was closed
        self._failed_subscriptions |= {subscription}
        log.error(
            "subscription failed: sending its consumers away and opening it again",
            topic=self.name.full,
            subscription=subscription.name,
            **told(error),
        )
        self.operations.begin(subscription.name, lambda: self._open_again(subscription))

    async def _open_again(self, subscription: Subscription) -> None:
        """Close a failed subscription and start it again from its cursor. If that fails, the topic
        is unloaded."""
        name = subscription.name
        try:
            if self.subscriptions.get(name) is not subscription or self.closing:
                return
            self._count_leaving(subscription)
            await subscription.close()
            self.subscriptions.pop(name, None)
            if subscription.durable:
                await self.open_kept_subscription(name)
            else:
                await self.delete_cursor(name)
        except Exception as error:
            log.error(
                "cannot open a failed subscription again, unloading its topic",
                topic=self.name.full,
                subscription=name,
                **told(error),
            )
            await self._unload_failed()
        finally:
            self._failed_subscriptions = (
                self._failed_subscriptions - {subscription} or _NO_SUBSCRIPTIONS
            )

    def rest_subscriptions(self) -> None:
        """The topic is put to rest: what the next consumer makes again goes."""
        for subscription in list(self.subscriptions.values()):
            subscription.rest()
        self._abandoned = self._abandoned or None

    async def close_subscriptions(self) -> None:
        """A failure of one does not affect the others; its consumers are disconnected too."""
        for number, subscription in enumerate(list(self.subscriptions.values()), 1):
            if number % STEPS_PER_SLICE == 0:
                await trio.lowlevel.cancel_shielded_checkpoint()
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
                    consumer.session.closed(consumer)


def _check_unused(subscription: Subscription, *, force: bool) -> None:
    if subscription.consumers and not force:
        raise TopicBusy("Subscription has active connected consumers")
