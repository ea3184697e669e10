"""A subscription of a non-persistent topic: delivers messages published now, or drops them.

There is no cursor and no backlog. An entry goes to the consumers according to the type. If the
chosen consumer has no permits or its outbox is full, the entry is dropped for this subscription and
counted. Shared tries every consumer before it drops. Acks and redelivery requests have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.topics.subscription.active_consumer import ActiveOrder
from broker.topics.subscription.compatibility import (
    check_compatible,
    check_reads_compacted,
    in_the_way,
)
from broker.topics.subscription.consumer_handle import StockConsumerHandle
from broker.topics.subscription.key_ranges import (
    AutoSplit,
    ConsistentHashing,
    KeyRanges,
    StickyRanges,
)
from broker.topics.subscription.outgoing import Outgoing
from broker.topics.subscription.rates import Expirations, Rates
from broker.topics.subscription.round_robin import RoundRobin, can_take
from broker.topics.subscription.snapshot import consumer_rows, consumer_statistics
from broker.topics.subscription.statistics import (
    ConsumerSums,
    SubscriptionStatistics,
    at_once,
)
from broker.topics.subscription.sub_types import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from broker.topics.subscription.withheld import WithheldEntries
from protocol.errors import BrokerError, NotAllowed, ServerError
from protocol.metadata import sticky_key

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from broker.ground.entry import Entry
    from broker.topics.subscription.api import AckId
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.factory import TopicContext
    from broker.topics.subscription.request import SubscriptionRequest
    from broker.topics.subscription.series import Series
    from broker.topics.subscription.statistics import ConsumerStatistics
    from protocol.position import Position


@final
class NonPersistentSubscription:
    """A subscription without cursor and backlog."""

    durable = False
    backlog_entries = 0

    def __init__(self, name: str, context: TopicContext) -> None:
        self.name = name
        self.sub_type: int | None = None
        self.consumers: dict[Consumer, None] = {}
        self._order = ActiveOrder(context.partition, context.topic_name)
        self.context = context
        self._clock = context.clock
        self._rates: dict[Consumer, Rates] = {}
        self._rotation = RoundRobin()
        self._ranges: KeyRanges = AutoSplit()
        self._active: Consumer | None = None
        self._announced: set[Consumer] = set()
        self._outgoing = Outgoing(
            context.partition, context.chunks, expose=context.config.expose_broker_entry_metadata
        )
        self._withheld = WithheldEntries(context.topic_name, name)
        self._closed = False
        self._joined = 0
        self._flow_last_ms = 0
        self._messages_out = 0
        self._bytes_out = 0
        self.messages_dropped = 0
        self.active_at = context.clock.now()
        self._drops_before = (self.active_at, 0)
        self._drop_rate = 0.0
        self.expirations = Expirations(self.active_at)

    # Consumers

    @property
    def properties(self) -> Mapping[str, str]:
        """Nothing is stored."""
        return {}

    def admits(self, durable: bool) -> bool:
        """Durable and non-durable consumers: nothing is kept in either case."""
        return True

    async def locate(self, request: SubscriptionRequest) -> SubscriptionRequest:
        """There is no earlier message to start from."""
        return request

    def attach_consumer(
        self, consumer: Consumer, request: SubscriptionRequest
    ) -> StockConsumerHandle:
        """Attach, or refuse with the reason."""
        del request  # the consumer has all relevant fields of it
        if self._closed:
            raise BrokerError(ServerError.ServiceNotReady, "Subscription is fenced")
        if consumer.read_compacted:
            check_reads_compacted(consumer.sub_type, persistent=False)
        check_compatible(self.consumers, consumer)
        if self.consumers and consumer.sub_type == EXCLUSIVE:
            raise BrokerError(ServerError.ConsumerBusy, "Exclusive consumer is already connected")
        consumers_max = self.context.limits.max_consumers_per_subscription
        if consumer.sub_type != EXCLUSIVE and 0 < consumers_max <= len(self.consumers):
            raise BrokerError(ServerError.ConsumerBusy, "Subscription reached max consumers limit")
        consumer.equip()
        if consumer.sub_type == KEY_SHARED:
            if not self.consumers:
                self._ranges = self._ranges_for(consumer)
            self._ranges.add(consumer)
        self.sub_type = consumer.sub_type
        self.active_at = self._clock.now()
        self._joined += 1
        consumer.joined = self._joined
        self.consumers[consumer] = None
        self._order.add(consumer)
        self._rates[consumer] = Rates(self._clock.now())
        self._rotation.add(consumer)
        self._choose()
        return StockConsumerHandle(consumer, self)

    def limits_changed(self) -> None:
        """They are checked when a consumer arrives."""

    def in_the_way_of(self, consumer: Consumer) -> Consumer | None:
        """See the function."""
        return in_the_way(self.consumers, consumer)

    def _ranges_for(self, consumer: Consumer) -> KeyRanges:
        config = self.context.config
        if consumer.key_shared.sticky:
            return StickyRanges()
        if config.subscription_key_shared_use_consistent_hashing:
            return ConsistentHashing(
                config.subscription_key_shared_consistent_hashing_replica_points
            )
        return AutoSplit()

    def _choose(self) -> None:
        if self.sub_type not in (EXCLUSIVE, FAILOVER):
            return
        chosen = self._order.chosen()
        if chosen is not self._active:
            self._active = chosen
            for consumer in self.consumers:
                self._tell(consumer)

    def announce_active(self, consumer: Consumer) -> None:
        """Tell a newcomer of a Failover subscription whether it is active."""
        if self.sub_type == FAILOVER and consumer not in self._announced:
            self._announced.add(consumer)
            self._tell(consumer)

    def _tell(self, consumer: Consumer) -> None:
        if consumer in self._announced:
            consumer.session.active(consumer, is_active=consumer is self._active)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Detach. Without consumers the subscription ends."""
        if consumer not in self._rates:
            return
        del self.consumers[consumer]
        self._order.remove(consumer)
        del self._rates[consumer]
        self._announced.discard(consumer)
        self._rotation.remove(consumer)
        self._ranges.remove(consumer)
        self._choose()
        if not self.consumers and not self._closed:
            self._closed = True
            self.context.owner.on_subscription_abandoned(self)

    def flow(self, consumer: Consumer, permits: int) -> None:
        """More permits, for later messages."""
        if consumer in self._rates:
            consumer.permits.grant(permits)
            consumer.counters.flow_last_ms = self._flow_last_ms = self._clock.wall_ms()
            self._rotation.ready(consumer)

    def on_writable(self, consumer: Consumer) -> None:
        """It may be able to take entries again."""
        self._rotation.ready(consumer)

    # Delivery

    def deliver(self, entries: Sequence[Entry]) -> None:
        """Send or drop."""
        for entry in entries:
            messages = entry.messages()
            if not messages:
                self.messages_dropped += 1
                self._withheld.skipped(entry)
                continue
            consumer = self._receiver(entry)
            if consumer is not None and can_take(consumer):
                self._outgoing.add(consumer, entry, messages)
            else:
                self.messages_dropped += messages
                if consumer is not None:
                    consumer.counters.messages_dropped += messages
        _, messages, size_bytes = self._outgoing.flush(self._clock.wall_ms())
        self._messages_out += messages
        self._bytes_out += size_bytes

    def _receiver(self, entry: Entry) -> Consumer | None:
        if self.sub_type == SHARED:
            return self._rotation.next()
        if self.sub_type == KEY_SHARED:
            ranges = self._ranges
            return ranges.owner(ranges.slot(sticky_key(entry.metadata)))
        return self._active

    # Operations without effect, because there is no cursor

    def ack(self, consumer: Consumer, ids: Sequence[AckId], *, cumulative: bool) -> None:
        """Only noted as a sign of life."""
        consumer.counters.acked_last_ms = self._clock.wall_ms()

    def ack_entries(self, consumer: Consumer, ledger_id: int, entry_ids: list[int]) -> None:
        """Only noted as a sign of life."""
        consumer.counters.acked_last_ms = self._clock.wall_ms()

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int
    ) -> None:
        """No effect: nothing is kept."""

    def rest(self) -> None:
        """It has little that the next consumer makes again."""

    def tail_moved(self) -> None:
        """No effect: entries are handed to `deliver`."""

    def topic_terminated(self) -> None:
        """No effect: a non-persistent topic does not end."""

    async def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> None:
        """Refused: there are no earlier messages."""
        raise BrokerError(
            ServerError.NotAllowedError, "Seek is not allowed on a non-persistent topic"
        )

    async def seek_to_time(self, publish_time_ms: int) -> None:
        """Refused: there are no earlier messages."""
        raise BrokerError(
            ServerError.NotAllowedError, "Seek is not allowed on a non-persistent topic"
        )

    @property
    def is_replicated(self) -> bool:
        """No: it has no position."""
        return False

    async def set_replicated(self, is_wanted: bool) -> None:
        """Refused: it has no position."""
        raise NotAllowed("A subscription of a non-persistent topic has no position")

    async def skip(self, count: int) -> None:
        """There is no backlog."""

    async def clear_backlog(self) -> None:
        """There is no backlog."""

    async def expire(self, before_ms: int) -> int:
        """There is no backlog."""
        del before_ms
        return 0

    def skip_past(self, position: Position) -> int:
        """There is no backlog."""
        del position
        return 0

    def mark_delete_position(self) -> Position | None:
        """None."""
        return None

    def read_position(self) -> Position | None:
        """None."""
        return None

    @property
    def is_reading_replays(self) -> bool:
        """It redelivers nothing by itself."""
        return False

    # Statistics, end

    def why_not_dispatching(self) -> str:
        """The reason why a message published now would be dropped."""
        if not self.consumers:
            return "no consumer"
        if not any(can_take(consumer) for consumer in self.consumers):
            return "no permits or full connections: messages are dropped"
        return ""

    def update_rates(self, now: float) -> None:
        """Close a rate window."""
        for consumer, rates in self._rates.items():
            rates.sample(consumer.counters, now)
        since, dropped = self._drops_before
        if now > since:
            self._drop_rate = (self.messages_dropped - dropped) / (now - since)
            self._drops_before = (now, self.messages_dropped)

    def delivered(self) -> tuple[int, int]:
        """Messages and bytes since the topic was loaded."""
        return self._messages_out, self._bytes_out

    def statistics(self) -> SubscriptionStatistics:
        """A snapshot of one instant."""
        return at_once(self.statistics_in_steps())

    def statistics_in_steps(self) -> Generator[None, None, SubscriptionStatistics]:
        """A snapshot."""
        sums = ConsumerSums()
        consumers = yield from consumer_rows(self.consumers, self._rates, None, sums)
        return SubscriptionStatistics(
            sub_type=self.sub_type,
            durable=False,
            backlog_entries=0,
            delayed_messages=0,
            replay_messages=0,
            unacked_messages=0,
            blocked_on_unacked=False,
            messages_out=self._messages_out,
            bytes_out=self._bytes_out,
            consumers=consumers,
            sums=sums,
            why_not_dispatching=self.why_not_dispatching(),
            active_consumer_name=None if self._active is None else self._active.name,
            flow_last_ms=self._flow_last_ms,
            messages_dropped=self.messages_dropped,
            drop_rate=self._drop_rate,
        )

    def statistics_of(self, consumer: Consumer) -> ConsumerStatistics:
        """A snapshot of one consumer."""
        return consumer_statistics(consumer, self._rates[consumer], None)

    def series(self, _statistics: SubscriptionStatistics) -> Sequence[Series]:
        """This kind has no metrics of its own."""
        return ()

    def disconnect_consumers(self) -> None:
        """Remove all consumers, then notify their sessions."""
        for consumer in list(self.consumers):
            self.remove_consumer(consumer)
            consumer.session.closed(consumer)

    async def close(self) -> None:
        """Stop for good."""
        self._closed = True
        self.disconnect_consumers()
