"""What every topic has: its name, its policies, whether it is open, the order of its operations.

A topic is either open, or closing (unload, delete), when it refuses every request with a retryable
error. Questions about what is stored have the answers of a topic that stores nothing here;
`PersistentTopic` has its own.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import structlog

from broker.ground.operations import Operations
from broker.topics.topic.errors import told
from broker.topics.topic.producer import ProducerTopic
from protocol.errors import ServiceNotReady

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from broker.ground.entry import Entry
    from broker.managed_ledger.statistics import ManagedLedgerStatistics
    from broker.tenancy.policies.scopes import TopicPolicies
    from broker.topics.subscription.api import PublishObserver
    from broker.topics.subscription.ports import LedgerPort
    from broker.topics.topic.backlog_keeper import OldestMessage
    from broker.topics.topic.services import TopicServices
    from protocol.position import Position
    from protocol.topic_name import TopicName

log = structlog.get_logger()

ATTENDED: Final = -1.0
AT_REST: Final = inf
PRODUCERS: Final = ()
"""The key of producer openings and schema registrations among the operations of a topic."""


class StoredCounts(NamedTuple):
    """The counts of one topic since it was loaded."""

    latencies: list[int]
    """Messages per bucket of `histograms.LATENCY_NAMES`, then those above all."""
    latency_seconds: float
    sizes: list[int]
    """Entries per bucket of `histograms.SIZE_NAMES`, then those above all."""
    size_bytes: int
    entries: int
    evictions_by_size: int
    """How often messages were acknowledged because of a backlog quota."""
    evictions_by_age: int


class TopicBase(ProducerTopic):
    """See the module docstring."""

    __slots__ = (
        "active_at",
        "closing",
        "created_ms",
        "name",
        "operations",
        "policies",
        "services",
        "unattended_since",
    )
    persistent: ClassVar[bool]

    def __init__(self, services: TopicServices, name: TopicName, policies: TopicPolicies) -> None:
        self.services = services
        self.name = name
        self.policies = policies
        self.closing = ""
        """Why the topic takes no new producers and consumers; empty while it is open."""
        self.created_ms = services.clock.wall_ms()
        self.active_at = services.clock.now()
        """Time of the last use, for idle-topic collection."""
        self.unattended_since = ATTENDED
        """Since when it has had no client, as far as the timer of rest has seen."""
        self.operations = Operations(services.nursery_of)
        """Operations of subscriptions, by name, and of producers and schemas, by `PRODUCERS`."""

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

    def touch(self) -> None:
        """The topic is used now."""
        self.active_at = self.services.clock.now()
        self.unattended_since = ATTENDED

    async def _unload_failed(self) -> None:
        try:
            await self.services.unload(self.name)
        except Exception as error:
            log.error("cannot unload failed topic", topic=self.name.full, **told(error))

    # --- what is stored -----------------------------------------------------------------

    def check_publishable(self) -> None:
        """Raises: BrokerError: the topic accepts no more messages."""

    async def check_backlog(self) -> None:
        """Raises: BrokerError: no producer may come, because the backlog is over its quota."""

    async def store_epoch(self, epoch: int) -> None:
        """Make the topic epoch durable before its producer gets it."""
        _ = epoch

    def check_subscribe_rate(self, address: str, name: str, consumer_id: int) -> None:
        """Raises: BrokerError: the consumer of this name and id, from this address, subscribes too
        often. A topic that stores nothing has no such rate, as in Pulsar."""

    def subscription_ledger(self, *, compacted: bool) -> LedgerPort | None:
        """The ledger that its subscriptions read, or what compaction has kept of it; None for a
        topic that stores nothing."""
        del compacted
        return None

    def is_internal_cursor(self, name: str) -> bool:
        """Whether no subscription may have this name, because a part of the topic has the cursor.
        A topic that stores nothing has none."""
        del name
        return False

    def watch_publishes(self, observer: PublishObserver, *, begin: bool) -> None:
        """Only stored topics have subscriptions to notify."""

    async def delete_cursor(self, name: str) -> None:
        """Delete the position of a subscription."""
        _ = name

    async def open_kept_subscription(self, name: str) -> None:
        """Open the subscription of an existing cursor, as when the topic was loaded."""
        _ = name

    def last_position(self) -> Position:
        """The newest entry; (-1, -1) when there is none."""
        return (-1, -1)

    def newest_entry(self) -> Coroutine[Any, Any, Entry | None]:
        """Wait for the entry that is at `last_position` now; None when there is none.

        Raises: BrokerError PersistenceError: storage cannot give it now.
        """
        return _no_entry()

    def newest_message(self) -> Coroutine[Any, Any, Entry | None]:
        """As `newest_entry`, without entries that no client gets: one that waits for the newest
        message would wait in vain for a marker.

        Raises: BrokerError PersistenceError: storage cannot give it now.
        """
        return _no_entry()

    def holds_messages(self) -> bool:
        """Whether anything is stored."""
        return self.last_position()[1] >= 0

    def has_messages(self) -> bool:
        """Whether anything is stored or, in a topic that stores nothing, was published since it
        was loaded."""
        return self.holds_messages()

    # --- what is shown and looked after -------------------------------------------------

    def has_part(self, name: str) -> bool:
        """Whether it has the part of this kind (`parts`), and that is loaded."""
        del name
        return False

    @property
    def oldest_in_backlog(self) -> OldestMessage | None:
        """As of the last look; None: there is none, or no quota needs it."""
        return None

    async def publish_time_after(self, position: Position) -> int | None:
        """The publish time, ms since 1970, of the first message after a position; None: there is
        none, or its metadata cannot be parsed.

        Raises: BrokerError PersistenceError: storage cannot give it now.
        """
        return None

    def ledger_statistics(self) -> ManagedLedgerStatistics | None:
        """A snapshot of its ledger; None: it has none."""
        return None

    def stored_counts(self) -> StoredCounts | None:
        """The counts of the messages that it stored since it was loaded; None: it stores none."""
        return None

    async def check_quotas(self) -> None:
        """The periodic look at the backlog. Raises: BrokerError: storage cannot be read now."""

    def request_trim(self) -> None:
        """Delete ledgers that nothing needs any more, in the background."""

    def call_after_publishes(self, callback: Callable[[], None]) -> None:
        """Call once every message taken so far is answered."""
        callback()

    async def finish_publishes(self) -> None:
        """Wait until every message taken so far is answered, with a bound."""

    async def close_storage(self) -> None:
        """Release the storage."""

    async def delete_storage(self) -> None:
        """Delete the stored data."""


async def _no_entry() -> Entry | None:
    return None
