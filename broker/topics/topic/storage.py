"""The part of a topic that depends on whether it stores its messages.

These are the answers of a topic that stores nothing. `PersistentTopic` overrides them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.topics.topic.producer import ProducerTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from broker.ground.entry import Entry
    from broker.managed_ledger.statistics import ManagedLedgerStatistics
    from broker.topics.subscription.api import PublishObserver
    from broker.topics.subscription.ports import LedgerPort
    from broker.topics.topic.backlog_keeper import OldestMessage
    from protocol.position import Position


class StoredCounts(NamedTuple):
    """Of one topic, since it was loaded."""

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


class TopicStorage(ProducerTopic):
    """The storage of a topic, as the base of both kinds (`Topic`) uses it."""

    __slots__ = ()

    def check_publishable(self) -> None:
        """Raises: BrokerError: the topic accepts no more messages."""

    async def check_backlog(self) -> None:
        """Raises: BrokerError: no producer may come, because the backlog is over its quota."""

    async def store_epoch(self, epoch: int) -> None:
        """Make the topic epoch durable before its producer is told."""
        _ = epoch

    def check_subscribe_rate(self, address: str, name: str, consumer_id: int) -> None:
        """Raises: BrokerError: the consumer of this name and id, from this address, subscribes too
        often. A topic that stores nothing has no such rate, as in Pulsar."""

    def subscription_ledger(self, *, compacted: bool) -> LedgerPort | None:
        """The ledger that its subscriptions read, or what compaction has kept of it; None for a
        topic that stores nothing."""
        del compacted
        return None

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
        """As of the last look; None: there is none, or nobody has to know."""
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
        """What was counted of the messages that it stored since it was loaded; None: it stores
        none."""
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
