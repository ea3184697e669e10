"""A persistent topic: what it stores beside its messages, its policies, what it shows, its end.

The way of its messages is in `broker.topics.topic.publishing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import structlog
from google.protobuf.message import DecodeError

from broker.limits.subscribe_rates import SubscribeRates, SubscribingConsumer
from broker.topics.subscription.request import SubscriptionRequest
from broker.topics.topic.admission import host_of
from broker.topics.topic.dedup_store import DEDUP_CURSOR, DedupStore
from broker.topics.topic.entry_index import message_index_of
from broker.topics.topic.ledger_policies import ledger_policies_of
from broker.topics.topic.log_compaction import COMPACTION_CURSOR, LogCompaction
from broker.topics.topic.message_expiry import expire_backlogs
from broker.topics.topic.newest_message import NewestOfTopic, newest_position
from broker.topics.topic.publish_answers import refuse_parked
from broker.topics.topic.publishing import PublishingTopic
from broker.topics.topic.storage import StoredCounts
from protocol.errors import BrokerError, NotAllowed, ProtocolError, ServerError
from runtime.locks import RareLock

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from broker.ground.entry import Entry
    from broker.managed_ledger.ledger import ManagedLedger
    from broker.managed_ledger.statistics import ManagedLedgerStatistics
    from broker.tenancy.policies.scopes import TopicPolicies
    from broker.topics.subscription.ports import LedgerPort
    from broker.topics.topic.backlog_keeper import OldestMessage
    from broker.topics.topic.services import TopicServices
    from protocol.position import Position
    from protocol.topic_name import TopicName

log = structlog.get_logger()

INTERNAL_CURSORS: Final = frozenset({DEDUP_CURSOR, COMPACTION_CURSOR})
"""Cursors that do not belong to subscriptions."""
TOPIC_EPOCH_PROPERTY: Final = "pulsar.topic.epoch"


@final
class PersistentTopic(PublishingTopic):
    """One stored topic."""

    __slots__ = (
        "_applying",
        "_newest",
        "_subscribes",
        "_ttl_seconds",
        "compaction",
    )
    persistent = True
    internal_cursors = INTERNAL_CURSORS

    def __init__(
        self,
        services: TopicServices,
        name: TopicName,
        policies: TopicPolicies,
        ledger: ManagedLedger,
    ) -> None:
        super().__init__(services, name, policies, ledger)
        self._applying = RareLock()
        self._ttl_seconds = 0
        self.compaction = LogCompaction(name, ledger) if name.is_policy_log else None
        """Of a log of policies. Other topics are not compacted."""
        self._subscribes: SubscribeRates | None = None
        """Made with the first request while there is such a rate."""
        self._newest: NewestOfTopic | None = None
        """Made with the first question for the newest message."""

    async def rest(self) -> None:
        """See Topic. What the ledger reads with, and the open ledgers of cursors, go too."""
        await super().rest()
        self._newest = None
        self._after_publishes = self._after_publishes or None
        await self.ledger.rest()

    @property
    def needs_rest(self) -> bool:
        """See Topic. Expiry moves cursors, and a cursor that is stored gets a ledger."""
        return self.ledger.needs_rest

    def check_subscribe_rate(self, address: str, name: str, consumer_id: int) -> None:
        """Raises: BrokerError NotAllowedError, as in Pulsar: it subscribes too often."""
        rate = self.policies.effective.delivery.subscribe
        if not rate:
            self._subscribes = None
            return
        if self._subscribes is None:
            self._subscribes = SubscribeRates()
        consumer = SubscribingConsumer(host_of(address), name, consumer_id)
        if not self._subscribes.admits(consumer, rate, self.services.clock.now()):
            raise NotAllowed("Subscribe limited by subscribe rate limit per consumer.")

    def subscription_ledger(self, *, compacted: bool) -> LedgerPort:
        """The ledger that its subscriptions read."""
        compaction = self.compaction
        return self.ledger if compaction is None or not compacted else compaction.log

    async def recover(self) -> None:
        """Restore the state that the cursors of the ledger hold: subscriptions and
        deduplication."""
        epoch = self.ledger.properties.get(TOPIC_EPOCH_PROPERTY)
        self.access.epoch = None if epoch is None else int(epoch)
        for name in list(self.ledger.cursors):
            if name not in INTERNAL_CURSORS:
                # There may be more than their limit, which is for new ones.
                await self.open_kept_subscription(name)
        if self.compaction is not None:
            await self.compaction.load()
            self.services.log_compactions.watch(self.compaction, self.name)
        await self.apply_policies()
        if self.services.entry_interceptor is not None:
            self.message_index = message_index_of(await self.newest_entry())

    async def apply_policies(self) -> None:
        """Apply the policies in force now. Cheap when nothing has changed."""
        async with self._applying:
            self.apply_limits(self.policies.effective)
            if not self.name.is_system:
                self.backlog.apply(self.policies.effective.backlog_quotas)
                self._apply_time_to_live()
            self._apply_ledger_policies()
            await self._apply_deduplication()

    def _apply_time_to_live(self) -> None:
        before, self._ttl_seconds = self._ttl_seconds, self.policies.effective.message_ttl_seconds
        if self._ttl_seconds == 0:
            self.services.message_expiry.forget(self)
        elif self._ttl_seconds != before and not self.closing:
            self.services.message_expiry.watch(self)

    async def expire_messages(self) -> int:
        """Acknowledge what is older than the time to live (ExpiringTopic)."""
        return await expire_backlogs(
            self.ledger, self.subscriptions, self._ttl_seconds, self.services.clock
        )

    def _apply_ledger_policies(self) -> None:
        policies = ledger_policies_of(self.policies.effective)
        if policies != self.ledger.policies:
            self.ledger.policies = policies
            self.ledger.request_trim()

    async def _apply_deduplication(self) -> None:
        wanted = self.policies.effective.deduplication
        if wanted and self.dedup is None:
            # What has not been looked at is stored before the place where a replay begins.
            self.checks_names = True
            await self.finish_publishes()
            self.dedup = await DedupStore.open(
                self.ledger, self.services.config, self.services.clock, self.access.producers
            )
        elif not wanted:
            if self.dedup is not None:
                dedup, self.dedup = self.dedup, None
                refuse_parked(
                    dedup.drop_parked(),
                    BrokerError(
                        ServerError.ServiceNotReady, "deduplication was switched off: send it again"
                    ),
                )
            if DEDUP_CURSOR in self.ledger.cursors:  # also of when the topic was last open
                await self.ledger.delete_cursor(DEDUP_CURSOR)
            self.checks_names = False

    # --- what is shown and looked after -------------------------------------------------

    @property
    def deduplicates(self) -> bool:
        """See TopicStorage, as for the following."""
        return self.dedup is not None

    @property
    def oldest_in_backlog(self) -> OldestMessage | None:
        """As of the last look."""
        return self.backlog.oldest

    async def publish_time_after(self, position: Position) -> int | None:
        """See TopicStorage."""
        entries = await self.ledger.read(self.ledger.next_position(position), 1, 1)
        try:
            return entries[0].metadata.publish_time if entries else None
        except (DecodeError, ProtocolError):
            return None

    def ledger_statistics(self) -> ManagedLedgerStatistics | None:
        """A snapshot."""
        return self.ledger.statistics()

    def stored_counts(self) -> StoredCounts | None:
        """Since it was loaded."""
        times, sizes, backlog = self.publish_times, self.entry_sizes, self.backlog
        return StoredCounts(
            latencies=times.counts(),
            latency_seconds=times.sum_seconds,
            sizes=sizes.counts(),
            size_bytes=sizes.size_bytes,
            entries=self.ledger.appender.entries_added,
            evictions_by_size=backlog.size_evictions,
            evictions_by_age=backlog.age_evictions,
        )

    async def check_quotas(self) -> None:
        """Those of the backlog."""
        if not self.name.is_system:
            await self.backlog.check()

    def request_trim(self) -> None:
        """Of its ledger."""
        self.ledger.request_trim()

    async def keep_deduplication(self, *, by_age: bool) -> None:
        """By entries, or by age."""
        dedup = self.dedup
        if dedup is None:
            return
        seconds = self.policies.effective.deduplication_snapshot_seconds if by_age else 0
        dedup.forget_inactive()
        if (dedup.wants_snapshot or dedup.is_snapshot_due(seconds)) and not self.closing:
            await dedup.snapshot()

    async def check_backlog(self) -> None:
        """Raises: BrokerError: no producer may come, because the backlog is over its quota."""
        await self.backlog.check_producer()

    async def store_epoch(self, epoch: int) -> None:
        """Make the topic epoch durable before its producer is told."""
        await self.ledger.change_properties(lambda old: {**old, TOPIC_EPOCH_PROPERTY: str(epoch)})

    # --- positions ----------------------------------------------------------------------

    def last_position(self) -> Position:
        """The newest entry; (-1, -1) when there is none, or none is left."""
        return newest_position(self.ledger)

    @property
    def _end(self) -> NewestOfTopic:
        self._newest = self._newest or NewestOfTopic(self.ledger)
        return self._newest

    def newest_entry(self) -> Coroutine[Any, Any, Entry | None]:
        """See `Topic.newest_entry`."""
        return self._end.entry()

    def newest_message(self) -> Coroutine[Any, Any, Entry | None]:
        """See `Topic.newest_message`."""
        newest = self._end.message()
        return newest if self.compaction is None else self._newest_of(self.compaction, newest)

    @staticmethod
    async def _newest_of(
        compaction: LogCompaction, newest: Coroutine[Any, Any, Entry | None]
    ) -> Entry | None:
        return compaction.log.newest(await newest)

    # --- life ---------------------------------------------------------------------------

    async def delete_cursor(self, name: str) -> None:
        """Delete the position of a subscription."""
        await self.ledger.delete_cursor(name)

    async def open_kept_subscription(self, name: str) -> None:
        """Open the subscription of an existing cursor, as when the topic was loaded."""
        request = SubscriptionRequest(
            name=name, properties=dict(self.ledger.cursors[name].properties)
        )
        kinds = self.services.subscription_kinds
        self.subscriptions[name] = await kinds.open(request, self.context())

    async def close_storage(self) -> None:
        """Release the ledger. All messages taken are answered first."""
        try:
            if self.dedup is not None:
                await self.dedup.snapshot()
        finally:
            await self.services.factory.close(self.ledger.name)
            self._disconnect()

    async def delete_storage(self) -> None:
        """Delete the ledger with its cursors and all other data under the topic's name."""
        await self.services.factory.delete(self.ledger.name)
        if self.compaction is not None:
            await self.compaction.delete()
        self._disconnect()

    def _disconnect(self) -> None:
        """Nobody refers to it any more."""
        self.services.message_expiry.forget(self)
        if self.compaction is not None:
            self.services.log_compactions.forget(self.compaction)
        self.backlog.disconnect()
        self.ledger.disconnect()
