"""A consumer: the end of a subscription at one client, its session, and its counters.

The session is the part of a connection that a subscription sees, whatever protocol its client
speaks: the door of the protocol implements `ConsumerSession`, and makes frames of a `Delivery`.

The dispatcher owns `permits` and `pending`. The session only reads the descriptive fields.
Invariant: `permits` = flow permits granted - messages sent, and `unacked` is the sum over
`pending`. The property tests check both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from mypy_extensions import mypyc_attr

from broker.topics.subscription.client_connection import ClientConnection
from broker.topics.subscription.permits import Permits
from broker.topics.subscription.unacked import PendingAcks
from protocol.left_out import EPOCH_UNSET, NO_PROPERTIES

if TYPE_CHECKING:
    from array import array
    from collections.abc import Collection, Mapping, Sequence

    from protocol.position import Position
    from security.caller import Caller

ENCODINGS_MAX: Final = 64
"""The number of encodings of a shared entry. Clients choose the epochs that make them differ."""


@final
class Delivery:
    """Entries of one ledger for one consumer, in columns: one item of each for each entry."""

    __slots__ = (
        "ack_sets",
        "entry_ids",
        "ledger_id",
        "partition",
        "payloads",
        "redelivery_counts",
        "size_bytes",
    )

    def __init__(self, partition: int, ledger_id: int, *, is_plain: bool = True) -> None:
        """`is_plain`: none of the entries was delivered before, and all of each is delivered."""
        self.partition = partition
        """-1: the topic is not partitioned."""
        self.ledger_id = ledger_id
        self.entry_ids: list[int] = []
        self.payloads: list[bytes] = []
        """As stored, as far as the client may see them."""
        self.size_bytes = 0
        """The size of the payloads."""
        self.redelivery_counts: list[int] | None = None if is_plain else []
        """None: all are 0."""
        self.ack_sets: list[tuple[int, ...]] | None = None if is_plain else []
        """As in `AckId`, the messages of a batch that are still to be delivered; empty: all. None:
        all of them are empty."""

    def add(
        self, entry_id: int, payload: bytes, redelivery_count: int, ack_set: tuple[int, ...]
    ) -> None:
        """One entry more."""
        self.entry_ids.append(entry_id)
        self.payloads.append(payload)
        self.size_bytes += len(payload)
        if self.redelivery_counts is not None and self.ack_sets is not None:
            self.redelivery_counts.append(redelivery_count)
            self.ack_sets.append(ack_set)


@mypyc_attr(allow_interpreted_subclasses=True)
class SharedEntry:
    """An entry that many consumers get. The encodings that a door has made of it are kept with it,
    for all its sessions, under keys of the door's own."""

    __slots__ = ("encodings", "partition", "position")

    def __init__(self, position: Position, partition: int) -> None:
        self.position = position
        self.partition = partition
        self.encodings: dict[object, bytes] = {}

    def keep(self, key: object, encoded: bytes) -> None:
        """For the next session that needs it."""
        if len(self.encodings) >= ENCODINGS_MAX:
            self.encodings.clear()
        self.encodings[key] = encoded


class AckRunTarget(Protocol):
    """Takes the acknowledgements of its consumers by the run."""

    def ack_run(self, slots: array[int], position: Position) -> None:
        """All of the consumers have acknowledged the whole entry. They are given by the numbers
        under which they were added to the `AckRuns`. The callee owns the array."""


class AckRuns(Protocol):
    """The consumers of one connection whose acknowledgements are taken by the run."""

    def add(self, consumer_id: int, number: int) -> None:
        """A consumer was attached. The caller chooses its number."""

    def remove(self, consumer_id: int) -> None:
        """It has left."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ConsumerSession(ClientConnection):
    """The consumers of one connection, as their subscriptions use it. It knows a consumer by the
    `consumer_id` that its own door has given it. A call queues what the client gets and returns at
    once. It raises nothing, also when the client has gone."""

    __slots__ = ("supports_broker_entry_metadata",)

    def __init__(
        self, peer: str, client_version: str, caller: Caller, features: Collection[str] = ()
    ) -> None:
        super().__init__(peer, client_version, caller, features)
        self.supports_broker_entry_metadata = "supports_broker_entry_metadata" in features
        """Whether the client asked for 0x0e02 headers."""

    @property
    def writable(self) -> bool:
        """False while too much output waits: its consumers are not chosen. When there is room, the
        door calls `on_writable` of their handles."""
        raise NotImplementedError

    def deliver(self, consumer: Consumer, delivery: Delivery) -> None:
        """Send entries to the consumer, in their order. The callee owns the delivery now."""
        raise NotImplementedError

    def deliver_to_many(
        self,
        slots: array[int],
        consumers: Sequence[Consumer | None],
        consumer_ids: array[int],
        entry: SharedEntry,
        payload: bytes,
        epoch: int,
    ) -> None:
        """Send one entry, which was not delivered before, to each consumer of these slots. All of
        them have this epoch; `consumers` and `consumer_ids` are by slot. A door whose connections
        have thousands of consumers does this without a step for each of them."""
        del consumer_ids, epoch
        ledger_id, entry_id = entry.position
        for slot in slots:
            consumer = consumers[slot]
            if consumer is not None:
                delivery = Delivery(entry.partition, ledger_id)
                delivery.add(entry_id, payload, 0, ())
                self.deliver(consumer, delivery)

    def active(self, consumer: Consumer, *, is_active: bool) -> None:
        """Whether the consumer of a Failover subscription is the one that gets messages."""
        raise NotImplementedError

    def ended(self, consumer: Consumer) -> None:
        """The topic is terminated, and the consumer has acknowledged all of it."""
        raise NotImplementedError

    def closed(self, consumer: Consumer) -> None:
        """The subscription has ended the consumer, and already removed it: drop it, and let the
        client know. It may return at once."""
        raise NotImplementedError

    def ack_runs_for(self, target: AckRunTarget) -> AckRuns | None:
        """The place where the target registers those of its consumers whose acknowledgements it
        takes by the run. None: another subscription has consumers there, or the door takes all
        acknowledgements one by one."""
        del target
        return None


@final
class KeySharedOptions(NamedTuple):
    """CommandSubscribe.keySharedMeta. Ranges are inclusive on both ends, as on the wire."""

    sticky: bool = False
    ranges: tuple[tuple[int, int], ...] = ()
    out_of_order_allowed: bool = False


@final
class Counters:
    """Statistics of a consumer: increasing counters, or times in wall ms."""

    __slots__ = (
        "acked_last_ms",
        "bytes_out",
        "chunks_out",
        "consumed_last_ms",
        "draining_hashes_cleared",
        "entries_out",
        "flow_last_ms",
        "messages_acked",
        "messages_dropped",
        "messages_out",
        "messages_redelivered",
    )

    def __init__(self) -> None:
        self.messages_out = 0
        self.bytes_out = 0
        self.messages_redelivered = 0
        self.messages_acked = 0
        self.entries_out = 0
        self.flow_last_ms = 0
        self.consumed_last_ms = 0
        self.acked_last_ms = 0
        self.messages_dropped = 0
        self.chunks_out = 0
        self.draining_hashes_cleared = 0


NO_OPTIONS: Final = KeySharedOptions()
_NO_PERMITS: Final = Permits()
_NOTHING_PENDING: Final = PendingAcks()
_NO_COUNTERS: Final = Counters()
"""Shared by all consumers that are not equipped. It is never changed."""


@final
class Consumer:
    """One consumer. Identity is the object: ids are unique per connection only.

    A subscription that keeps permits, pending acks and counters with each consumer calls `equip`.
    One that keeps them in another form does not, which saves memory with 100,000 consumers.
    """

    __slots__ = (
        "auto_consumes",
        "blocked_on_unacked",
        "connected_since_ms",
        "consumer_id",
        "counters",
        "durable",
        "end_of_topic_sent",
        "epoch",
        "joined",
        "key_shared",
        "metadata",
        "name",
        "pending",
        "permits",
        "priority_level",
        "read_compacted",
        "role",
        "session",
        "sub_type",
        "subscription_properties",
    )

    def __init__(
        self,
        consumer_id: int,
        name: str,
        session: ConsumerSession,
        sub_type: int,
        priority_level: int = 0,
        durable: bool = True,
        read_compacted: bool = False,
        key_shared: KeySharedOptions = NO_OPTIONS,
        metadata: Mapping[str, str] = NO_PROPERTIES,
        subscription_properties: Mapping[str, str] = NO_PROPERTIES,
        epoch: int = EPOCH_UNSET,
        role: str = "",
        connected_since_ms: int = 0,
        auto_consumes: bool = False,
    ) -> None:
        self.consumer_id = consumer_id
        self.name = name
        self.session = session
        self.sub_type = sub_type
        self.priority_level = priority_level
        self.durable = durable
        self.read_compacted = read_compacted
        self.key_shared = key_shared
        self.metadata = metadata
        self.subscription_properties = subscription_properties
        self.epoch = epoch
        """CommandSubscribe.consumer_epoch; raised by redeliver requests."""
        self.role = role
        self.connected_since_ms = connected_since_ms
        self.auto_consumes = auto_consumes
        """It subscribed with AUTO_CONSUME: it takes whatever schema the topic has, or will have."""
        self.permits: Permits = _NO_PERMITS
        self.pending: PendingAcks = _NOTHING_PENDING
        self.counters: Counters = _NO_COUNTERS
        self.blocked_on_unacked = False
        """Set and cleared only by the subscription, from `pending` and the limit."""
        self.end_of_topic_sent = False
        self.joined = 0
        """Order of arrival, assigned by the subscription."""

    def equip(self) -> None:
        """Give it its own permits, pending acks and counters."""
        self.permits = Permits()
        self.pending = PendingAcks()
        self.counters = Counters()

    def __repr__(self) -> str:
        return f"Consumer({self.consumer_id}, {self.name!r})"
