"""What a topic needs of its ledger, and of the factory that opens it.

A topic of this broker has a `ManagedLedger`, a shadow topic the ledger of its source
(`broker/topics/follow`), and tests have ledgers of their own. None of these calls is made for each
message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.topics.subscription.ports import LedgerPort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from broker.ground.entry import Entry
    from broker.managed_ledger.config import LedgerPolicies
    from broker.managed_ledger.context import AppendListener
    from broker.managed_ledger.entry_cache import EntryCache
    from broker.managed_ledger.ledger_table import LedgerRow
    from broker.managed_ledger.statistics import CursorStatistics, ManagedLedgerStatistics
    from ledgers.client import LedgerClient
    from protocol.position import Position


class PartCursor(Protocol):
    """A cursor of a part of a topic: a position, and numbers that are stored with it."""

    position_properties: dict[str, int]
    """Replaced, never changed."""

    @property
    def mark_delete(self) -> Position:
        """Everything up to and including it needs no replay."""

    def ack_cumulative(self, position: Position) -> None:
        """Move on to the entry. Stored with the next flush."""

    def touch(self) -> None:
        """`position_properties` were replaced: store them with the next flush."""

    async def flush(self) -> None:
        """Store it in one write. Raises: OwnershipLost, BrokerError, LedgerError."""

    async def reset(self, position: Position) -> None:
        """Move to the position and store it in one write. Raises: as `flush`."""


class TopicLedger(LedgerPort, Protocol):
    """The ledger of one topic. `broker.managed_ledger` documents what the calls say and raise."""

    policies: LedgerPolicies
    """May be replaced at any time."""

    @property
    def name(self) -> str:
        """As the factory knows it."""

    @property
    def client(self) -> LedgerClient:
        """For what parts and subscriptions keep in ledgers of their own."""

    @property
    def listener(self) -> AppendListener | None:
        """The topic, set before it appends."""

    @listener.setter
    def listener(self, listener: AppendListener) -> None: ...

    @property
    def fenced(self) -> bool:
        """Nothing can be stored any more: unload it."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The topic's properties."""

    # --- content ------------------------------------------------------------------------

    @property
    def entries(self) -> int:
        """How many entries are held."""

    @property
    def ledger_ids(self) -> set[int]:
        """The ledgers of the topic."""

    @property
    def entries_added(self) -> int:
        """Since it was opened, as for the following."""

    @property
    def size_added_bytes(self) -> int:
        """Bytes that are durable."""

    @property
    def size_sent_bytes(self) -> int:
        """The same, with those that are not durable yet."""

    def backlog_bytes(self, mark_delete: Position) -> int:
        """Bytes after a position, also those that are not durable yet."""

    def bytes_after(self, position: Position) -> int:
        """Durable bytes after a position."""

    def position_with_bytes_after(self, size_bytes: int) -> Position:
        """The first position with at most so many bytes after it."""

    def holds(self, position: Position) -> bool:
        """Whether there is an entry at the position."""

    def nth_position(self, number: int) -> Position:
        """The entry with this number, counted from 1, or the last entry."""

    def closed_ledger_of(self, position: Position) -> LedgerRow | None:
        """The ledger of the first entry after a position, if it is closed."""

    def last_closed_before(self, time_ms: int) -> Position | None:
        """The last entry of the ledgers that were closed before a time."""

    def written_by_ms(self, position: Position, publish_time_ms: int) -> int:
        """The time of an entry that is held."""

    def statistics(self) -> ManagedLedgerStatistics:
        """A snapshot."""

    def cursor_statistics(self) -> Iterator[CursorStatistics]:
        """A snapshot of each cursor."""

    # --- writing ------------------------------------------------------------------------

    def check_appendable(self) -> None:
        """Raises: BrokerError: it takes no messages."""

    def append_run(self, entries: list[Entry], contexts: list[object]) -> None:
        """Append entries in order. The listener gets the outcome."""

    def storage_failed(self, error: Exception) -> None:
        """Which appended entries reached storage is unknown: those without an outcome fail, and the
        ledger takes no more until it is opened again."""

    def roll(self) -> None:
        """Go on in a new ledger, so that the entries before can be deleted."""

    def request_trim(self) -> None:
        """Delete what nothing needs, in the background."""

    async def trim(self) -> int:
        """Delete the ledgers that nothing needs. Returns how many."""

    async def terminate(self) -> Position:
        """End the topic after its last entry, for ever."""

    async def change_properties(self, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Replace the properties, durably."""

    # --- cursors, and its life ----------------------------------------------------------

    async def open_part_cursor(self, name: str, initial: Position) -> PartCursor:
        """Find the cursor of a part, or create it with `initial` as its mark-delete position."""

    async def delete_cursor(self, name: str) -> None:
        """Delete a cursor with what is stored of it. Unknown names are ignored."""

    @property
    def needs_rest(self) -> bool:
        """Whether `rest` would give up something."""

    async def rest(self) -> None:
        """Give up what the next use makes again: the topic was not used for a while."""

    def disconnect(self) -> None:
        """It is closed: forget the topic."""


class TopicLedgers(Protocol):
    """Opens the ledgers of topics, by `TopicName.managed_ledger_name`."""

    @property
    def cache(self) -> EntryCache:
        """The entries in memory, of all topics."""

    @property
    def open_count(self) -> int:
        """How many ledgers are open."""

    async def open(self, name: str, policies: LedgerPolicies | None = None) -> TopicLedger:
        """The ledger of a topic, created if need be.

        Raises: BrokerError, OwnershipLost.
        """

    async def close(self, name: str) -> None:
        """Close it, if it is open."""

    async def delete(self, name: str) -> None:
        """Delete it with its cursors. Raises: BrokerError TopicNotFound."""
