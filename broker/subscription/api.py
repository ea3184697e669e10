"""What a subscription is to the rest of the broker, and what one of its consumers is.

Topics and administrators use `Subscription`, which is about all consumers together. A connection
uses the `ConsumerHandle` that `Subscription.add_consumer` returns: what the commands of one
consumer do. Both are made by a `SubscriptionKind` (see `broker.subscription.factory`), and each
kind decides what a command means: SEEK moves the cursor that all consumers of a stock subscription
share, and the consumer's own position in a broadcast.

Rules every kind keeps:

- Everything but `seek`, `close` and the like is synchronous and atomic: no state changes under a
  caller's feet, and no lock is needed. What `seek` can do without waiting it has done when it
  returns, so that requests take effect in the order of their arrival.
- `remove_consumer` is idempotent; after it no byte is sent to that consumer.
- When the subscription itself ends a consumer (seek, unload, delete) it removes the consumer first
  and then calls `consumer.session.disconnect_consumer(consumer)`, which must forget the consumer
  and send CLOSE_CONSUMER with request id 2^64-1.
- Refusals are `protocol.errors.BrokerError`; acks of unknown or old positions are no-ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from broker.entry import Entry
    from broker.subscription.consumer import Consumer
    from broker.subscription.factory import SubscriptionRequest
    from broker.subscription.series import Series
    from broker.subscription.statistics import ConsumerStatistics, SubscriptionStatistics
    from protocol.ack_runs import AckRuns, AckRunTarget
    from protocol.errors import BrokerError
    from protocol.position import Position

EXCLUSIVE = 0
SHARED = 1
FAILOVER = 2
KEY_SHARED = 3
"""CommandSubscribe.SubType numbers."""

TYPE_NAMES = {
    EXCLUSIVE: "Exclusive",
    SHARED: "Shared",
    FAILOVER: "Failover",
    KEY_SHARED: "Key_Shared",
}


class AckId(NamedTuple):
    """One message id of an ACK: a whole entry, or with `ack_set` the part still unacked.

    `ack_set` holds the wire's 64-bit words (bit set = not acked yet), empty for the whole entry.
    """

    ledger_id: int
    entry_id: int
    ack_set: tuple[int, ...] = ()


class ConsumerSession(Protocol):
    """The connection a consumer lives on, as far as a subscription needs it."""

    def ack_runs_for(self, target: AckRunTarget) -> AckRuns | None:
        """Where the target adds those of its consumers whose plain ACKs it takes by the run. None:
        another subscription has consumers there, and all ACKs for this target are parsed."""

    @property
    def writable(self) -> bool:
        """False while the outbox is over its high-water mark: its consumers are not chosen.
        When it drains the session calls `on_writable` of their handles."""

    @property
    def protocol_version(self) -> int:
        """The version agreed on in CONNECTED."""

    @property
    def remote_address(self) -> str:
        """`host:port` of the client, as shown in statistics."""

    @property
    def client_version(self) -> str:
        """What the client said in CONNECT."""

    @property
    def supports_broker_entry_metadata(self) -> bool:
        """Whether the client asked for 0x0e02 headers in CONNECT's feature flags."""

    def send(self, *buffers: bytes) -> None:
        """Queue one or more whole frames (a frame may be spread over several buffers)."""

    def send_many(self, buffers: list[bytes]) -> None:
        """Queue the buffers of many frames at once, in order; the list is the callee's now."""

    def disconnect_consumer(self, consumer: Consumer) -> None:
        """Forget the consumer and send CLOSE_CONSUMER with request id 2^64-1. The subscription has
        already removed it; calling `remove_consumer` again is harmless."""


class SubscriptionOwner(Protocol):
    """The topic, as far as a subscription needs it."""

    def on_subscription_abandoned(self, subscription: Subscription) -> None:
        """A non-durable subscription lost its last consumer: the owner takes it off its map and
        arranges `close()` and the deletion of its cursor. Called synchronously."""

    def end_subscription(self, subscription: Subscription, *, force: bool) -> Awaitable[None]:
        """Its last consumer has unsubscribed: delete it with its cursor, if it is still there.

        Raises: BrokerError: others are connected (and not `force`), or storage fails.
        """

    def watch_publishes(self, observer: PublishObserver, *, begin: bool) -> None:
        """Report publishes to the observer from now on, or no more."""

    @property
    def partition(self) -> int:
        """Index of the partition, -1 when the topic is not partitioned."""

    def newest_entry(self) -> Awaitable[Entry | None]:
        """To be awaited for what is the newest entry of the topic now; None when there is none.

        Raises: BrokerError PersistenceError: storage cannot give it now.
        """


class PublishObserver(Protocol):
    """Hears of every publish of a topic, in order."""

    def published(self, publish_time_ms: int, wall_ms: int, arrived: float, now: float) -> None:
        """A message that arrived at `arrived` was handed to storage."""

    def lost(self) -> None:
        """The oldest message under way was not stored."""


class ConsumerHandle(Protocol):
    """One attached consumer, as its connection uses it. After `remove` nothing has an effect."""

    @property
    def consumer(self) -> Consumer:
        """The consumer."""

    @property
    def subscription(self) -> Subscription:
        """What it is attached to."""

    @property
    def topic(self) -> SubscriptionOwner:
        """Whose messages it gets."""

    @property
    def type_name(self) -> str:
        """The type of its subscription, as Pulsar's tools show it."""

    def when_kept(self, call: Callable[[BrokerError | None], None]) -> None:
        """Call when the consumer may be answered, with None, or with the reason why it cannot
        stay: some kinds must store its name first. May call at once."""

    def announce(self) -> None:
        """The consumer was answered SUCCESS: tell it whether it is active (Failover) and whether
        the topic has ended. To be called once."""

    def flow(self, permits: int) -> None:
        """It can take `permits` more messages."""

    def ack(self, ids: Sequence[AckId], *, cumulative: bool) -> None:
        """Acknowledge entries or parts of them; unknown and old ids are no-ops.

        Raises: BrokerError: the ack is refused as a whole (ACK_RESPONSE carries the error).
        """

    def redeliver(self, positions: Sequence[Position] | None, epoch: int) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES; None = everything of this consumer. `epoch` is
        consumer_epoch, -1 when absent."""

    @property
    def writable_group(self) -> object:
        """One `on_writable` is enough for all consumers of a connection that have the same."""

    def on_writable(self) -> None:
        """Its connection has room again."""

    def remove(self) -> None:
        """It was closed, or its connection is gone. Idempotent."""

    def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> Awaitable[None]:
        """Make `position` the next one to be delivered (EARLIEST and LATEST included;
        `ack_set`: only the messages of it whose bits are set). Whoever is moved is disconnected
        when this returns, unless an earlier operation on what is moved is under way; to be awaited
        until the new position is stored.

        Raises: BrokerError.
        """

    def seek_to_time(self, publish_time_ms: int) -> Awaitable[None]:
        """As `seek`, to the first entry published at or after the time. Whoever is moved is
        disconnected when that is found."""

    def unsubscribe(self, *, force: bool) -> Awaitable[None]:
        """Give up what is kept for the consumer. It is detached when this returns; to be awaited
        until that is stored. If storing fails everything is as it was, without the consumer.

        Raises: BrokerError: at once, and the consumer stays attached: others are connected to what
            it shares with them (and not `force`).
        """

    def statistics(self) -> ConsumerStatistics:
        """A snapshot for CONSUMER_STATS."""

    def mark_delete(self) -> Position | None:
        """Up to where it has acknowledged everything; None when nothing is kept."""


class Subscription(Protocol):
    """One subscription of one topic."""

    @property
    def name(self) -> str:
        """Its name, unique in the topic."""

    @property
    def sub_type(self) -> int | None:
        """SubType number given by the connected consumers (the last one known); None if never."""

    @property
    def durable(self) -> bool:
        """Whether its position outlives its consumers."""

    def admits(self, durable: bool) -> bool:
        """Whether a consumer that is (not) durable may attach."""

    @property
    def consumers(self) -> Sequence[Consumer]:
        """Connected consumers in order of arrival."""

    async def locate(self, request: SubscriptionRequest) -> SubscriptionRequest:
        """The request with its start as a position, where storage must be asked for it and each
        consumer has a start of its own. Only for requests with `start_rollback_seconds`.

        Raises: BrokerError: storage cannot be read now.
        """

    def add_consumer(self, consumer: Consumer, request: SubscriptionRequest) -> ConsumerHandle:
        """Attach a consumer. It is answered SUCCESS after `ConsumerHandle.when_kept`; messages
        flow only after `flow`.

        Raises: BrokerError ConsumerBusy, ConsumerAssignError, NotAllowedError, ServiceNotReady.
        """

    def in_the_way_of(self, consumer: Consumer) -> Consumer | None:
        """Who holds the place that was refused to the consumer with ConsumerBusy."""

    def remove_consumer(self, consumer: Consumer) -> None:
        """Detach: what it had unacked is redelivered to others at once. Idempotent."""

    def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> Awaitable[None]:
        """Admin: make `position` the next one to be delivered, for everybody (EARLIEST and LATEST
        included; `ack_set`: only the messages of it whose bits are set). All consumers are
        disconnected when it begins, which is at once unless another operation on the subscription
        is under way; to be awaited until the position is stored.

        Raises: BrokerError.
        """

    def seek_to_time(self, publish_time_ms: int) -> Awaitable[None]:
        """As `seek`, to the first entry published at or after the time. Consumers are disconnected
        when that is found."""

    async def skip(self, count: int) -> None:
        """Admin: acknowledge the next `count` entries of the backlog."""

    async def clear_backlog(self) -> None:
        """Admin: acknowledge everything up to the tail."""

    def tail_moved(self) -> None:
        """New entries can be read. Called once per group of appended entries."""

    def topic_terminated(self) -> None:
        """No entry will be added any more: tell consumers that have drained the topic."""

    @property
    def backlog_entries(self) -> int:
        """Entries not acknowledged yet; Pulsar's msgBacklog. Derived, never counted."""

    def mark_delete_position(self) -> Position | None:
        """Of its cursor; None when there is none (non-persistent topic)."""

    def why_not_dispatching(self) -> str:
        """One sentence why nothing is being delivered now; empty when nothing holds it."""

    def update_rates(self, now: float) -> None:
        """Close a rate window: what statistics show as rates is the mean of the last one. The
        broker calls it every statsUpdateFrequencyInSecs."""

    def delivered(self) -> tuple[int, int]:
        """Messages and bytes sent to consumers since the topic was loaded."""

    def statistics(self) -> SubscriptionStatistics:
        """A snapshot for the admin API and metrics."""

    def series(self) -> Sequence[Series]:
        """What metrics show of this kind only."""

    def disconnect_consumers(self) -> None:
        """Remove every consumer and let their sessions send CLOSE_CONSUMER."""

    async def close(self) -> None:
        """Disconnect everyone and stop; the cursor is left to the topic."""


class DirectSubscription(Subscription, Protocol):
    """A subscription of a non-persistent topic: entries are handed to it, never read."""

    def deliver(self, entries: Sequence[Entry]) -> None:
        """Send to whoever has permits now; what nobody can take is dropped and counted."""
