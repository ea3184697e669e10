"""The interface of a subscription towards the rest of the broker, and that of a consumer.

Topics and administrators use `Subscription`, which concerns all consumers together. A connection
uses the `ConsumerHandle` that `Subscription.attach_consumer` returns, which carries out the
commands of one consumer. A `SubscriptionKind` makes both (see
`broker.topics.subscription.factory`), and each kind decides what a command means. SEEK moves the
shared cursor of a stock subscription, but only the consumer's own position in a broadcast.

Rules for every kind:

- Everything but `seek`, `close` and the like is synchronous and atomic: no state changes during a
  call of the caller, and no lock is needed. `seek` has done all work that needs no waiting when it
  returns, so that requests take effect in the order of their arrival.
- `remove_consumer` is idempotent. After it no byte is sent to that consumer.
- When the subscription itself ends a consumer (seek, unload, delete), it removes the consumer first
  and then calls `consumer.session.closed(consumer)`.
- Refusals are `protocol.errors.BrokerError`. Acks of unknown or old positions are no-ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence

    from broker.ground.entry import Entry
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.rates import Expirations
    from broker.topics.subscription.request import SubscriptionRequest
    from broker.topics.subscription.series import Series
    from broker.topics.subscription.statistics import ConsumerStatistics, SubscriptionStatistics
    from protocol.errors import BrokerError
    from protocol.position import Position


class AckId(NamedTuple):
    """One message id of an ACK: a whole entry, or with `ack_set` the part still unacked.

    `ack_set` holds the wire's 64-bit words (bit set = not acked yet), empty for the whole entry.
    """

    position: Position
    ack_set: tuple[int, ...] = ()


class SubscriptionOwner(Protocol):
    """The topic, as a subscription sees it."""

    def on_subscription_abandoned(self, subscription: Subscription) -> None:
        """A non-durable subscription lost its last consumer: the owner removes it from its map and
        arranges `close()` and the deletion of its cursor. Called synchronously."""

    def end_subscription(self, subscription: Subscription, *, force: bool) -> Awaitable[None]:
        """Its last consumer has unsubscribed: delete it with its cursor, if it still exists.

        Raises: BrokerError: others are connected (and not `force`), or storage fails.
        """

    def watch_publishes(self, observer: PublishObserver, *, begin: bool) -> None:
        """Start or stop reporting publishes to the observer."""

    @property
    def partition(self) -> int:
        """Index of the partition, -1 when the topic is not partitioned."""

    def newest_message(self) -> Awaitable[Entry | None]:
        """Wait for the newest entry of the topic now that is for clients; None when there is none.

        Raises: BrokerError PersistenceError: storage cannot give it now.
        """


class PublishObserver(Protocol):
    """Is notified of every publish of a topic, in order."""

    def published(self, publish_time_ms: int, wall_ms: int, arrived: float, now: float) -> None:
        """A message that arrived at `arrived` was handed to storage."""

    def lost(self) -> None:
        """The oldest message on its way to storage was not stored."""


class ConsumerHandle(Protocol):
    """One attached consumer, as its connection uses it. After `remove` no call has an effect."""

    @property
    def consumer(self) -> Consumer:
        """The consumer."""

    @property
    def subscription(self) -> Subscription:
        """The subscription it is attached to."""

    @property
    def topic(self) -> SubscriptionOwner:
        """The topic whose messages it gets."""

    @property
    def type_name(self) -> str:
        """The type of its subscription, as Pulsar's tools show it."""

    def when_kept(self, call: Callable[[BrokerError | None], None]) -> None:
        """Call when the consumer may be answered, with None, or with the reason why it cannot
        stay. Some kinds must store its name first. May call at once."""

    def announce(self) -> None:
        """The consumer was answered SUCCESS: send it whether it is active (Failover) and whether
        the topic has ended. Called once."""

    def flow(self, permits: int) -> None:
        """The consumer accepts `permits` more messages."""

    def ack(self, ids: Sequence[AckId], *, cumulative: bool) -> None:
        """Acknowledge entries or parts of them; unknown and old ids are no-ops.

        Raises: BrokerError: the ack is refused as a whole (ACK_RESPONSE carries the error).
        """

    def ack_entries(self, ledger_id: int, entry_ids: list[int]) -> None:
        """`ack` of whole entries of one ledger, in any order, which came as a run of commands."""

    def redeliver(self, positions: Sequence[Position] | None, epoch: int) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES; None = everything of this consumer. `epoch` is
        consumer_epoch, -1 when absent."""

    @property
    def writable_group(self) -> object:
        """Consumers of a connection with the same key share one call of `on_writable`."""

    def on_writable(self) -> None:
        """The connection of the consumer has room again."""

    def remove(self) -> None:
        """The consumer was closed, or its connection has ended. Idempotent."""

    def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> Awaitable[None]:
        """Make `position` the next one to be delivered (EARLIEST and LATEST included; `ack_set`:
        only the messages of it whose bits are set). The consumers concerned are disconnected when
        this returns, unless an earlier operation on their position is in progress. Await it until
        the new position is stored.

        Raises: BrokerError.
        """

    def seek_to_time(self, publish_time_ms: int) -> Awaitable[None]:
        """As `seek`, to the first entry published at or after the time. The consumers concerned are
        disconnected when that entry is found."""

    def unsubscribe(self, *, force: bool) -> Awaitable[None]:
        """Delete the state kept for the consumer. The consumer is detached when this returns. Await
        it until that is stored. If storing fails the state is as before, without the consumer.

        Raises: BrokerError: at once, and the consumer stays attached: others are connected to state
            that it shares with them (and not `force`).
        """

    def statistics(self) -> ConsumerStatistics:
        """A snapshot for CONSUMER_STATS."""

    def mark_delete(self) -> Position | None:
        """The position up to which it has acknowledged everything; None when none is kept."""


class Subscription(Protocol):
    """One subscription of one topic."""

    @property
    def name(self) -> str:
        """Its name, unique in the topic."""

    @property
    def sub_type(self) -> int | None:
        """SubType number of the connected consumers (the last one known); None if never."""

    @property
    def durable(self) -> bool:
        """Whether its position is kept without consumers."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties given when it was created; not the broker's own."""

    def admits(self, durable: bool) -> bool:
        """Whether a consumer that is (not) durable may attach."""

    @property
    def consumers(self) -> Collection[Consumer]:
        """Connected consumers in order of arrival."""

    async def locate(self, request: SubscriptionRequest) -> SubscriptionRequest:
        """The request with its start as a position, if storage must be read to find it and each
        consumer has its own start. Only for requests with `start_rollback_seconds`.

        Raises: BrokerError: storage cannot be read now.
        """

    def attach_consumer(self, consumer: Consumer, request: SubscriptionRequest) -> ConsumerHandle:
        """Attach a consumer. It is answered SUCCESS after `ConsumerHandle.when_kept`. Messages
        flow only after `flow`.

        Raises: BrokerError ConsumerBusy, ConsumerAssignError, NotAllowedError, ServiceNotReady.
        """

    def in_the_way_of(self, consumer: Consumer) -> Consumer | None:
        """The consumer because of which this one was refused with ConsumerBusy."""

    def remove_consumer(self, consumer: Consumer) -> None:
        """Detach. Its unacked messages are redelivered to others at once. Idempotent."""

    def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> Awaitable[None]:
        """Admin: make `position` the next one to be delivered to every consumer (EARLIEST and
        LATEST included; `ack_set`: only the messages of it whose bits are set). All consumers are
        disconnected when it begins, which is at once unless another operation on the subscription
        is in progress. Await it until the position is stored.

        Raises: BrokerError.
        """

    def seek_to_time(self, publish_time_ms: int) -> Awaitable[None]:
        """As `seek`, to the first entry published at or after the time. Consumers are disconnected
        when that entry is found."""

    def skip(self, count: int) -> Awaitable[None]:
        """Admin: acknowledge the next `count` entries of the backlog, after earlier operations on
        the subscription.

        Raises: BrokerError ServiceNotReady: it was closed meanwhile.
        """

    def clear_backlog(self) -> Awaitable[None]:
        """Admin: as `skip`, everything up to the tail."""

    @property
    def is_replicated(self) -> bool:
        """Whether other clusters are to know its position."""

    def set_replicated(self, is_wanted: bool) -> Awaitable[None]:
        """Admin: whether other clusters are to know its position. Await it until that is stored.

        Raises: BrokerError: NotAllowedError: this kind cannot have it.
        """

    def expire(self, before_ms: int) -> Awaitable[int]:
        """As `skip`, everything published before the time (milliseconds since 1970). The number of
        entries that were in the backlog until then."""

    def skip_past(self, position: Position) -> int:
        """Acknowledge everything up to the position now, whatever operation waits. The number of
        entries that were in the backlog until then; 0 while a seek is under way, or when it is
        closed."""

    @property
    def active_at(self) -> float:
        """When it was opened, or a consumer came or left, whichever was last."""

    @property
    def expirations(self) -> Expirations:
        """The counts of expired messages."""

    def rest(self) -> None:
        """No client has used the topic for a while: give up what the next consumer makes again.
        Whatever has consumers, or something under way, stays as it is."""

    def tail_moved(self) -> None:
        """New entries can be read. Called once per group of appended entries."""

    def limits_changed(self) -> None:
        """The limits of its topic are others now. Consumers above them stay."""

    def topic_terminated(self) -> None:
        """No more entries will be added: notify consumers that have drained the topic."""

    @property
    def backlog_entries(self) -> int:
        """Entries not acknowledged yet; Pulsar's msgBacklog. Derived, never counted."""

    def mark_delete_position(self) -> Position | None:
        """The mark-delete position of its cursor; None when there is none (non-persistent
        topic)."""

    def read_position(self) -> Position | None:
        """The next entry that it will read; None: it begins after its mark-delete position, or
        each of its consumers reads by itself."""

    @property
    def is_reading_replays(self) -> bool:
        """Whether it reads entries again now, to redeliver them."""

    def why_not_dispatching(self) -> str:
        """One sentence that says why nothing is being delivered now; empty if nothing blocks it."""

    def update_rates(self, now: float) -> None:
        """Close a rate window. Rates in statistics are the mean over the last window. The broker
        calls it every statsUpdateFrequencyInSecs."""

    def delivered(self) -> tuple[int, int]:
        """Messages and bytes sent to consumers since the topic was loaded."""

    def statistics_in_steps(self) -> Generator[None, None, SubscriptionStatistics]:
        """A snapshot for the admin API and metrics. Each step is bounded work, however many
        consumers there are; consumers may come and go between two steps."""

    def series(self, statistics: SubscriptionStatistics) -> Sequence[Series]:
        """Metrics that only this kind has, of statistics just taken."""

    def disconnect_consumers(self) -> None:
        """Remove every consumer and let their sessions send CLOSE_CONSUMER."""

    async def close(self) -> None:
        """Disconnect all consumers and stop. The topic still owns the cursor."""


class DirectSubscription(Subscription, Protocol):
    """A subscription of a non-persistent topic. Entries are handed to it and never read."""

    def deliver(self, entries: Sequence[Entry]) -> None:
        """Send to consumers with permits. Entries that no consumer can take are dropped and
        counted."""
