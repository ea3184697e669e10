"""What a subscription is to the rest of the broker: the interface connections and topics use.

A subscription is made by a `SubscriptionKind` (see `broker.subscription.factory`), so that other
kinds than the stock one, such as a broadcast to all consumers, stand behind the same methods.

Rules every kind keeps:

- Everything but `seek`, `close` and the like is synchronous and atomic: no state changes under a
  caller's feet, and no lock is needed.
- `remove_consumer` is idempotent; after it no byte is sent to that consumer.
- When the subscription itself ends a consumer (seek, unload, delete) it removes the consumer first
  and then calls `consumer.session.disconnect_consumer(consumer)`, which must forget the consumer
  and send CLOSE_CONSUMER with request id 2^64-1.
- Refusals are `protocol.errors.BrokerError`; acks of unknown or old positions are no-ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.broadcast.ack_runs import AckRuns
    from broker.broadcast.stages import Stages
    from broker.entry import Entry
    from broker.subscription.consumer import Consumer
    from broker.subscription.statistics import SubscriptionStatistics
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

    ack_runs: AckRuns | None
    """Set by a subscription that wants plain ACK frames of its consumers unparsed."""

    @property
    def writable(self) -> bool:
        """False while the outbox is over its high-water mark: its consumers are not chosen.
        When it drains the session calls `subscription.on_writable(consumer)` for each of them."""

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

    def watch_publishes(self, stages: Stages, *, begin: bool) -> None:
        """Report the times of publishes to `stages` from now on, or no more."""


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
        """Whether a consumer that is (not) durable may attach although the subscription is not
        like it."""

    @property
    def wakes_connections(self) -> bool:
        """Whether one `on_writable` is enough for all its consumers on a connection."""

    @property
    def consumers(self) -> Sequence[Consumer]:
        """Connected consumers in order of arrival."""

    def add_consumer(self, consumer: Consumer) -> None:
        """Attach a consumer. The caller has answered SUCCESS first or queues it before any frame:
        messages flow only after `flow`. Call `announce_active` right after SUCCESS was queued: it
        sends the newcomer ACTIVE_CONSUMER_CHANGE or REACHED_END_OF_TOPIC where due.

        Raises: BrokerError ConsumerBusy, ConsumerAssignError, NotAllowedError, ServiceNotReady.
        """

    def announce_active(self, consumer: Consumer) -> None:
        """The consumer has been answered SUCCESS: tell it whether it is active (Failover) and
        whether the topic has ended. To be called once for every consumer."""

    def remove_consumer(self, consumer: Consumer) -> None:
        """Detach: what it had unacked is redelivered to others at once. Idempotent."""

    def flow(self, consumer: Consumer, permits: int) -> None:
        """The consumer can take `permits` more messages."""

    def ack(self, consumer: Consumer, ids: Sequence[AckId], *, cumulative: bool) -> None:
        """Acknowledge entries or parts of them; unknown and old ids are no-ops.

        Raises: BrokerError: the ack is refused as a whole (ACK_RESPONSE carries the error).
        """

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int
    ) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES; None = everything of this consumer. `epoch` is
        consumer_epoch, -1 when absent."""

    def check_unsubscribe(self, consumer: Consumer | None, *, force: bool = False) -> bool:
        """Raises: BrokerError: other consumers are connected (and not `force`). On success the
        caller closes and deletes the subscription, if the answer is True; False: only what is kept
        for this consumer ends."""

    async def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> None:
        """Make `position` the next one to be delivered (EARLIEST and LATEST included;
        `ack_set`: only the messages of it whose bits are set). All
        consumers are disconnected, with the cursor already reset, before this returns.

        Raises: BrokerError ServiceNotReady: another seek is running.
        """

    async def seek_to_time(self, publish_time_ms: int) -> None:
        """As `seek`, to the first entry published at or after the time."""

    async def skip(self, count: int) -> None:
        """Admin: acknowledge the next `count` entries of the backlog."""

    async def clear_backlog(self) -> None:
        """Admin: acknowledge everything up to the tail."""

    def tail_moved(self) -> None:
        """New entries can be read. Called once per group of appended entries."""

    def topic_terminated(self) -> None:
        """No entry will be added any more: tell consumers that have drained the topic."""

    def on_writable(self, consumer: Consumer) -> None:
        """The consumer's session has room again."""

    @property
    def backlog_entries(self) -> int:
        """Entries not acknowledged yet; Pulsar's msgBacklog. Derived, never counted."""

    def mark_delete_position(self) -> Position | None:
        """For GET_LAST_MESSAGE_ID; None when there is no cursor (non-persistent topic)."""

    def why_not_dispatching(self) -> str:
        """One sentence why nothing is being delivered now; empty when nothing holds it."""

    def update_rates(self, now: float) -> None:
        """Close a rate window: what statistics show as rates is the mean of the last one. The
        broker calls it every statsUpdateFrequencyInSecs."""

    def statistics(self) -> SubscriptionStatistics:
        """A snapshot for the admin API, metrics and CONSUMER_STATS."""

    def disconnect_consumers(self) -> None:
        """Remove every consumer and let their sessions send CLOSE_CONSUMER."""

    async def close(self) -> None:
        """Disconnect everyone and stop; the cursor is left to the topic."""


class DirectSubscription(Subscription, Protocol):
    """A subscription of a non-persistent topic: entries are handed to it, never read."""

    def deliver(self, entries: Sequence[Entry]) -> None:
        """Send to whoever has permits now; what nobody can take is dropped and counted."""
