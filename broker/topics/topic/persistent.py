"""A persistent topic: what it stores beside its messages, its policies, what it shows, its end.

The way of its messages is in `broker.topics.topic.publishing`.
"""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, final

import structlog
import trio
from google.protobuf.message import DecodeError

from broker.ground.slices import STEPS_PER_SLICE
from broker.limits.subscribe_rates import SubscribeRates, SubscribingConsumer
from broker.topics.subscription.request import SubscriptionRequest
from broker.topics.topic.admission import host_of
from broker.topics.topic.entry_index import message_index_of
from broker.topics.topic.ledger_policies import ledger_policies_of
from broker.topics.topic.message_expiry import expire_backlogs
from broker.topics.topic.newest_message import NewestOfTopic, newest_position
from broker.topics.topic.publishing import PublishingTopic
from broker.topics.topic.topic_base import StoredCounts
from protocol.errors import MetadataError, NotAllowed, ProtocolError
from runtime.locks import RareLock

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from broker.ground.entry import Entry
    from broker.managed_ledger.statistics import ManagedLedgerStatistics
    from broker.tenancy.policies.scopes import TopicPolicies
    from broker.topics.subscription.ports import LedgerPort
    from broker.topics.topic.backlog_keeper import OldestMessage
    from broker.topics.topic.parts import PartKind, TopicPart
    from broker.topics.topic.services import TopicServices
    from broker.topics.topic.topic_ledger import TopicLedger
    from protocol.position import Position
    from protocol.topic_name import TopicName

log = structlog.get_logger()

TOPIC_EPOCH_PROPERTY: Final = "pulsar.topic.epoch"
_EPOCH: Final = re.compile(r"[+-]?[0-9]{1,30}")


@final
class PersistentTopic(PublishingTopic):
    """One stored topic."""

    __slots__ = (
        "_applying",
        "_newest",
        "_subscribes",
        "_ttl_seconds",
    )
    persistent = True

    def __init__(
        self,
        services: TopicServices,
        name: TopicName,
        policies: TopicPolicies,
        ledger: TopicLedger,
    ) -> None:
        super().__init__(services, name, policies, ledger)
        self._applying = RareLock()
        self._ttl_seconds = 0
        self._subscribes: SubscribeRates | None = None
        """Made with the first request while there is such a rate."""
        self._newest: NewestOfTopic | None = None
        """Made with the first question for the newest message."""

    async def rest(self) -> None:
        """See Topic. The ledger's readers and the open ledgers of cursors go, too."""
        await super().rest()
        for part in self.parts:
            await part.rest()
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
        """The log that its subscriptions read: the ledger, as the parts of the topic present it."""
        log: LedgerPort = self.ledger
        for part in self.parts:
            log = part.view(log, compacted=compacted)
        return log

    def is_internal_cursor(self, name: str) -> bool:
        """See TopicBase."""
        return name in self.services.internal_cursors

    async def recover(self) -> None:
        """Restore the state that the cursors of the ledger hold: parts and subscriptions."""
        epoch = self.ledger.properties.get(TOPIC_EPOCH_PROPERTY)
        self.access.epoch = None if epoch is None else _epoch_of(epoch, self.name)
        try:
            async with self._applying:
                await self._apply_parts()  # subscriptions read through them
            for number, name in enumerate(list(self.ledger.cursors), 1):
                if not self.is_internal_cursor(name):
                    # There may be more than their limit, which is for new ones.
                    await self.open_kept_subscription(name)
                if number % STEPS_PER_SLICE == 0:
                    await trio.lowlevel.checkpoint()
            await self.apply_policies()
            if self.services.entry_interceptor is not None:
                self.message_index = message_index_of(await self.newest_entry())
        except BaseException:
            self._leave_parts()
            raise

    async def apply_policies(self) -> None:
        """Apply the policies in force now. Cheap when nothing has changed."""
        async with self._applying:
            self.apply_limits(self.policies.effective)
            if not self.name.is_system:
                self.backlog.apply(self.policies.effective.backlog_quotas)
                self._apply_time_to_live()
            self._apply_ledger_policies()
            await self._apply_parts()

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

    async def _apply_parts(self) -> None:
        for kind in self.services.part_kinds:
            part = self.part(kind.name)
            if kind.wants(self):
                if part is None or not part.is_loaded:
                    await self._load_part(kind, part)
                continue
            if part is not None:
                kind.loaded.pop(part, None)
                part.end()
                part.is_loaded = False
                self.use_parts(self.parts)
            await kind.discard(self)
            if part is not None:
                self.use_parts(tuple([each for each in self.parts if each is not part]))

    async def _load_part(self, kind: PartKind[Any], part: TopicPart | None) -> None:
        if part is None:
            part = kind.make(self)
            parts = {each.name: each for each in (*self.parts, part)}
            names = [each.name for each in self.services.part_kinds]
            self.use_parts(tuple([parts[name] for name in names if name in parts]))
        # Messages that it was not asked about are stored before the place where a replay begins.
        await self.finish_publishes()
        await part.load()
        part.is_loaded = True
        kind.loaded[part] = self
        self.use_parts(self.parts)

    def _leave_parts(self) -> None:
        """End all of its parts. What they have stored stays."""
        for kind in self.services.part_kinds:
            kind.loaded.pop(self.part(kind.name), None)
        self.use_parts(())

    # --- what is shown and looked after -------------------------------------------------

    def part(self, name: str) -> TopicPart | None:
        """Its part of this kind, loaded or not; None: it has none."""
        for part in self.parts:
            if part.name == name:
                return part
        return None

    def has_part(self, name: str) -> bool:
        """See TopicBase, as for the following."""
        part = self.part(name)
        return part is not None and part.is_loaded

    @property
    def oldest_in_backlog(self) -> OldestMessage | None:
        """As of the last look."""
        return self.backlog.oldest

    async def publish_time_after(self, position: Position) -> int | None:
        """See TopicBase."""
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
            entries=self.ledger.entries_added,
            evictions_by_size=backlog.size_evictions,
            evictions_by_age=backlog.age_evictions,
        )

    async def check_quotas(self) -> None:
        """Check the quotas of the backlog."""
        if not self.name.is_system:
            await self.backlog.check()

    def request_trim(self) -> None:
        """Ask for a trim of its ledger."""
        self.ledger.request_trim()

    async def check_backlog(self) -> None:
        """Raises: BrokerError: no producer may come, because the backlog is over its quota."""
        await self.backlog.check_producer()

    async def store_epoch(self, epoch: int) -> None:
        """Make the topic epoch durable before its producer gets it."""
        await self.ledger.change_properties(lambda old: {**old, TOPIC_EPOCH_PROPERTY: str(epoch)})

    # --- positions ----------------------------------------------------------------------

    def last_position(self) -> Position:
        """The newest entry; (-1, -1) when there is none, or none is left."""
        return newest_position(self.ledger)

    @property
    def _end(self) -> NewestOfTopic:
        self._newest = self._newest or NewestOfTopic(self.subscription_ledger(compacted=True))
        return self._newest

    def newest_entry(self) -> Coroutine[Any, Any, Entry | None]:
        """See `Topic.newest_entry`."""
        return self._end.entry()

    def newest_message(self) -> Coroutine[Any, Any, Entry | None]:
        """See `Topic.newest_message`."""
        return self._end.message()

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
            async with AsyncExitStack() as each_of_them:
                for part in self.parts:
                    each_of_them.push_async_callback(part.close)
        finally:
            await self.services.factory.close(self.ledger.name)
            self._disconnect()

    async def delete_storage(self) -> None:
        """Delete the ledger with its cursors and all other data under the topic's name."""
        await self.services.factory.delete(self.ledger.name)
        for part in self.parts:
            await part.delete()
        self._disconnect()

    def _disconnect(self) -> None:
        """Nothing refers to it any more."""
        self.services.message_expiry.forget(self)
        self._leave_parts()
        self.backlog.disconnect()
        self.ledger.disconnect()


def _epoch_of(text: str, topic: TopicName) -> int:
    """The number in the property, as Java reads a long. Raises: MetadataError."""
    if _EPOCH.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return int(text)
    raise MetadataError(
        f"The property {TOPIC_EPOCH_PROPERTY} of {topic.full} is {text!r:.100}, and no number."
        " Remove it from the topic's record, or restore that from a backup"
    )
