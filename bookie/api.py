"""The interface of a bookie, implemented by the embedded bookie and by the TCP client.

Adds are the hot path and use callbacks: one call per run of entries, no task, no future. Everything
else is a coroutine.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Protocol

LAST_ENTRY: Final = -1
"""As entry id of a read: the last entry of the ledger in this bookie."""

ENTRY_SIZE_BYTES_MAX: Final = 64 << 20
"""A bookie refuses a larger entry with BAD_REQUEST. A length above it in a journal or an entry log
is therefore damage."""

FLAG_FENCING: Final = 0x1
FLAG_RECOVERY_ADD: Final = 0x2
FLAG_HIGH_PRIORITY: Final = 0x4

EntryBody = tuple[bytes, bytes]
"""(head, payload): the head is the 32 byte entry metadata plus digest; their concatenation is the
entry as BookKeeper stores it. Kept apart so that a payload is never copied on its way to disk."""


class LedgerProgress(NamedTuple):
    """Numbers that change when more of a ledger may be confirmed, or when its writer has lost
    it."""

    entry_id_max: int
    """The highest id of the entries added since the start."""
    explicit_lac: bytes
    is_over: bool
    """It is fenced, or not here."""


class Status(IntEnum):
    """Result of a request: BookKeeper's wire protocol v2 error codes, and below zero, with
    BookKeeper's numbers, what a client finds out by itself. Those never travel."""

    NOT_ENOUGH_BOOKIES = -6
    """No bookie is left that could take the place of a failed one."""
    UNREACHABLE = -8
    """There is no connection, or it ended before the answer: the request may have had effect."""
    TIMED_OUT = -23
    """No answer in time: the request may have had effect, now or later."""

    OK = 0
    NO_LEDGER = 1
    NO_ENTRY = 2
    BAD_REQUEST = 100
    IO_ERROR = 101
    UNAUTHORIZED = 102
    BAD_VERSION = 103
    FENCED = 104
    READ_ONLY = 105
    TOO_MANY_REQUESTS = 106
    UNKNOWN_LEDGER_STATE = 107


class BookieError(Exception):
    """A request was refused or failed; `status` gives the code. NO_ENTRY and NO_LEDGER are
    proofs."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(f"{status.name}: {detail}")
        self.status = status
        self.detail = detail


class AddSink(Protocol):
    """Receives the outcome of adds. Called from the event loop, never within add_entry."""

    def on_add_replies(self, status: int, ledger_id: int, first_entry_id: int, count: int) -> None:
        """`count` entries from the first on are durable (OK), or all of them are refused. For one
        ledger in the order of the adds, however they are grouped."""

    def on_replies_end(self) -> None:
        """All replies of this group have been delivered: act on them now (send receipts...)."""


class Turn(Protocol):
    """A turn of the event loop that collects work and completes it together at its end."""

    in_turn: bool
    """A turn is active. Its end kicks the bookie, so adds need not do it."""

    def begin_turn(self) -> None:
        """A group of replies is about to be delivered."""

    def end_turn(self) -> None:
        """The whole group has been delivered."""


class BookieApi(Protocol):
    """Requests to one bookie."""

    def add_entry(
        self,
        ledger_id: int,
        entry_id: int,
        body: EntryBody,
        master_key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        """Store an entry; OK is answered only after it is durable. The digest is not checked."""

    def add_entries(
        self,
        ledger_id: int,
        first_entry_id: int,
        bodies: list[EntryBody],
        master_key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        """The same as `add_entry` for each of these consecutive entries. Takes over the list."""

    def kick(self) -> None:
        """Hand everything queued to the journal now: end of a received chunk or a turn."""

    def read_cached(self, ledger_id: int, entry_id: int) -> EntryBody | None:
        """The entry if it is still in the write cache. None does not prove that it is absent."""

    async def read_entry(
        self, ledger_id: int, entry_id: int, *, flags: int = 0, master_key: bytes = b""
    ) -> bytes:
        """One whole entry body (LAST_ENTRY: the newest one). With FLAG_FENCING the ledger is
        fenced durably before anything is answered, also before NO_ENTRY.

        Raises: BookieError.
        """

    async def read_batch(
        self, ledger_id: int, first_entry_id: int, count_max: int, size_bytes_max: int
    ) -> list[bytes]:
        """Consecutive entry bodies from `first_entry_id` on: at least one, stopping at the first
        missing entry or before the size is passed.

        Raises: BookieError: the first entry cannot be given (NO_ENTRY only when proved).
        """

    async def fence_ledger(self, ledger_id: int, master_key: bytes) -> None:
        """Refuse all further plain adds, durably."""

    async def force_ledger(self, ledger_id: int) -> None:
        """Return when everything accepted for the ledger so far is durable."""

    async def write_explicit_lac(self, ledger_id: int, body: bytes, master_key: bytes) -> None:
        """Keep, durably, how far the ledger is confirmed, in place of what was kept before. The
        digest is not checked.

        Raises: BookieError.
        """
