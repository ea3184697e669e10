"""EntryIndex: the locations of entries and the rows of ledgers. The seam over RocksDB.

Rows are DbLedgerStorage's. Locations: ledger id 8 bytes, entry id 8 bytes -> location 8 bytes, all
big-endian. Ledgers: ledger id 8 bytes -> LedgerData.

One row of Vela's own comes after all others in the locations: (END_LEDGER, 0) -> log id << 32 |
size, the end of the entry logs when the newest locations were written. It is part of every batch of
locations, so the bytes after it in the logs were never indexed.

One more row of Vela's own in both databases names the ledger directory that they were made for:
(END_LEDGER, 1) -> owner in the locations, OWNER_LEDGER -> LedgerData of a deleted ledger, with the
owner as its master key, in the ledgers. A database that was put into another directory would report
the entries there as missing.

Writes become durable with `sync`, in the order they were made: after a crash a prefix of them
exists. All writes come from one thread; `location` and `last_entry_id` may be called from any.

Every read may raise IndexUnreadable, every write DiskFailed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

pack_location_key = struct.Struct(">qq").pack
unpack_location_key = struct.Struct(">qq").unpack
pack_u64 = struct.Struct(">Q").pack
unpack_u64 = struct.Struct(">Q").unpack
pack_ledger_key = struct.Struct(">q").pack

END_LEDGER: Final = -2
END_KEY: Final = pack_location_key(END_LEDGER, 0)
OWNER_KEY: Final = pack_location_key(END_LEDGER, 1)
OWNER_LEDGER: Final = -3
"""Without locations: an earlier version takes it for a deleted ledger, and it may have none."""
FLAGS_LEDGER: Final = -0xEEFD
"""BookKeeper keeps a flags row under this ledger id; it is no ledger."""
ENTRY_ID_MAX: Final = (1 << 63) - 1


class IndexBatch(Protocol):
    """Rows written together."""

    def put(self, key: bytes, value: bytes) -> None:
        """Add a row."""

    def __setitem__(self, key: bytes, value: bytes, /) -> None:
        """The same."""


class EntryIndex(Protocol):
    """Both indexes of one ledger directory."""

    @property
    def damage(self) -> str:
        """Damage found since the start, as a line for the user; empty: none."""

    def new_batch(self) -> IndexBatch:
        """An empty batch of location rows."""

    def write_locations(self, batch: IndexBatch) -> None:
        """Apply a batch at once. Not durable yet."""

    def sync(self) -> None:
        """Make everything written so far durable.

        Raises: DiskFailed.
        """

    def sequences(self) -> tuple[int, int]:
        """The numbers of the last changes of locations and ledgers. They never become lower than
        they were at a `sync`."""

    def location(self, ledger_id: int, entry_id: int) -> int:
        """The location, 0 if there is none."""

    def last_entry_id(self, ledger_id: int) -> int:
        """The highest entry id with a location, -1 if there is none."""

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """All entry ids of a ledger, ascending."""

    def ledgers_without_log(self, log_ids: Collection[int]) -> dict[int, set[int]]:
        """The logs that locations refer to and that are not among these: their ledgers. Reads all
        locations."""

    def end_of_logs(self) -> int:
        """The row (END_LEDGER, 0), 0 if there is none."""

    def owners(self) -> tuple[bytes, bytes]:
        """The owners stored in locations and ledgers; empty: none is."""

    def set_owner(self, owner: bytes) -> None:
        """Store the owner in both, durably. At most 100 bytes."""

    def remove_locations(self, ledger_id: int) -> None:
        """Drop all locations of a ledger."""

    def ledgers(self) -> Iterator[tuple[int, bytes]]:
        """(ledger id, LedgerData) of all ledgers."""

    def write_ledgers(self, rows: dict[int, bytes | None]) -> None:
        """Put (or with None remove) ledger rows. Not durable yet."""

    def close(self) -> None:
        """Release everything."""
