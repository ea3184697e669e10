"""A consumer: the end of a subscription at one client, its connection, and its counters.

The dispatcher owns `permits` and `pending`. The session only reads the descriptive fields.
Invariant: `permits` = flow permits granted - messages sent, and `unacked` is the sum over
`pending`. The property tests check both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from broker.topics.subscription.permits import Permits
from broker.topics.subscription.unacked import PendingAcks
from protocol.requests import EPOCH_UNSET, NO_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.ack_runs import AckRuns, AckRunTarget


class ConsumerSession(Protocol):
    """The connection of a consumer, as a subscription sees it."""

    def ack_runs_for(self, target: AckRunTarget) -> AckRuns | None:
        """The place where the target registers those of its consumers whose plain ACKs it takes by
        the run. None: another subscription has consumers there, and all ACKs for this target are
        parsed."""

    @property
    def writable(self) -> bool:
        """False while the outbox is over its high-water mark: its consumers are not chosen. When
        it drains, the session calls `on_writable` of their handles."""

    @property
    def protocol_version(self) -> int:
        """The version agreed on in CONNECTED."""

    @property
    def remote_address(self) -> str:
        """`host:port` of the client, as shown in statistics."""

    @property
    def client_version(self) -> str:
        """The client version from CONNECT."""

    @property
    def supports_broker_entry_metadata(self) -> bool:
        """Whether the client asked for 0x0e02 headers in CONNECT's feature flags."""

    def send(self, *buffers: bytes) -> None:
        """Queue one or more whole frames (a frame may be spread over several buffers)."""

    def send_many(self, buffers: list[bytes]) -> None:
        """Queue the buffers of many frames at once, in order. The callee owns the list now."""

    def disconnect_consumer(self, consumer: Consumer) -> None:
        """Drop the consumer and send CLOSE_CONSUMER with request id 2^64-1. The subscription has
        already removed it; calling `remove_consumer` again is harmless."""


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
        "consumed_last_ms",
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
