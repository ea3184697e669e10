"""Requests and answers between a ledger client and a bookie, for either wire protocol.

Requests and responses are plain tuples of the same shape for version 2 and version 3; `txn_id` is
None on version 2, which has none. Statuses are the codes of version 2 (see `STATUSES`), flags the
bits of version 2. An entry `body` is head + payload, owned bytes (see `digests`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

OK: Final = 0
NO_LEDGER: Final = 1
NO_ENTRY: Final = 2
BAD_REQUEST: Final = 100
IO_ERROR: Final = 101
UNAUTHORIZED: Final = 102
BAD_VERSION: Final = 103
FENCED: Final = 104
READ_ONLY: Final = 105
TOO_MANY_REQUESTS: Final = 106
UNKNOWN_LEDGER_STATE: Final = 107

STATUSES: Final = frozenset({OK, NO_LEDGER, NO_ENTRY}) | frozenset(range(100, 108))

FENCING: Final = 0x1
RECOVERY_ADD: Final = 0x2
HIGH_PRIORITY: Final = 0x4

LAST_ENTRY: Final = -1

AUTH_DISABLED_PLUGIN: Final = "AuthDisabledPlugin"
"""Plugin name in the answer of a bookie without authentication."""


class AddRequest(NamedTuple):
    """Store `body`; its own ids are what counts in version 2."""

    ledger_id: int
    entry_id: int
    body: bytes
    master_key: bytes
    flags: int = 0
    txn_id: int | None = None
    is_deferred_sync: bool = False


class ReadRequest(NamedTuple):
    """One entry, or LAST_ENTRY. `previous_lac`: long poll until it is passed (version 3)."""

    ledger_id: int
    entry_id: int
    flags: int = 0
    master_key: bytes = b""
    txn_id: int | None = None
    previous_lac: int | None = None
    timeout_ms: int = 0
    is_piggyback: bool = False


class BatchReadRequest(NamedTuple):
    """Consecutive entries (version 2 only). `count_max` <= 0: no limit."""

    ledger_id: int
    entry_id: int
    request_id: int
    count_max: int
    size_bytes_max: int
    flags: int = 0
    master_key: bytes = b""


class AuthRequest(NamedTuple):
    """One step of authentication."""

    plugin: str
    payload: bytes
    txn_id: int | None = None


class WriteLacRequest(NamedTuple):
    """Keep an explicit last-add-confirmed record (version 3)."""

    ledger_id: int
    last_add_confirmed: int
    body: bytes
    master_key: bytes
    txn_id: int


class ReadLacRequest(NamedTuple):
    """Give the explicit last-add-confirmed record and the last entry (version 3)."""

    ledger_id: int
    txn_id: int


class ForceLedgerRequest(NamedTuple):
    """Answer when everything accepted for the ledger is durable (version 3)."""

    ledger_id: int
    txn_id: int


class BookieInfoRequest(NamedTuple):
    """Disk space (version 3). `requested` bits: 1 total capacity, 2 free space."""

    requested: int
    txn_id: int


class ListEntriesRequest(NamedTuple):
    """A request for the list of the ledger's entries here (version 3), see `availability`."""

    ledger_id: int
    txn_id: int


class StartTlsRequest(NamedTuple):
    """Go on in TLS after the answer (version 3)."""

    txn_id: int


class UnknownRequest(NamedTuple):
    """Well formed, but an operation that no bookie serves: answer BAD_REQUEST (version 3)."""

    operation: int
    txn_id: int


Request = (
    AddRequest
    | ReadRequest
    | BatchReadRequest
    | AuthRequest
    | WriteLacRequest
    | ReadLacRequest
    | ForceLedgerRequest
    | BookieInfoRequest
    | ListEntriesRequest
    | StartTlsRequest
    | UnknownRequest
)


class AddResponse(NamedTuple):
    """The entry is durable, or why not."""

    status: int
    ledger_id: int
    entry_id: int
    txn_id: int | None = None


class ReadResponse(NamedTuple):
    """The entry. `entry_id` repeats the request's, also when that was LAST_ENTRY."""

    status: int
    ledger_id: int
    entry_id: int
    body: bytes = b""
    txn_id: int | None = None
    max_lac: int | None = None
    lac_updated_ms: int | None = None


class BatchReadResponse(NamedTuple):
    """Consecutive entries from `entry_id` on (version 2 only)."""

    status: int
    ledger_id: int
    entry_id: int
    request_id: int
    bodies: tuple[bytes, ...] = ()


class AuthResponse(NamedTuple):
    """One step of authentication."""

    status: int
    plugin: str
    payload: bytes
    txn_id: int | None = None


class WriteLacResponse(NamedTuple):
    """The record is durable, or why not."""

    status: int
    ledger_id: int
    txn_id: int


class ReadLacResponse(NamedTuple):
    """None: there is no such record, or no entry."""

    status: int
    ledger_id: int
    txn_id: int
    lac_body: bytes | None = None
    last_entry_body: bytes | None = None


class ForceLedgerResponse(NamedTuple):
    """Everything accepted before is durable, or why not."""

    status: int
    ledger_id: int
    txn_id: int


class BookieInfoResponse(NamedTuple):
    """The values that were asked for; None: not asked for."""

    status: int
    txn_id: int
    total_bytes: int | None = None
    free_bytes: int | None = None


class ListEntriesResponse(NamedTuple):
    """`availability` is the encoded bitmap."""

    status: int
    ledger_id: int
    txn_id: int
    availability: bytes = b""


class StartTlsResponse(NamedTuple):
    """OK: TLS starts now."""

    status: int
    txn_id: int


class ErrorResponse(NamedTuple):
    """An answer with nothing but a status (version 3)."""

    status: int
    txn_id: int


Response = (
    AddResponse
    | ReadResponse
    | BatchReadResponse
    | AuthResponse
    | WriteLacResponse
    | ReadLacResponse
    | ForceLedgerResponse
    | BookieInfoResponse
    | ListEntriesResponse
    | StartTlsResponse
    | ErrorResponse
)
